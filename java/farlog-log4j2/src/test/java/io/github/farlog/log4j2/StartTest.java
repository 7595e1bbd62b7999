package io.github.farlog.log4j2;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;

/** What an application sees that changes nothing in its code: it runs, or it does not get as far as its main. */
class StartTest {
    private static final Path WORK = Path.of("target", "start").toAbsolutePath();

    @Test
    void shouldNotReachMainWithoutItsRing() throws Exception {
        final ChildJvm jvm = new ChildJvm(WORK);
        try (TestRing ring = TestRing.absent()) {
            final int code = start(jvm, "absent", ring);
            final String output = Files.readString(jvm.output("absent"));
            assertEquals(1, code, output);
            assertFalse(output.contains("main is reached"), output);
            assertTrue(output.contains("ExceptionInInitializerError"), output);
            assertTrue(
                output.contains("farlog refuses the configuration: appender \"farlog\": ring \"" + ring.uri + '"'),
                output);
        }
    }

    @Test
    void shouldRecordWithThreeLinesOfConfiguration() throws Exception {
        final ChildJvm jvm = new ChildJvm(WORK);
        try (TestRing ring = TestRing.onTmpfs(1 << 20)) {
            final int code = start(jvm, "present", ring);
            assertEquals(0, code, Files.readString(jvm.output("present")));
            assertEquals(List.of("the first trade"), ring.texts());
        }
    }

    private static int start(final ChildJvm jvm, final String name, final TestRing ring) throws Exception {
        final List<String> options = List.of("-Dlog4j2.configurationFile=three-lines.xml",
            "-Dfarlog.test.uri=" + ring.uri);
        return jvm.start(name, StartMain.class, options).waitFor();
    }
}

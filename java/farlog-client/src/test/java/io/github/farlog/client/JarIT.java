package io.github.farlog.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * The jar as a user takes it: alone in a fresh folder, with the example of java/README.md, on the class path and as a
 * module.
 */
class JarIT {
    private static final Pattern EXAMPLE = Pattern.compile("```java\n(.*?)```", Pattern.DOTALL);
    private static final Path JAR = Path.of(System.getProperty("farlog.jar"));

    private static String example(final Path folder) throws Exception {
        final Matcher found = EXAMPLE.matcher(Files.readString(Programs.repository().resolve("java/README.md")));
        assertTrue(found.find(), "java/README.md has no example");
        Files.writeString(folder.resolve("Append.java"), found.group(1));
        Files.copy(JAR, folder.resolve("farlog-client.jar"));
        return found.group(1);
    }

    @Test
    void shouldRunTheExampleOnTheClassPath(@TempDir final Path folder) throws Exception {
        final String source = example(folder);
        assertTrue(source.lines().count() <= 32, "an example of more than 32 lines is not read");
        run(folder, Programs.jdk("javac"), "-cp", "farlog-client.jar", "Append.java");
        final Path ring = Path.of("/dev/shm", "farlog-java-it-" + ProcessHandle.current().pid() + ".ring");
        try {
            for (final List<String> expected : List.of(List.of("OK at VISIBLE", "buy 100"),
                List.of("OK at VISIBLE", "buy 100", "buy 100"))) { // the second time the ring is there
                final String text = run(folder, Programs.jdk("java"), "--enable-native-access=ALL-UNNAMED", "-cp",
                    "farlog-client.jar:.",
                    "Append", "mem:" + ring);
                assertEquals(expected, text.lines().toList());
            }
        } finally {
            Files.deleteIfExists(ring);
        }
    }

    @Test
    void shouldRunAsAModule(@TempDir final Path folder) throws Exception {
        example(folder);
        Files.writeString(folder.resolve("module-info.java"), "module user { requires io.github.farlog.client; }\n");
        Files.writeString(folder.resolve("Append.java"),
            "package user;\n" + Files.readString(folder.resolve("Append.java")));
        run(folder, Programs.jdk("javac"), "-d", "classes", "-p", "farlog-client.jar", "module-info.java",
            "Append.java");
        final Path ring = Path.of("/dev/shm", "farlog-java-im-" + ProcessHandle.current().pid() + ".ring");
        try {
            final String text = run(folder, Programs.jdk("java"), "--enable-native-access=io.github.farlog.client",
                "--illegal-native-access=deny", "-p", "farlog-client.jar:classes", "-m", "user/user.Append",
                "mem:" + ring);
            assertEquals(List.of("OK at VISIBLE", "buy 100"), text.lines().toList());
        } finally {
            Files.deleteIfExists(ring);
        }
    }

    private static String run(final Path folder, final String... command) throws Exception {
        final Path out = folder.resolve("out.txt");
        final int code = Programs.status(out, folder, command);
        assertEquals(0, code, Files.readString(out));
        return Files.readString(out);
    }
}

package io.github.farlog.log4j2;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.logging.log4j.core.config.ConfigurationFactory;
import org.apache.logging.log4j.core.config.ConfigurationSource;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The examples of the README run as they stand there, but for the name of the ring's file. */
class ReadmeTest {
    @ParameterizedTest
    @ValueSource(strings = {"xml", "yaml", "properties"})
    void shouldRunAsTheReadmeSays(final String format) throws IOException {
        try (TestRing ring = TestRing.absent(); LoggerContext context = new LoggerContext("readme")) {
            final String example = example(format).replace("/dev/shm/orders", ring.path.toString());
            final Path file = Files.createDirectories(Path.of("target", "readme")).resolve("log4j2." + format);
            Files.writeString(file, whole(format, example));
            context.start(ConfigurationFactory.getInstance().getConfiguration(context,
                ConfigurationSource.fromUri(file.toUri())));
            context.getLogger("orders").info("buy {}", 100);
            assertEquals(List.of("buy 100"), ring.texts());
        }
    }

    /** The first block of that format. */
    private static String example(final String format) throws IOException {
        final Matcher block = Pattern.compile("```" + format + "\n(.*?)```", Pattern.DOTALL)
            .matcher(Files.readString(Path.of("README.md")));
        if (!block.find()) {
            throw new AssertionError("README.md has no example in " + format);
        }
        return block.group(1);
    }

    private static String whole(final String format, final String example) {
        return switch (format) {
            case "xml" -> example.replace("</Configuration>",
                "<Loggers><Root level='info'><AppenderRef ref='farlog'/></Root></Loggers></Configuration>");
            case "yaml" ->
                example + "  Loggers:\n    Root:\n      level: info\n      AppenderRef:\n        ref: farlog\n";
            default -> example + "rootLogger.level = info\nrootLogger.appenderRef.farlog.ref = farlog\n";
        };
    }
}

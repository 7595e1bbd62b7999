package io.github.farlog.client;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** Runs other programs. */
final class Programs {
    private Programs() {
    }

    static Path repository() {
        return Path.of(System.getProperty("farlog.repository", "../..")).toAbsolutePath().normalize();
    }

    static String jdk(final String program) {
        return Path.of(System.getProperty("java.home"), "bin", program).toString();
    }

    /** The command of a JVM that starts fast and is small. */
    static List<String> java(final String... arguments) {
        final List<String> command = new ArrayList<>(
            List.of(jdk("java"), "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
                "-Xmx64m", "--enable-native-access=ALL-UNNAMED"));
        command.addAll(List.of(arguments));
        return command;
    }

    /** Runs to the end; what it printed, errors too. */
    static String run(final String... command) throws IOException, InterruptedException {
        final Path out = Files.createTempFile("farlog-java-", ".out");
        try {
            final int code = status(out, Path.of("."), command);
            final String text = Files.readString(out, StandardCharsets.UTF_8);
            if (code != 0) {
                throw new AssertionError(String.join(" ", command) + ": exit code " + code + "\n" + text);
            }
            return text;
        } finally {
            Files.delete(out);
        }
    }

    static int status(final Path out, final Path folder, final String... command)
        throws IOException, InterruptedException {
        final Process process = new ProcessBuilder(command).directory(folder.toFile()).redirectErrorStream(true)
            .redirectOutput(out.toFile()).start();
        if (!process.waitFor(60, TimeUnit.SECONDS)) {
            process.destroyForcibly();
            throw new AssertionError(
                String.join(" ", command) + ": still running after 60 s\n" + Files.readString(out));
        }
        return process.exitValue();
    }
}

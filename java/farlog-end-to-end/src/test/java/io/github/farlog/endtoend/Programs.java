package io.github.farlog.endtoend;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.jar.JarEntry;
import java.util.jar.JarOutputStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Assumptions;

/** Builds and runs other programs. */
final class Programs {
    private Programs() {
    }

    static Path repository() {
        return Path.of(System.getProperty("farlog.repository", "../..")).toAbsolutePath().normalize();
    }

    /**
     * The folder of the tree's own farlog and farlogd, built when they are not; the test is skipped where there is no
     * Go.
     */
    static Path ofGo() throws IOException, InterruptedException {
        final Path out = Path.of("target", "programs").toAbsolutePath();
        final Path log = Files.createTempFile("farlog-java-", ".go");
        try {
            Assumptions.assumeTrue(
                Stream.of(System.getenv("PATH").split(":")).anyMatch(dir -> Files.isExecutable(Path.of(dir, "go"))),
                "no Go here");
            final Process go = new ProcessBuilder("go", "build", "-o", out + "/", "./cmd/farlog", "./cmd/farlogd")
                .directory(repository().toFile())
                .redirectErrorStream(true).redirectOutput(log.toFile()).start();
            if (!go.waitFor(10, TimeUnit.MINUTES) || go.exitValue() != 0) {
                throw new AssertionError("go build: " + Files.readString(log));
            }
            return out;
        } finally {
            Files.delete(log);
        }
    }

    /** Runs to the end with its output in a file. */
    static Path run(final Path out, final String... command) throws IOException, InterruptedException {
        final Process process = new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(out.toFile())
            .start();
        if (!process.waitFor(2, TimeUnit.MINUTES)) {
            process.destroyForcibly();
            throw new AssertionError(
                String.join(" ", command) + ": still running after 2 minutes\n" + Files.readString(out));
        }
        if (process.exitValue() != 0) {
            throw new AssertionError(
                String.join(" ", command) + ": exit code " + process.exitValue() + "\n" + Files.readString(out));
        }
        return out;
    }

    /** This JVM's class path with its folders packed, for an archive of classes takes none. */
    static String packedClassPath(final Path folder) throws IOException {
        final List<String> elements = new ArrayList<>();
        for (final String element : System
            .getProperty("surefire.test.class.path", System.getProperty("java.class.path")).split(File.pathSeparator)) {
            final Path path = Path.of(element);
            elements.add(
                Files.isDirectory(path) ? pack(path, folder.resolve("classes-" + elements.size() + ".jar")) : element);
        }
        return String.join(File.pathSeparator, elements);
    }

    private static String pack(final Path folder, final Path jar) throws IOException {
        try (JarOutputStream out = new JarOutputStream(Files.newOutputStream(jar));
            Stream<Path> files = Files.walk(folder)) {
            for (final Path file : (Iterable<Path>) files.filter(Files::isRegularFile)::iterator) {
                out.putNextEntry(new JarEntry(folder.relativize(file).toString()));
                Files.copy(file, out);
            }
        }
        return jar.toString();
    }
}

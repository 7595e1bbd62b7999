package io.github.farlog.log4j2;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.jar.JarEntry;
import java.util.jar.JarOutputStream;
import java.util.stream.Stream;

/**
 * Starts applications in a virtual machine of their own, on the classes of this module, its client and Log4j alone. A
 * class archive, made once, halves the time to the first event; it takes jars only, so the folders of classes are
 * packed first.
 */
final class ChildJvm {
    private static final String[] NEEDED = {"classes", "test-classes", "farlog-client", "log4j-core-2", "log4j-api-2"};

    private final Path work;
    private final String classPath;
    private final Path archive;

    ChildJvm(final Path work) throws IOException {
        this.work = Files.createDirectories(work);
        this.archive = work.resolve("classes.jsa");
        final List<String> jars = new ArrayList<>();
        for (final String element : System.getProperty("java.class.path").split(File.pathSeparator)) {
            if (Stream.of(NEEDED).anyMatch(Path.of(element).getFileName().toString()::startsWith)
                || element.contains("farlog-client")) {
                final Path path = Path.of(element);
                jars.add(Files.isDirectory(path) ? pack(path, work.resolve("part-" + jars.size() + ".jar")) : element);
            }
        }
        classPath = String.join(File.pathSeparator, jars);
        Files.deleteIfExists(archive);
    }

    /** Runs until it ends, and leaves the archive of the classes that it used. */
    int train(final Class<?> main, final List<String> options, final String... arguments)
        throws IOException, InterruptedException {
        final List<String> all = new ArrayList<>(options);
        all.add("-XX:ArchiveClassesAtExit=" + archive);
        return start("train", main, all, arguments).waitFor();
    }

    /** Starts an application; what it prints goes into a file. */
    Process start(final String name, final Class<?> main, final List<String> options, final String... arguments)
        throws IOException {
        final List<String> command = new ArrayList<>(
            List.of(Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
                "-Dfarlog.library.path=" + System.getProperty("farlog.library.path")));
        if (Files.exists(archive)) {
            command.add("-XX:SharedArchiveFile=" + archive);
        }
        command.addAll(options);
        command.addAll(List.of("-cp", classPath, main.getName()));
        command.addAll(List.of(arguments));
        return new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(output(name).toFile()).start();
    }

    Path output(final String name) {
        return work.resolve(name + ".log");
    }

    private static String pack(final Path dir, final Path jar) throws IOException {
        try (JarOutputStream out = new JarOutputStream(Files.newOutputStream(jar));
            Stream<Path> files = Files.walk(dir)) {
            for (final Path file : files.filter(Files::isRegularFile).toList()) {
                out.putNextEntry(new JarEntry(dir.relativize(file).toString()));
                Files.copy(file, out);
            }
        }
        return jar.toString();
    }
}

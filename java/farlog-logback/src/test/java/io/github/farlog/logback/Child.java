package io.github.farlog.logback;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.jar.JarEntry;
import java.util.jar.JarOutputStream;
import java.util.stream.Stream;

/** A JVM with this one's class path, whose Logback configures itself from a file. */
final class Child {
    private Child() {
    }

    static ProcessBuilder command(final Path xml, final Class<?> main, final String... arguments) {
        return command(xml, classPath(), main, arguments);
    }

    static ProcessBuilder command(final Path xml, final String classPath, final Class<?> main,
        final String... arguments) {
        final List<String> words = new ArrayList<>(
            List.of(Path.of(System.getProperty("java.home"), "bin", "java").toString(), "-Xmx64m",
                "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xshare:auto",
                "--enable-native-access=ALL-UNNAMED", "-cp",
                classPath, "-Dlogback.configurationFile=" + xml,
                "-Dfarlog.library.path=" + System.getProperty("farlog.library.path")));
        words.add(main.getName());
        words.addAll(List.of(arguments));
        return new ProcessBuilder(words);
    }

    /** This JVM's class path with its folders packed, for an archive of classes takes none. */
    static String packedClassPath(final Path folder) throws IOException {
        final List<String> elements = new ArrayList<>();
        for (final String element : classPath().split(File.pathSeparator)) {
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

    static String classPath() {
        return System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"));
    }
}

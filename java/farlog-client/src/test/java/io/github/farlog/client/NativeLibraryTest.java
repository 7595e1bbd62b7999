package io.github.farlog.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.net.URL;
import java.net.URLClassLoader;
import java.net.URLConnection;
import java.net.URLStreamHandler;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.CodeSource;
import java.security.cert.Certificate;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * Where the library is looked for, and what is refused: each in a JVM of its own, with the classes in a jar without a
 * library.
 */
class NativeLibraryTest {
    private static final Path LIBRARY = Path.of(System.getProperty(NativeLibrary.PATH_PROPERTY));

    @TempDir
    private Path folder;
    private Path jar;

    /** What the JVMs run. */
    static final class Probing {
        private Probing() {
        }

        /** Any call loads the library. */
        public static void main(final String[] arguments) throws FarlogException {
            System.out.println("probed " + Ring.probe("mem:/dev/shm/none.ring").kind());
        }
    }

    /**
     * The same from a jar inside a jar, as far as the classes can tell: arguments are the jar and where it says it is.
     */
    static final class NestedProbing {
        private NestedProbing() {
        }

        public static void main(final String[] arguments) throws Exception {
            final URL[] jar = {Path.of(arguments[0]).toUri().toURL()};
            final URL location = URL.of(URI.create(arguments[1]), new URLStreamHandler() {
                @Override
                protected URLConnection openConnection(final URL url) throws IOException {
                    throw new IOException("not to be opened: " + url);
                }

                @Override
                protected void parseURL(final URL url, final String text, final int start, final int limit) {
                    setURL(url, url.getProtocol(), "", -1, null, null, text.substring(start, limit), null, null);
                }
            });
            final ClassLoader loader = new URLClassLoader(jar, ClassLoader.getPlatformClassLoader()) {
                @Override
                protected Class<?> findClass(final String name) throws ClassNotFoundException {
                    try (InputStream in = getResourceAsStream(name.replace('.', '/') + ".class")) {
                        final byte[] raw = in.readAllBytes();
                        return defineClass(name, raw, 0, raw.length, new CodeSource(location, (Certificate[]) null));
                    } catch (final IOException e) {
                        throw new ClassNotFoundException(name, e);
                    }
                }
            };
            final Class<?> ring = loader.loadClass("io.github.farlog.client.Ring");
            System.out.println("from " + ring.getProtectionDomain().getCodeSource().getLocation());
            System.out
                .println("probed " + ring.getMethod("probe", String.class).invoke(null, "mem:/dev/shm/none.ring"));
        }
    }

    @BeforeEach
    void makeJar() throws Exception {
        jar = Files.createDirectory(folder.resolve("lib")).resolve("client.jar");
        final Path classes = Path.of(NativeLibrary.class.getProtectionDomain().getCodeSource().getLocation().toURI());
        Programs.run(Programs.jdk("jar"), "cf", jar.toString(), "-C", classes.toString(), "io");
    }

    private static Path tests() throws Exception {
        return Path.of(Probing.class.getProtectionDomain().getCodeSource().getLocation().toURI());
    }

    private void pack() throws Exception {
        final Path root = folder.resolve("natives").resolve("linux-" + NativeLibrary.architecture());
        Files.createDirectories(root);
        Files.copy(LIBRARY, root.resolve("libfarlog.so"));
        Programs.run(Programs.jdk("jar"), "uf", jar.toString(), "-C", folder.toString(), "natives");
    }

    private String probe(final int expected, final String... options) throws Exception {
        final List<String> command = new ArrayList<>(Programs.java(options));
        command.addAll(List.of("-cp", jar + ":" + tests(), Probing.class.getName()));
        return run(expected, command);
    }

    private String run(final int expected, final List<String> command) throws Exception {
        final Path out = folder.resolve("out.txt");
        final int code = Programs.status(out, folder, command.toArray(new String[0]));
        final String text = Files.readString(out);
        assertEquals(expected, code, text);
        assertEquals(expected == 0, text.contains("probed"), text);
        return text;
    }

    @Test
    void shouldTakeTheFileOrFolderOfTheProperty() throws Exception {
        probe(0, "-Dfarlog.library.path=" + LIBRARY);
        probe(0, "-Dfarlog.library.path=" + LIBRARY.getParent());
        final Path none = folder.resolve("none.so");
        final String text = probe(1, "-Dfarlog.library.path=" + none, "-Djava.library.path=" + LIBRARY.getParent());
        assertTrue(text.contains(none.toString()) && text.contains("was not found"), text);
    }

    @Test
    void shouldTakeTheFileBesideTheJar() throws Exception {
        Files.copy(LIBRARY, jar.resolveSibling("libfarlog.so"));
        probe(0);
    }

    @Test
    void shouldUnpackTheFileInsideTheJarAndLeaveNothingBehind() throws Exception {
        pack();
        final Path temporary = Files.createDirectory(folder.resolve("tmp"));
        probe(0, "-Djava.io.tmpdir=" + temporary);
        try (var left = Files.list(temporary)) {
            assertEquals(0, left.filter(path -> path.getFileName().toString().startsWith("farlog")).count());
        }
    }

    @Test
    void shouldUnpackFromAJarInsideAJar() throws Exception {
        pack();
        for (final String location : List.of("jar:file:" + folder + "/app.jar!/BOOT-INF/lib/client.jar!/",
            "jar:nested:" + folder + "/app.jar/!BOOT-INF/lib/client.jar!/", "http://somewhere/client.jar")) {
            final List<String> command = new ArrayList<>(
                Programs.java("-cp", tests().toString(), NestedProbing.class.getName()));
            command.addAll(List.of(jar.toString(), location));
            final String text = run(0, command);
            assertTrue(text.contains("from " + location), text);
        }
    }

    @Test
    void shouldTellHowToUnpackWhenItCannot() throws Exception {
        pack();
        final String line = refusal(probe(1, "-Djava.io.tmpdir=/nonexistent"));
        assertTrue(line.contains("/nonexistent") && line.contains("set -Djava.io.tmpdir="), line);
    }

    @Test
    void shouldTellHowToAllowNativeAccess() throws Exception {
        final List<String> command = new ArrayList<>(Programs.java("-Dfarlog.library.path=" + LIBRARY));
        assertTrue(command.remove("--enable-native-access=ALL-UNNAMED"));
        command.addAll(List.of("--illegal-native-access=deny", "-cp", jar + ":" + tests(), Probing.class.getName()));
        final String line = refusal(run(1, command));
        assertTrue(line.contains("IllegalCallerException") && line.contains("--enable-native-access=ALL-UNNAMED"),
            line);
    }

    private static String refusal(final String text) {
        assertFalse(text.contains("ExceptionInInitializerError"), text);
        return text.lines().filter(line -> line.contains("UnsatisfiedLinkError: farlog: ")).findFirst()
            .orElseThrow(() -> new AssertionError(text));
    }

    @Test
    void shouldTakeTheFileOfTheLibraryPath() throws Exception {
        probe(0, "-Djava.library.path=/nowhere:" + LIBRARY.getParent());
    }

    @Test
    void shouldNameEveryPlaceWhenThereIsNone() throws Exception {
        final String text = probe(1, "-Djava.library.path=/nowhere:/neither");
        final String line = text.lines().filter(l -> l.contains("was not found")).findFirst()
            .orElseThrow(() -> new AssertionError(text));
        for (final String place : List.of(jar.resolveSibling("libfarlog.so").toString(), "inside the jar",
            "/nowhere/libfarlog.so",
            "/neither/libfarlog.so", "-Dfarlog.library.path")) {
            assertTrue(line.contains(place), "no " + place + " in: " + line);
        }
        assertFalse(text.contains("InvocationTargetException"), text);
    }

    @Test
    void shouldRefuseTheLibraryOfAnotherProcessor() throws Exception {
        final byte[] raw = Files.readAllBytes(LIBRARY);
        raw[18] = (byte) (NativeLibrary.architecture().equals("aarch64") ? 62 : 183);
        final Path foreign = folder.resolve("foreign.so");
        Files.write(foreign, raw);
        final String text = probe(1, "-Dfarlog.library.path=" + foreign);
        assertTrue(
            text.contains(foreign + " is for ") && text.contains("this JVM is for " + NativeLibrary.architecture()),
            text);
        Files.writeString(foreign, "not a library, but long enough to look at");
        assertTrue(probe(1, "-Dfarlog.library.path=" + foreign).contains("is no ELF library"));
    }

    @Test
    void shouldRefuseTheLibraryOfAnotherVersion() throws Exception {
        final Path source = folder.resolve("other.c");
        final Path other = folder.resolve("other.so");
        Files.writeString(source, "const char *farlog_version(void) { return \"7.3.1\"; }\n");
        Programs.run("cc", "-shared", "-fPIC", "-o", other.toString(), source.toString());
        final String text = probe(1, "-Dfarlog.library.path=" + other);
        final String series = NativeVersion.WANTED.replaceFirst("[0-9]+$", "x");
        assertTrue(text.contains("has version 7.3.1, this client needs " + series), text);
        Files.writeString(source, "int nothing;\n");
        Programs.run("cc", "-shared", "-fPIC", "-o", other.toString(), source.toString());
        assertTrue(probe(1, "-Dfarlog.library.path=" + other).contains("is no libfarlog"));
    }
}

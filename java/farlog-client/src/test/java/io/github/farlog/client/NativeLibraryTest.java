package io.github.farlog.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Where the library is looked for, and what is refused: each in a JVM of its own, with the classes in a jar without a library. */
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

    @BeforeEach
    void makeJar() throws Exception {
        jar = Files.createDirectory(folder.resolve("lib")).resolve("client.jar");
        final Path classes = Path.of(NativeLibrary.class.getProtectionDomain().getCodeSource().getLocation().toURI());
        Programs.run(Programs.jdk("jar"), "cf", jar.toString(), "-C", classes.toString(), "io");
    }

    private String probe(final int expected, final String... options) throws Exception {
        final Path tests = Path.of(Probing.class.getProtectionDomain().getCodeSource().getLocation().toURI());
        final List<String> command = new ArrayList<>(Programs.java(options));
        command.addAll(List.of("-cp", jar + ":" + tests, Probing.class.getName()));
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
        final Path root = folder.resolve("natives").resolve("linux-" + NativeLibrary.architecture());
        Files.createDirectories(root);
        Files.copy(LIBRARY, root.resolve("libfarlog.so"));
        Programs.run(Programs.jdk("jar"), "uf", jar.toString(), "-C", folder.toString(), "natives");
        final Path temporary = Files.createDirectory(folder.resolve("tmp"));
        probe(0, "-Djava.io.tmpdir=" + temporary);
        try (var left = Files.list(temporary)) {
            assertEquals(0, left.filter(path -> path.getFileName().toString().startsWith("farlog")).count());
        }
    }

    @Test
    void shouldTakeTheFileOfTheLibraryPath() throws Exception {
        probe(0, "-Djava.library.path=/nowhere:" + LIBRARY.getParent());
    }

    @Test
    void shouldNameEveryPlaceWhenThereIsNone() throws Exception {
        final String text = probe(1, "-Djava.library.path=/nowhere:/neither");
        final String line = text.lines().filter(l -> l.contains("was not found")).findFirst().orElseThrow(() -> new AssertionError(text));
        for (final String place : List.of(jar.resolveSibling("libfarlog.so").toString(), "inside the jar", "/nowhere/libfarlog.so",
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
        assertTrue(text.contains(foreign + " is for ") && text.contains("this JVM is for " + NativeLibrary.architecture()), text);
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
        assertTrue(text.contains("has version 7.3.1, this client needs 0.1.x"), text);
        Files.writeString(source, "int nothing;\n");
        Programs.run("cc", "-shared", "-fPIC", "-o", other.toString(), source.toString());
        assertTrue(probe(1, "-Dfarlog.library.path=" + other).contains("is no libfarlog"));
    }
}

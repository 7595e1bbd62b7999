package io.github.farlog.logback;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.DataInputStream;
import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import java.util.jar.JarOutputStream;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * The jar as an application has it: the appender on a Java that is new enough, and on an older one an error in its
 * place.
 */
class JarIT {
    private static final Path JAR = Path.of(System.getProperty("farlog.jar"));
    private static final String APPENDER = "io/github/farlog/logback/FarlogAppender.class";
    private static final String MAIN = """
        public class Main {
            public static void main(String[] args) {
                org.slf4j.LoggerFactory.getLogger("x").info("buy 100");
                System.out.println("went on");
            }
        }
        """;
    private static final Pattern VERSION = Pattern.compile("JAVA_VERSION=\"(\\d+)");

    private static int major(final JarFile jar, final String entry) throws IOException {
        try (DataInputStream in = new DataInputStream(jar.getInputStream(jar.getEntry(entry)))) {
            assertEquals(0xCAFEBABE, in.readInt());
            in.readUnsignedShort();
            return in.readUnsignedShort();
        }
    }

    @Test
    void shouldHaveTheAppenderForJava22AndAnEntryForJava11() throws IOException {
        try (JarFile jar = new JarFile(JAR.toFile())) {
            assertTrue(jar.isMultiRelease());
            assertEquals(44 + 11, major(jar, APPENDER));
            assertEquals(44 + 22, major(jar, "META-INF/versions/22/" + APPENDER));
        }
    }

    @Test
    void shouldRecordWhenJavaIsNewEnough(@TempDir final Path folder) throws Exception {
        try (TestRing ring = new TestRing(1 << 20)) {
            final String text = run(JAR, folder, Path.of(System.getProperty("java.home")), TestContext.xml(ring, ""),
                0);
            assertEquals("went on", text.strip());
            assertEquals(List.of("buy 100"), ring.texts());
        }
    }

    @Test
    void shouldRefuseToStartWhenJavaIsTooOld(@TempDir final Path folder) throws Exception {
        final Optional<Path> old = oldJava();
        assumeTrue(old.isPresent(), "no JDK of 11 to 21 in /usr/lib/jvm; install openjdk-17-jre-headless");
        try (TestRing ring = new TestRing(1 << 20)) {
            final String text = run(JAR, folder, old.get(), TestContext.xml(ring, ""), 1);
            assertTrue(Pattern.compile(
                "Appender \\[FARLOG\\]: farlog needs Java 22 or later, this is \\d\\S* in /\\S+; "
                    + "nothing would be recorded$",
                Pattern.MULTILINE).matcher(text).find(), text);
        }
    }

    /** As tools make one jar of many, when nobody tells them. */
    @Test
    void shouldSayThatTheJarWasRepacked(@TempDir final Path folder) throws Exception {
        final Path repacked = folder.resolve("repacked.jar");
        try (TestRing ring = new TestRing(1 << 20); JarFile jar = new JarFile(JAR.toFile())) {
            try (JarOutputStream out = new JarOutputStream(Files.newOutputStream(repacked))) {
                for (final JarEntry entry : (Iterable<JarEntry>) jar.stream()
                    .filter(each -> !each.getName().endsWith("MANIFEST.MF"))::iterator) {
                    out.putNextEntry(new JarEntry(entry.getName()));
                    jar.getInputStream(entry).transferTo(out);
                }
            }
            final String text = run(repacked, folder, Path.of(System.getProperty("java.home")),
                TestContext.xml(ring, ""), 1);
            assertTrue(
                text.contains(
                    "the classes for Java 22 are not found: the jar was unpacked, or packed into another one"),
                text);
        }
    }

    private static Optional<Path> oldJava() throws IOException {
        try (Stream<Path> homes = Files.list(Path.of("/usr/lib/jvm"))) {
            return homes.filter(home -> {
                try {
                    final Matcher version = VERSION.matcher(Files.readString(home.resolve("release")));
                    return Files.isExecutable(home.resolve("bin/java")) && version.find()
                        && Integer.parseInt(version.group(1)) >= 11
                        && Integer.parseInt(version.group(1)) < 22;
                } catch (final IOException e) {
                    return false;
                }
            }).findFirst();
        }
    }

    private static String run(final Path jar, final Path folder, final Path home, final String xml, final int expected)
        throws Exception {
        Files.writeString(folder.resolve("logback.xml"), xml);
        Files.writeString(folder.resolve("Main.java"), MAIN);
        final List<String> path = new ArrayList<>(List.of(jar.toString(), folder.toString()));
        for (final String element : Child.classPath().split(File.pathSeparator)) {
            if (element.matches(".*/(logback|slf4j|farlog-client)[^/]*(/target/classes)?")) {
                path.add(element);
            }
        }
        final String classPath = String.join(File.pathSeparator, path);
        assertEquals(0,
            ToolProvider.getSystemJavaCompiler().run(null, null, null, "--release", "11", "-proc:none", "-cp",
                classPath, "-d",
                folder.toString(), folder.resolve("Main.java").toString()));
        final List<String> words = new ArrayList<>(List.of(home.resolve("bin/java").toString()));
        if (expected == 0) {
            words.add("--enable-native-access=ALL-UNNAMED");
            words.add("-Dfarlog.library.path=" + System.getProperty("farlog.library.path"));
        }
        words.addAll(List.of("-cp", classPath, "-Dlogback.configurationFile=" + folder.resolve("logback.xml"), "Main"));
        final Path out = folder.resolve("out.txt");
        final Process process = new ProcessBuilder(words).redirectErrorStream(true).redirectOutput(out.toFile())
            .start();
        assertTrue(process.waitFor(60, TimeUnit.SECONDS), "still runs");
        final String text = Files.readString(out, StandardCharsets.UTF_8);
        assertEquals(expected, process.exitValue(), text);
        return text;
    }
}

package io.github.farlog.endtoend;

import io.github.farlog.client.FarlogException;
import io.github.farlog.client.Ring;
import io.github.farlog.client.RingOptions;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** Starts applications, each a JVM of its own with a configuration file of its framework. */
final class Applications {
    private static final String LOG4J2 = """
        <Configuration status="error" shutdownHook="disable">
          <Appenders>
            <Farlog name="farlog" uri="${sys:farlog.test.uri}" level="visible" policy="${sys:farlog.test.policy}"
                deadline="${sys:farlog.test.deadline}">
              <PatternLayout pattern="%m"/>
            </Farlog>
          </Appenders>
          <Loggers><Root level="info"><AppenderRef ref="farlog"/></Root></Loggers>
        </Configuration>
        """;
    private static final String LOGBACK = """
        <configuration>
          <appender name="FARLOG" class="io.github.farlog.logback.FarlogAppender">
            <uri>${farlog.test.uri}</uri>
            <level>visible</level>
            <policy>${farlog.test.policy}</policy>
            <deadline>${farlog.test.deadline}</deadline>
            <encoder><pattern>%msg</pattern></encoder>
          </appender>
          <root level="info"><appender-ref ref="FARLOG"/></root>
        </configuration>
        """;

    private final Path folder;
    private final String classPath;

    /**
     * Writes the configurations, and an archive of each framework's classes, by which an application starts twice as
     * fast.
     *
     * @param folder for everything they write
     */
    Applications(final Path folder) throws IOException, InterruptedException, FarlogException {
        this.folder = folder;
        classPath = Programs.packedClassPath(folder);
        Files.writeString(folder.resolve("log4j2.xml"), LOG4J2);
        Files.writeString(folder.resolve("logback.xml"), LOGBACK);
        for (final String framework : List.of("log4j2", "logback")) {
            final Path ring = Path.of("/dev/shm",
                "farlog-java-" + ProcessHandle.current().pid() + '-' + framework + ".ring");
            Ring.format("mem:" + ring, RingOptions.defaults().withSizeBytes(1 << 20));
            final List<String> command = command(framework, "mem:" + ring, "failStop", "1s");
            command.add(1, "-XX:ArchiveClassesAtExit=" + archive(framework));
            command.add("warm-up");
            Programs.run(folder.resolve("warm-up-" + framework), command.toArray(String[]::new));
            Files.delete(ring);
        }
    }

    private Path archive(final String framework) {
        return folder.resolve(framework + ".jsa");
    }

    /** What it prints goes to {@link #output}. */
    Process start(final String framework, final String uri, final String policy, final String deadline,
        final String run) throws IOException {
        final List<String> command = command(framework, uri, policy, deadline);
        command.add(1, "-XX:SharedArchiveFile=" + archive(framework));
        command.add(2, "-Xlog:disable");
        command.addAll(List.of(run, notesPath(run).toString()));
        return new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(output(run).toFile()).start();
    }

    private List<String> command(final String framework, final String uri, final String policy, final String deadline) {
        return new ArrayList<>(
            List.of(Path.of(System.getProperty("java.home"), "bin", "java").toString(), "-Xmx64m", "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xshare:auto", "--enable-native-access=ALL-UNNAMED",
                "-Dfarlog.library.path=" + System.getProperty("farlog.library.path"),
                "-Dlog4j2.configurationFile=" + folder.resolve("log4j2.xml"),
                "-Dlogback.configurationFile=" + folder.resolve("logback.xml"), "-Dfarlog.test.uri=" + uri,
                "-Dfarlog.test.policy=" + policy,
                "-Dfarlog.test.deadline=" + deadline, "-cp", classPath, Application.class.getName(), framework));
    }

    Path output(final String run) {
        return folder.resolve(run + ".log");
    }

    Notes notes(final String run) throws IOException {
        return new Notes(notesPath(run));
    }

    private Path notesPath(final String run) {
        return folder.resolve(run + ".notes");
    }
}

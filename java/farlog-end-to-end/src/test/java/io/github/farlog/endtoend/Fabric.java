package io.github.farlog.client;

import java.io.IOException;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Assumptions;

/** Control plane, target and host agent, each a process of its own; rings are on another host as far as the agent can tell, and reached by libfabric. */
final class Fabric implements AutoCloseable {
    private static final long READY_SECONDS = 60;
    private static final long POLL_MILLIS = 20;

    private final Path folder = Files.createTempDirectory(Path.of("/tmp"), "farlog-fabric-"); // a socket's path is short
    private final List<Process> processes = new ArrayList<>();
    private final Path programs;
    private final String control;
    private final int port;
    private Process target;

    Fabric() throws Exception {
        programs = build();
        try (ServerSocket any = new ServerSocket(0)) {
            port = any.getLocalPort();
        }
        start("control", "--listen", "127.0.0.1:0");
        control = ready("control", "control");
        startTarget();
        start("host", "--control", control, "--host-name", "trading1", "--host-socket", socket());
        ready("host", "host_socket");
    }

    /** The tree's own programs; skipped where there is no Go. */
    private static Path build() throws Exception {
        final Path out = Path.of("target", "programs").toAbsolutePath();
        final Path log = Files.createTempFile("farlog-java-", ".go");
        try {
            Assumptions.assumeTrue(Stream.of(System.getenv("PATH").split(":")).anyMatch(dir -> Files.isExecutable(Path.of(dir, "go"))), "no Go here");
            final Process go = new ProcessBuilder("go", "build", "-o", out + "/", "./cmd/farlog", "./cmd/farlogd").directory(Programs.repository().toFile())
                .redirectErrorStream(true).redirectOutput(log.toFile()).start();
            if (!go.waitFor(5, TimeUnit.MINUTES) || go.exitValue() != 0) {
                throw new AssertionError("go build: " + Files.readString(log));
            }
            return out;
        } finally {
            Files.delete(log);
        }
    }

    void startTarget() throws Exception {
        target = start("target", "--control", control, "--host-name", "storage1", "--listen", "ofi:tcp://127.0.0.1:" + port);
        ready("target", "ready");
    }

    /** As a crash of its host would: nothing is told to anybody. */
    void killTarget() {
        target.destroyForcibly().onExit().join();
    }

    private Process start(final String role, final String... arguments) throws IOException {
        final Path data = Files.createDirectories(folder.resolve(role));
        Files.deleteIfExists(data.resolve("ready"));
        final List<String> command = new ArrayList<>(List.of(programs.resolve("farlogd").toString(), role, "--data-dir", data.toString(),
            "--metrics-listen", "off", "--ready-file", data.resolve("ready").toString()));
        command.addAll(List.of(arguments));
        final Process process = new ProcessBuilder(command).redirectErrorStream(true)
            .redirectOutput(ProcessBuilder.Redirect.appendTo(data.resolve("log").toFile())).start();
        processes.add(process);
        return process;
    }

    private String ready(final String role, final String key) throws Exception {
        final Path file = folder.resolve(role).resolve("ready");
        final Pattern wanted = Pattern.compile("\"" + key + "\":\"?([^\",]*)");
        final long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(READY_SECONDS);
        while (System.nanoTime() < end && processes.getLast().isAlive()) {
            final Matcher found = wanted.matcher(Files.exists(file) ? Files.readString(file) : "");
            if (found.find()) {
                return found.group(1);
            }
            Thread.sleep(POLL_MILLIS);
        }
        final String log = Files.readString(folder.resolve(role).resolve("log"));
        Assumptions.assumeFalse(log.contains("libfabric.so"), log);
        throw new AssertionError(role + " is not ready: " + log);
    }

    private String socket() {
        return folder.resolve("agent").toString();
    }

    /** Makes a stream and gives its URI for programs of this host. */
    String stream(final String name) throws Exception {
        Programs.run(programs.resolve("farlog").toString(), "--control", control, "stream", "create", name, "--size", "16MiB", "--level", "visible");
        return "farlog://" + name + "?agent=" + socket();
    }

    /** Where the ring of a stream lies, for who may look at it there. */
    String near(final String name) throws IOException {
        try (Stream<Path> files = Files.walk(folder.resolve("target"))) {
            return "mem:" + files.filter(file -> file.toString().endsWith(name + ".ring")).findFirst().orElseThrow();
        }
    }

    @Override
    public void close() throws IOException {
        for (final Process process : processes) {
            process.destroyForcibly().onExit().join();
        }
        try (Stream<Path> files = Files.walk(folder)) {
            for (final Path file : files.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(file);
            }
        }
    }
}

package io.github.farlog.endtoend;

import io.github.farlog.client.Ring;
import java.io.IOException;
import java.net.BindException;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Assumptions;

/**
 * Control plane, target, drain and host agent, each a process of its own. The target can be reached from afar by
 * libfabric.
 */
final class Fabric implements AutoCloseable {
    static final String TARGET = "target";
    static final String DRAIN = "drain";
    private static final String CONTROL = "control";
    private static final String HOST = "host";
    private static final long READY_SECONDS = 60;
    private static final long POLL_MILLIS = 20;

    private final Path folder;
    private final Map<String, Process> daemons = new HashMap<>();
    private final Map<String, List<String>> commands = new HashMap<>();
    private final Path programs = Programs.ofGo();
    private final String control;

    /**
     * Starts them all.
     *
     * @param parent of the folder with their files: in memory, or on a disk, where a far ring is flushed by the
     * target's processor; a socket's path is short
     * @param agentHost name of the agent's host: rings are in its memory when it is "storage1", else on another host as
     * far as it can tell
     */
    Fabric(final Path parent, final String agentHost) throws Exception {
        folder = Files.createTempDirectory(parent, "farlog-fabric-");
        declare(CONTROL, "--listen", "127.0.0.1:0");
        control = start(CONTROL);
        addTarget(TARGET, "storage1");
        declare(DRAIN, "--control", control, "--host-name", "storage1", "--store-dir", store().toString(),
            "--store-segment", "16MiB");
        start(DRAIN);
        declare(HOST, "--control", control, "--host-name", agentHost, "--host-socket", socket());
        start(HOST);
    }

    /** Starts a target on a host of its own, as far as anybody can tell. */
    void addTarget(final String role, final String hostName) throws Exception {
        declare(role, "--control", control, "--host-name", hostName, "--listen", "ofi:tcp://127.0.0.1:" + freePort());
        start(role);
    }

    /**
     * Finds a port at which nobody listens, of those that the kernel gives to nobody who names none:
     * net.ipv4.ip_local_port_range begins at 32768.
     */
    private static int freePort() throws IOException {
        while (true) {
            try (ServerSocket one = new ServerSocket(ThreadLocalRandom.current().nextInt(10_000, 12_000))) {
                return one.getLocalPort();
            } catch (final BindException isTaken) {
                continue;
            }
        }
    }

    private void declare(final String role, final String... arguments) throws IOException {
        final Path data = Files.createDirectories(folder.resolve(role));
        final List<String> command = new ArrayList<>(
            List.of(programs.resolve("farlogd").toString(), role.replaceAll("\\d", ""), "--data-dir", data.toString(),
                "--metrics-listen", "off", "--ready-file", data.resolve("ready").toString()));
        command.addAll(List.of(arguments));
        commands.put(role, command);
    }

    /** Starts a daemon, again too, and waits until it is ready. Gives the control plane's address. */
    String start(final String role) throws Exception {
        final Path data = folder.resolve(role);
        Files.deleteIfExists(data.resolve("ready"));
        daemons.put(role, new ProcessBuilder(commands.get(role)).redirectErrorStream(true)
            .redirectOutput(ProcessBuilder.Redirect.appendTo(data.resolve("log").toFile())).start());
        return ready(role);
    }

    private String ready(final String role) throws Exception {
        final Path file = folder.resolve(role).resolve("ready");
        final Pattern wanted = Pattern.compile("\"ready\":true(?:.*\"control\":\"([^\"]*))?");
        final long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(READY_SECONDS);
        while (System.nanoTime() < end && daemons.get(role).isAlive()) {
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

    /** As a crash of its host would: nothing is told to anybody. */
    void kill(final String role) {
        daemons.get(role).destroyForcibly().onExit().join();
    }

    /** Stops it in the middle of whatever it does, until {@link #proceed}. */
    void pause(final String role) throws IOException, InterruptedException {
        signal(role, "-STOP");
    }

    void proceed(final String role) throws IOException, InterruptedException {
        signal(role, "-CONT");
    }

    private void signal(final String role, final String signal) throws IOException, InterruptedException {
        Programs.run(folder.resolve("signal"), "kill", signal, Long.toString(daemons.get(role).pid()));
    }

    private String socket() {
        return folder.resolve("agent").toString();
    }

    /** Makes a stream and gives its URI for programs of the agent's host. */
    String stream(final String name, final String size, final String... more) throws Exception {
        final List<String> command = new ArrayList<>(
            List.of("--control", control, "stream", "create", name, "--size", size, "--level", "visible"));
        command.addAll(List.of(more));
        farlog(command.toArray(String[]::new));
        return "farlog://" + name + "?agent=" + socket();
    }

    /** Makes a route and gives its URI for programs of the agent's host. */
    String route(final String name, final String... legs) throws Exception {
        final List<String> command = new ArrayList<>(List.of("--control", control, "route", "create", name));
        for (final String leg : legs) {
            command.addAll(List.of("--leg", leg));
        }
        farlog(command.toArray(String[]::new));
        return "farlog://" + name + "?agent=" + socket();
    }

    /** Declares a stream again. */
    void change(final String name, final String size, final String level, final String policy) throws Exception {
        final Path file = folder.resolve("fabric.yaml");
        Files.writeString(file,
            "streams: [{name: " + name + ", size: " + size + ", level: " + level + ", policy: " + policy + "}]\n");
        farlog("--control", control, "apply", "-f", file.toString());
    }

    /** The ring of a stream where it lies. */
    String near(final String name) throws IOException {
        try (Stream<Path> files = Files.walk(folder.resolve(TARGET))) {
            return "mem:"
                + files.filter(file -> file.toString().endsWith(name.substring(name.indexOf('/') + 1) + ".ring"))
                    .findFirst().orElseThrow();
        }
    }

    /** What the store has of a stream when nothing of it is left in the ring. */
    List<Stored> drained(final String stream) throws Exception {
        final String ring = near(stream);
        final long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(READY_SECONDS);
        while (Ring.inspect(ring).lagBytes() > 0) {
            if (System.nanoTime() > end) {
                throw new AssertionError(
                    stream + " is not drained: " + Files.readString(folder.resolve(DRAIN).resolve("log")));
            }
            Thread.sleep(POLL_MILLIS);
        }
        return Stored.of(this, stream);
    }

    Path store() {
        return folder.resolve("store");
    }

    /** Runs the command line; what it printed is in a file that is there until the next call. */
    Path farlog(final String... arguments) throws IOException, InterruptedException {
        final List<String> command = new ArrayList<>(List.of(programs.resolve("farlog").toString()));
        command.addAll(List.of(arguments));
        return Programs.run(folder.resolve("output"), command.toArray(String[]::new));
    }

    @Override
    public void close() throws IOException {
        for (final Process process : daemons.values()) {
            process.destroyForcibly().onExit().join();
        }
        try (Stream<Path> files = Files.walk(folder)) {
            for (final Path file : files.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(file);
            }
        }
    }
}

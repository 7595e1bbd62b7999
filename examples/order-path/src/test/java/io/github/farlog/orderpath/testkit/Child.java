package io.github.farlog.orderpath.testkit;

import io.github.farlog.orderpath.Main;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** A program of this module in a JVM of its own, to be killed. */
public final class Child {
    private Child() {
    }

    /** Starts a program; what it says is added to the log. */
    public static Process start(final Path log, final String... words) throws IOException {
        final String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        final List<String> command = new ArrayList<>(
            List.of(java, "--enable-native-access=ALL-UNNAMED", "-XX:TieredStopAtLevel=1",
                "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx128m", "-cp", System.getProperty("java.class.path")));
        if (System.getProperty("farlog.library.path") != null) {
            command.add("-Dfarlog.library.path=" + System.getProperty("farlog.library.path"));
        }
        command.add(Main.class.getName());
        command.addAll(List.of(words));
        return new ProcessBuilder(command).redirectErrorStream(true)
            .redirectOutput(ProcessBuilder.Redirect.appendTo(log.toFile())).start();
    }
}

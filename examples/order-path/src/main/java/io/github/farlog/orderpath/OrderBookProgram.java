package io.github.farlog.orderpath;

import io.github.farlog.client.Level;
import io.github.farlog.client.SharedWriter;
import io.github.farlog.client.Writer;
import io.github.farlog.orderpath.load.Idle;
import io.github.farlog.orderpath.load.Latencies;
import io.github.farlog.orderpath.load.LatencyTable;
import io.github.farlog.orderpath.load.LoadRun;
import io.github.farlog.orderpath.load.LoadStep;
import io.github.farlog.orderpath.load.RecorderSource;
import io.github.farlog.orderpath.record.FarlogRecorder;
import io.github.farlog.orderpath.record.FarlogStream;
import io.github.farlog.orderpath.record.ForcedFileRecorder;
import io.github.farlog.orderpath.record.LocalDrain;
import io.github.farlog.orderpath.record.Recorder;
import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.stream.Collectors;

/**
 * Generator, order book and matching engine under the load steps of a list, with each way of recording in turn: the
 * ways take turns within each step, so that what disturbs the machine disturbs them alike.
 */
public final class OrderBookProgram {
    /** How every message is recorded before it goes on. */
    private enum Logging {
        OFF("logging off"), FARLOG("farlog"), FILE("forced file");

        private final String title;

        Logging(final String title) {
            this.title = title;
        }
    }

    /** Who frees the ring's space. */
    private enum Drain {
        LOCAL, DAEMON
    }

    /** Where several pairs record: on one stream, whose writer they share, or on a stream each. */
    private enum Streams {
        ONE, EACH
    }

    private static final long FORCED_FILE_BYTES = 64L << 20;
    private static final int RUN_NAME_SECONDS_BASE = 36;

    private final Arguments arguments;
    private final LoadRun load;
    private final Map<Logging, Map<LoadStep, Latencies>> results = new EnumMap<>(Logging.class);

    private OrderBookProgram(final Arguments arguments) {
        this.arguments = arguments;
        load = new LoadRun(arguments.duration("warmup"), arguments.duration("measured"), arguments.duration("patience"),
            arguments.choice("idle", Idle.class), runName());
    }

    public static int run(final String[] words) throws Exception {
        final Arguments arguments = new Arguments("run order-book [--NAME VALUE ...]")
            .option("steps", "1k,5k,10k,20k,30k,40k,50k,6x50k",
                "orders a second, one step each; 6x50k is six pairs of generator and engine")
            .option("logging", "off,farlog,file", "ways to record, from off, farlog and file (forced for each message)")
            .option("warmup", "2s", "beginning of each step that is not counted")
            .option("measured", "8s", "rest of each step")
            .option("patience", "5s",
                "how long after its end a step waits for answers before it is given up as overloaded")
            .option("rounds", "1", "how often all steps are run")
            .option("idle", "yield", "what a thread does with nothing to do: yield, or spin where each has a core")
            .ring("ring", "farlog-order-book.ring", "URI of the stream's ring")
            .option("size", "256MiB", "size of a ring that is formatted")
            .option("level", "visible", "durability level: visible on tmpfs, persistent on a file or persistent memory")
            .option("streams", "each",
                "streams of several pairs: each (one for each pair: RING.0, RING.1, ...) or one (a shared writer)")
            .option("drain", "local", "who frees the ring: local, a thread of this program, or daemon")
            .option("file", "order-path.forced", "file of --logging file; on a disk, or it shows nothing").parse(words);
        new OrderBookProgram(arguments).runAll();
        return 0;
    }

    private void runAll() throws Exception {
        final List<LoadStep> steps = LoadStep.parseList(arguments.text("steps"));
        final List<Logging> ways = new ArrayList<>();
        for (final String word : arguments.text("logging").split(",")) {
            ways.add(new Arguments("").option("logging", word, "").choice("logging", Logging.class));
        }
        final FarlogStream stream = new FarlogStream(arguments.uri("ring"), arguments.choice("level", Level.class));
        if (ways.contains(Logging.FARLOG)) {
            stream.formatted("order-path/orders", arguments.bytes("size"));
        }
        System.out.println(conditions());
        for (int round = 0; round < arguments.count("rounds"); round++) {
            for (final LoadStep step : steps) {
                for (final Logging way : ways) {
                    runStep(step, way, stream);
                }
            }
        }
        results.forEach((way, table) -> System.out.print(LatencyTable.print(way.title, table)));
    }

    private void runStep(final LoadStep step, final Logging way, final FarlogStream stream) throws Exception {
        final Latencies latencies = way == Logging.FARLOG ? runOnFarlog(step, stream) : load.run(step, source(way));
        results.computeIfAbsent(way, key -> new LinkedHashMap<>()).computeIfAbsent(step, key -> new Latencies())
            .add(latencies);
        System.err.printf(Locale.ROOT, "%-11s %-10s total p50 %.1f us, p99 %.1f us%n", way.title, step,
            latencies.totalNs().getValueAtPercentile(50) / 1e3, latencies.totalNs().getValueAtPercentile(99) / 1e3);
    }

    private Latencies runOnFarlog(final LoadStep step, final FarlogStream stream) throws Exception {
        final List<FarlogStream> streams = new ArrayList<>(List.of(stream));
        if (step.pairCount() > 1 && arguments.choice("streams", Streams.class) == Streams.EACH) {
            streams.clear();
            for (int i = 0; i < step.pairCount(); i++) {
                final FarlogStream own = new FarlogStream(stream.uri() + "." + i, stream.level());
                streams.add(own.formatted("order-path/orders-" + i, arguments.bytes("size")));
            }
        }
        final RecorderSource source = pairCount -> farlogRecorders(streams, pairCount);
        if (arguments.choice("drain", Drain.class) == Drain.DAEMON) {
            return load.run(step, source);
        }
        final List<LocalDrain> drains = new ArrayList<>();
        try {
            for (final FarlogStream drained : streams) {
                drains.add(new LocalDrain(drained.uri()));
            }
            return load.run(step, source);
        } finally {
            for (final LocalDrain drain : drains) {
                drain.close();
                drain.throwFailure();
            }
        }
    }

    /** A stream has one writer: a pair has it to itself, or shares it with the others. */
    private static List<Recorder> farlogRecorders(final List<FarlogStream> streams, final int pairCount)
        throws Exception {
        final List<Recorder> recorders = new ArrayList<>();
        if (streams.size() == pairCount) {
            for (final FarlogStream stream : streams) {
                recorders.add(new FarlogRecorder(Writer.open(stream.uri(), stream.writerOptions("order-book"))));
            }
            return recorders;
        }
        final FarlogStream stream = streams.getFirst();
        final SharedWriter shared = SharedWriter.open(stream.uri(), stream.writerOptions("order-book"));
        for (int i = 0; i < pairCount; i++) {
            recorders.add(new FarlogRecorder(shared));
        }
        return recorders;
    }

    private RecorderSource source(final Logging way) {
        return pairCount -> {
            final List<Recorder> recorders = new ArrayList<>();
            for (int i = 0; i < pairCount; i++) {
                final Path file = Path.of(arguments.text("file") + "." + i);
                recorders.add(way == Logging.OFF ? Recorder.off() : new ForcedFileRecorder(file, FORCED_FILE_BYTES));
                file.toFile().deleteOnExit();
            }
            return recorders;
        };
    }

    private String conditions() throws Exception {
        final String collectors = ManagementFactory.getGarbageCollectorMXBeans().stream()
            .map(GarbageCollectorMXBean::getName)
            .collect(Collectors.joining(", "));
        final String processor = Files.lines(Path.of("/proc/cpuinfo")).filter(line -> line.startsWith("model name"))
            .findFirst()
            .map(line -> line.substring(line.indexOf(':') + 2)).orElse("unknown processor");
        final Duration measured = arguments.duration("measured");
        return String.format("%d x %s, Java %s, %s; farlog on %s, level %s; %d x %d s a step%n",
            Runtime.getRuntime().availableProcessors(), processor, Runtime.version(), collectors, arguments.uri("ring"),
            arguments.text("level"), arguments.count("rounds"), measured.toSeconds());
    }

    /**
     * Seconds since 1970 in few characters: no two runs into one stream begin in the same second, a stream having one
     * writer.
     */
    private static String runName() {
        return Long.toString(System.currentTimeMillis() / 1000, RUN_NAME_SECONDS_BASE).toUpperCase(Locale.ROOT);
    }
}

package io.github.farlog.orderpath.fix;

import io.github.farlog.client.Level;
import io.github.farlog.client.Ring;
import io.github.farlog.orderpath.Arguments;
import io.github.farlog.orderpath.record.FarlogStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Path;
import java.util.Locale;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import org.HdrHistogram.Histogram;
import quickfix.Acceptor;
import quickfix.Initiator;
import quickfix.Session;
import quickfix.SessionID;

/**
 * A desk and a venue trade over FIX on loopback. Each is an engine with a stream of its own, as they would be on two
 * hosts; started again, both go on with the sequence numbers that their streams hold.
 */
public final class FixProgram {
    /** Which ends run in this process. */
    private enum Side {
        BOTH, DESK, VENUE
    }

    private static final long PATIENCE_NS = 60_000_000_000L;
    private static final long PAUSE_NS = 1_000_000;
    private static final int BASE_36 = 36;

    private final Arguments arguments;
    private final String runName = Long.toString(System.currentTimeMillis(), BASE_36).toUpperCase(Locale.ROOT);

    private FixProgram(final Arguments arguments) {
        this.arguments = arguments;
    }

    public static int run(final String[] words) throws Exception {
        final Arguments arguments = new Arguments("run fix [--NAME VALUE ...]")
            .option("side", "both", "which engines run here: both, desk or venue")
            .option("port", "0", "loopback port of the venue, 0 = a free one")
            .option("orders", "5000", "orders and requests that the desk sends")
            .option("window", "50", "orders without an answer before the desk waits")
            .option("seed", "1", "seed of the flow")
            .ring("ring", "farlog-fix-desk.ring", "URI of the desk's ring")
            .ring("venue-ring", "farlog-fix-venue.ring", "URI of the venue's ring")
            .option("size", "256MiB", "size of a ring that is formatted")
            .option("level", "visible", "durability level: visible on tmpfs, persistent on a file or persistent memory")
            .option("drain", "none", "none, or daemon when a daemon drains the desk's ring; then give --history")
            .option("history", "", "directory of the daemon's store, for the desk's stream")
            .option("farlog", "farlog", "the command line program, which reads --history").parse(words);
        final FixProgram program = new FixProgram(arguments);
        switch (arguments.choice("side", Side.class)) {
            case VENUE -> program.serve(arguments.count("port"));
            case DESK -> program.trade(arguments.count("port"));
            default -> program.tradeWithOwnVenue();
        }
        return 0;
    }

    private void tradeWithOwnVenue() throws Exception {
        final int port = arguments.count("port") == 0 ? freePort() : arguments.count("port");
        final Venue application = new Venue(runName + "-");
        try (FixStream stream = venueStream()) {
            final Acceptor venue = FixEngines.venue(application, stream, port);
            venue.start();
            trade(port);
            venue.stop();
            print("venue: %d orders and requests received%n", application.orderCount());
        }
    }

    /** The venue alone, until it is killed. Says when it listens. */
    private void serve(final int port) throws Exception {
        final FixStream stream = venueStream();
        final Acceptor venue = FixEngines.venue(new Venue(runName + "-"), stream, port);
        venue.start();
        printNext("venue", FixEngines.VENUE);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            venue.stop();
            stream.close();
        }));
        Thread.currentThread().join();
    }

    private void trade(final int port) throws Exception {
        final Desk desk = new Desk(arguments.count("seed"), runName + "-", FixEngines.DESK);
        try (FixStream stream = deskStream()) {
            final Initiator initiator = FixEngines.desk(desk, stream, port);
            initiator.start();
            printNext("desk", FixEngines.DESK);
            await("logon", () -> Session.lookupSession(FixEngines.DESK).isLoggedOn());
            final long startNs = System.nanoTime();
            send(desk);
            final double seconds = (System.nanoTime() - startNs) / 1e9;
            printNext("desk", FixEngines.DESK);
            initiator.stop();
            final Histogram ns = desk.answerNs();
            print("desk: %d orders and requests in %.2f s, %d reports, %d trades, last order %s-%d%n",
                arguments.count("orders"), seconds,
                desk.execIds().size(), desk.tradeCount(), runName, arguments.count("orders"));
            print("desk: order to first answer, us: p50 %.0f, p99 %.0f, max %.0f%n", ns.getValueAtPercentile(50) / 1e3,
                ns.getValueAtPercentile(99) / 1e3, ns.getMaxValue() / 1e3);
        }
    }

    private void send(final Desk desk) throws Exception {
        final int window = arguments.count("window");
        for (int i = 0; i < arguments.count("orders"); i++) {
            await("answers", () -> desk.waitingCount() < window);
            if (!desk.send()) {
                throw new IllegalStateException(
                    "order " + (i + 1) + " was not sent: the session is down, or the stream refused it");
            }
        }
        await("the last answers", () -> desk.waitingCount() == 0);
    }

    private FixStream venueStream() throws Exception {
        return new FixStream(formatted("venue-ring", "order-path/venue"), History.none());
    }

    private FixStream deskStream() throws Exception {
        final FarlogStream stream = formatted("ring", "order-path/desk");
        if (arguments.text("history").isEmpty()) {
            return new FixStream(stream, History.none());
        }
        return new FixStream(stream,
            new StoreHistory(Path.of(arguments.text("farlog")), Path.of(arguments.text("history")),
                Ring.inspect(stream.uri()).streamName()));
    }

    private FarlogStream formatted(final String option, final String name) throws Exception {
        print("%s: message store and log in farlog, %s, level %s%n", name.substring(name.indexOf('/') + 1),
            arguments.uri(option), arguments.text("level"));
        return new FarlogStream(arguments.uri(option), arguments.choice("level", Level.class)).formatted(name,
            arguments.bytes("size"));
    }

    private static int freePort() throws Exception {
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return socket.getLocalPort();
        }
    }

    private static void await(final String what, final BooleanSupplier condition) {
        final long startNs = System.nanoTime();
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() - startNs > PATIENCE_NS) {
                throw new IllegalStateException("waited 60 s for " + what);
            }
            LockSupport.parkNanos(PAUSE_NS);
        }
    }

    private static void printNext(final String name, final SessionID id) throws Exception {
        final Session session = Session.lookupSession(id);
        print("%s: next message sent is %d, next received %d%n", name, session.getExpectedSenderNum(),
            session.getExpectedTargetNum());
    }

    private static void print(final String format, final Object... values) {
        System.out.printf(Locale.ROOT, format, values);
        System.out.flush();
    }
}

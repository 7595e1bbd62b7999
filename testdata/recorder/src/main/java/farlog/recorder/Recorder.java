package farlog.recorder;

import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import quickfix.Acceptor;
import quickfix.DefaultMessageFactory;
import quickfix.Initiator;
import quickfix.MemoryStoreFactory;
import quickfix.Session;
import quickfix.SessionID;
import quickfix.SessionSettings;
import quickfix.SocketAcceptor;
import quickfix.ThreadedSocketInitiator;

/** Runs a trading day of two FIX engines on loopback and records it: {@code Recorder file orders seed}. */
public final class Recorder {
    private static final SessionID HOST_44 = new SessionID(Fix.BEGIN_44, "DESK7", "XVEN");
    private static final SessionID HOST_42 = new SessionID(Fix.BEGIN_42, "DESK7", "YVEN");
    private static final int PORT_44 = 19844;
    private static final int PORT_42 = 19842;
    private static final long QUIET_LIMIT_NS = TimeUnit.SECONDS.toNanos(60);

    private Recorder() {
    }

    public static void main(final String[] args) throws Exception {
        if (args.length != 3) {
            System.err.println("usage: Recorder FILE ORDERS SEED");
            System.exit(2);
        }
        final int orderCount = Integer.parseInt(args[1]);
        final long seed = Long.parseLong(args[2]);
        final Venue venue = new Venue(seed);
        final TradingHost host = new TradingHost(seed, List.of(HOST_44, HOST_42));
        try (Recording recording = new Recording(Path.of(args[0]))) {
            final Acceptor acceptor = new SocketAcceptor(venue, new MemoryStoreFactory(), acceptorSettings(), new Silent(),
                    new DefaultMessageFactory());
            final Initiator initiator = new ThreadedSocketInitiator(host, new MemoryStoreFactory(), initiatorSettings(), recording,
                    new DefaultMessageFactory());
            acceptor.start();
            initiator.start();
            await("logon", () -> isLoggedOn(HOST_44) && isLoggedOn(HOST_42));
            venue.open();
            host.trade(orderCount);
            awaitQuiet(venue, host);
            venue.closeDay();
            awaitQuiet(venue, host);
            initiator.stop();
            acceptor.stop();
            venue.stop();
            System.err.println("recorded " + recording.messageCount() + " messages");
        }
    }

    private static boolean isLoggedOn(final SessionID session) {
        return Session.lookupSession(session) != null && Session.lookupSession(session).isLoggedOn();
    }

    /** Quiet: neither side owes the other anything, and it stays so for a while, heartbeats apart. */
    private static void awaitQuiet(final Venue venue, final TradingHost host) {
        for (int i = 0; i < 20; i++) {
            await("an end of all requests", () -> venue.isQuiet() && host.isQuiet());
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(60));
        }
    }

    private static void await(final String what, final BooleanSupplier condition) {
        final long deadlineNs = System.nanoTime() + QUIET_LIMIT_NS;
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > deadlineNs) {
                throw new IllegalStateException("waited 60 s for " + what);
            }
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(1));
        }
    }

    private static SessionSettings initiatorSettings() throws Exception {
        final SessionSettings settings = commonSettings("initiator");
        for (final SessionID session : List.of(HOST_44, HOST_42)) {
            addSession(settings, session);
            settings.setString(session, "SocketConnectHost", "127.0.0.1");
            settings.setLong(session, "SocketConnectPort", port(session));
        }
        return settings;
    }

    private static SessionSettings acceptorSettings() throws Exception {
        final SessionSettings settings = commonSettings("acceptor");
        for (final SessionID host : List.of(HOST_44, HOST_42)) {
            final SessionID session = new SessionID(host.getBeginString(), host.getTargetCompID(), host.getSenderCompID());
            addSession(settings, session);
            settings.setLong(session, "SocketAcceptPort", port(session));
        }
        return settings;
    }

    private static SessionSettings commonSettings(final String connectionType) {
        final SessionSettings settings = new SessionSettings();
        settings.setString("ConnectionType", connectionType);
        settings.setString("StartTime", "00:00:00");
        settings.setString("EndTime", "00:00:00");
        settings.setString("HeartBtInt", "2");
        settings.setString("ReconnectInterval", "1");
        settings.setString("SocketTcpNoDelay", "Y");
        settings.setString("TimeStampPrecision", "MICROS");
        settings.setString("UseDataDictionary", "Y");
        return settings;
    }

    private static void addSession(final SessionSettings settings, final SessionID session) {
        settings.setString(session, "BeginString", session.getBeginString());
        settings.setString(session, "SenderCompID", session.getSenderCompID());
        settings.setString(session, "TargetCompID", session.getTargetCompID());
        settings.setString(session, "DataDictionary", session.getBeginString().replace(".", "") + ".xml");
    }

    private static int port(final SessionID session) {
        return Fix.is42(session) ? PORT_42 : PORT_44;
    }
}

package io.github.farlog.orderpath.fix;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.farlog.client.Level;
import io.github.farlog.orderpath.record.FarlogStream;
import io.github.farlog.orderpath.testkit.Child;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.quickfixj.CharsetSupport;
import quickfix.Initiator;
import quickfix.Session;

/**
 * A venue in a process of its own is killed and started again on its stream, and the desk asks it for everything from
 * the second message on. It must log on with the next sequence number, and send again each report that the desk had
 * received, in their order.
 */
final class FixRestartTest {
    private static final int ORDER_COUNT = 60;
    private static final long PATIENCE_MS = 20_000;

    @TempDir
    Path folder;
    private final Path deskRing = Path.of("/dev/shm", "order-path-desk-" + ProcessHandle.current().pid());
    private final Path venueRing = Path.of("/dev/shm", "order-path-venue-" + ProcessHandle.current().pid());
    private int port;

    @BeforeEach
    void choosePort() throws Exception {
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            port = socket.getLocalPort();
        }
    }

    @AfterEach
    void deleteRings() throws Exception {
        Files.deleteIfExists(deskRing);
        Files.deleteIfExists(venueRing);
    }

    @Test
    void shouldResendEveryReportWhenTheVenueWasKilledAndStartedAgain() throws Exception {
        final Desk desk = new Desk(1, "T1-", FixEngines.DESK);
        final List<String> reports;
        Process venue = startVenue();
        try (FixStream stream = new FixStream(
            new FarlogStream("mem:" + deskRing, Level.VISIBLE).formatted("test/desk", 8 << 20), History.none())) {
            final Initiator initiator = FixEngines.desk(desk, stream, port);
            initiator.start();
            trade(desk);
            reports = desk.execIds();
            final int nextFromVenue = Session.lookupSession(FixEngines.DESK).getExpectedTargetNum();
            venue.destroyForcibly().waitFor();
            await("the loss of the connection", () -> !Session.lookupSession(FixEngines.DESK).isLoggedOn());
            // So the desk requests everything after the first logon.
            Session.lookupSession(FixEngines.DESK).setNextTargetMsgSeqNum(2);
            venue = startVenue();
            await("the last report again", () -> desk.resentExecIds().size() >= reports.size());
            assertEquals(reports, desk.resentExecIds());
            trade(desk);
            assertTrue(Session.lookupSession(FixEngines.DESK).getExpectedTargetNum() > nextFromVenue,
                "the venue counts on");
            initiator.stop();
        } finally {
            venue.destroyForcibly().waitFor();
        }
        checkVenueStream(reports.size());
    }

    @Test
    void shouldKeepSequenceNumbersAndForgetMessagesWhenTheStoreIsReset() throws Exception {
        final FarlogStream place = new FarlogStream("mem:" + deskRing, Level.VISIBLE).formatted("test/desk", 8 << 20);
        try (FixStream stream = new FixStream(place, History.none())) {
            final FarlogMessageStore store = (FarlogMessageStore) stream.create(FixEngines.DESK);
            store.set(1, message(1));
            store.incrNextSenderMsgSeqNum();
            store.setNextTargetMsgSeqNum(7);
        }
        try (FixStream stream = new FixStream(place, History.none())) {
            final FarlogMessageStore store = (FarlogMessageStore) stream.create(FixEngines.DESK);
            assertEquals(2, store.getNextSenderMsgSeqNum());
            assertEquals(7, store.getNextTargetMsgSeqNum());
            assertEquals(List.of(message(1)), messages(store));
            store.reset();
            assertEquals(List.of(), messages(store));
        }
        try (FixStream stream = new FixStream(place, History.none())) {
            final FarlogMessageStore store = (FarlogMessageStore) stream.create(FixEngines.DESK);
            assertEquals(1, store.getNextSenderMsgSeqNum());
            assertEquals(1, store.getNextTargetMsgSeqNum());
            assertEquals(List.of(), messages(store));
        }
    }

    @Test
    void shouldKeepTheBytesOfTheCharsetThatTheEngineSpeaks() throws Exception {
        final FarlogStream place = new FarlogStream("mem:" + deskRing, Level.VISIBLE).formatted("test/desk", 8 << 20);
        final String text = message(1).replace("10=000", "58=Z\u00fcrich \u6771\u4eac" + (char) 1 + "10=000");
        CharsetSupport.setCharset("UTF-8");
        try {
            try (FixStream stream = new FixStream(place, History.none())) {
                ((FarlogMessageStore) stream.create(FixEngines.DESK)).set(1, text);
            }
            try (FixStream stream = new FixStream(place, History.none())) {
                assertEquals(List.of(text), messages((FarlogMessageStore) stream.create(FixEngines.DESK)));
            }
        } finally {
            CharsetSupport.setCharset(CharsetSupport.getDefaultCharset());
        }
    }

    private void trade(final Desk desk) throws Exception {
        await("logon", () -> Session.lookupSession(FixEngines.DESK).isLoggedOn());
        for (int i = 0; i < ORDER_COUNT; i++) {
            assertTrue(desk.send(), "order " + i + " is sent");
        }
        await("answers", () -> desk.waitingCount() == 0);
    }

    /** The venue's stream alone, read once more: it has every report for resending, and counts on where it was. */
    private void checkVenueStream(final int reportCount) throws Exception {
        try (FixStream stream = new FixStream(new FarlogStream("mem:" + venueRing, Level.VISIBLE), History.none())) {
            final FarlogMessageStore store = (FarlogMessageStore) stream.create(FixEngines.VENUE);
            final List<String> stored = messages(store);
            assertEquals(store.getNextSenderMsgSeqNum() - 1, stored.size(), "each number has its message");
            assertTrue(
                stored.stream().filter(message -> !FixFields.valueOf(message, 17).isEmpty()).count() > reportCount);
        }
    }

    private static List<String> messages(final FarlogMessageStore store) {
        final List<String> messages = new java.util.ArrayList<>();
        store.get(1, Integer.MAX_VALUE, messages);
        return messages;
    }

    private static String message(final int sequence) {
        return "8=FIX.4.4|9=5|35=0|34=".replace('|', (char) 1) + sequence
            + "|49=DESK7|56=XVEN|10=000|".replace('|', (char) 1);
    }

    private Process startVenue() throws Exception {
        return Child.start(folder.resolve("venue.log"), "fix", "--side", "venue", "--port", Integer.toString(port),
            "--venue-ring",
            "mem:" + venueRing, "--size", "8MiB");
    }

    private static void await(final String what, final BooleanSupplier condition) throws InterruptedException {
        for (long waited = 0; !condition.getAsBoolean(); waited += 5) {
            assertTrue(waited < PATIENCE_MS, "waited " + PATIENCE_MS + " ms for " + what);
            Thread.sleep(5);
        }
    }
}

package io.github.farlog.orderpath.fix;

import io.github.farlog.client.Batch;
import io.github.farlog.client.FarlogException;
import io.github.farlog.client.Reader;
import io.github.farlog.client.ReaderOptions;
import io.github.farlog.client.Result;
import io.github.farlog.client.SharedWriter;
import io.github.farlog.orderpath.record.Acknowledged;
import io.github.farlog.orderpath.record.FarlogStream;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import quickfix.LogFactory;
import quickfix.MessageStore;
import quickfix.MessageStoreFactory;
import quickfix.SessionID;

/**
 * One FIX engine's stream: message store and log of all its sessions. Opening it applies what the stream holds, so that
 * sessions go on with the sequence numbers that they had, however the engine ended. Any thread.
 */
public final class FixStream implements MessageStoreFactory, AutoCloseable {
    private static final int RECOVER_TRIES = 20;
    private static final long RECOVER_PAUSE_NS = 100_000_000;

    private final SharedWriter writer;
    private final Map<String, SessionState> states = new HashMap<>();
    private final Map<String, FarlogMessageStore> stores = new HashMap<>();
    private final ThreadLocal<Acknowledged> appender;

    /**
     * Opens the stream and recovers its sessions.
     *
     * @param history what was drained from the ring and is in the store
     * @throws IllegalStateException when records were drained and the history lacks them: sequence numbers would begin
     * again unseen
     */
    public FixStream(final FarlogStream stream, final History history) throws FarlogException {
        writer = SharedWriter.open(stream.uri(), stream.writerOptions("fix"));
        try {
            appender = ThreadLocal.withInitial(() -> new Acknowledged(writer));
            recover(stream.uri(), history);
        } catch (final FarlogException | RuntimeException e) {
            writer.close();
            throw e;
        }
    }

    @Override
    public MessageStore create(final SessionID session) {
        return storeOf(SessionState.keyOf(session));
    }

    /** The logs of the sessions whose stores this makes. */
    public LogFactory logs() {
        return session -> {
            final String key = SessionState.keyOf(session);
            return new FarlogLog(this, key, storeOf(key));
        };
    }

    /** Refuses further records; the engine must have stopped. */
    @Override
    public void close() {
        writer.close();
    }

    /** Records; when this returns, the record is at the stream's level. Throws NotRecordedException otherwise. */
    void append(final int recordClass, final String key, final String payload) {
        final byte[] bytes = FixBytes.of(payload);
        final byte[] keyBytes = FixBytes.of(key);
        appender.get().append(bytes, 0, bytes.length, recordClass, keyBytes, 0, keyBytes.length);
    }

    private synchronized FarlogMessageStore storeOf(final String session) {
        return stores.computeIfAbsent(session, key -> new FarlogMessageStore(this, key, stateOf(key)));
    }

    private SessionState stateOf(final String session) {
        return states.computeIfAbsent(session, key -> new SessionState());
    }

    private void apply(final int recordClass, final String key, final String payload) {
        if (recordClass == FixClass.STATE) {
            stateOf(key).apply(payload);
        } else if (FixClass.isStored(recordClass)) {
            stateOf(SessionState.senderOf(payload)).keep(Integer.parseInt(FixFields.valueOf(payload, 34)), payload);
        }
    }

    /**
     * Applies all records from the stream's first to the writer's last. While a daemon drains, records may move from
     * the ring to the store between the two looks: then they are looked at again.
     */
    private void recover(final String uri, final History history) throws FarlogException {
        final long wantedSeq = writer.cursors().nextSeq();
        long foundSeq = 0;
        for (int i = 0; i < RECOVER_TRIES && foundSeq != wantedSeq; i++) {
            LockSupport.parkNanos(i == 0 ? 0 : RECOVER_PAUSE_NS);
            states.clear();
            foundSeq = replayRing(uri, history.replay(this::apply));
        }
        if (foundSeq != wantedSeq) {
            throw new IllegalStateException(
                "stream " + uri + " has " + wantedSeq + " records, found were the first " + foundSeq
                    + ": what a daemon drained is in its store, to be given with --history DIR");
        }
    }

    /**
     * The ring from its head on, without what was found already. Returns the number up to which no record is missing.
     */
    private long replayRing(final String uri, final long fromSeq) throws FarlogException {
        final Batch batch = new Batch();
        long nextSeq = fromSeq;
        try (Reader reader = Reader.open(uri, ReaderOptions.defaults())) {
            Result result = reader.read(batch);
            while (result == Result.OK) {
                while (batch.next() && batch.seq() <= nextSeq) {
                    if (batch.seq() == nextSeq) {
                        nextSeq++;
                        applyRecord(batch);
                    }
                }
                result = reader.read(batch);
            }
            if (result != Result.NOT_YET && result != Result.OVERRUN) {
                throw new IllegalStateException("read " + uri + ": " + result + ", " + result.text());
            }
        }
        return nextSeq;
    }

    private void applyRecord(final Batch batch) {
        if (batch.flags() == 0) { // the others are farlog's own
            apply(batch.classId(), textOf(batch.key()), textOf(batch.payload()));
        }
    }

    private static String textOf(final MemorySegment bytes) {
        return FixBytes.text(bytes.toArray(ValueLayout.JAVA_BYTE));
    }
}

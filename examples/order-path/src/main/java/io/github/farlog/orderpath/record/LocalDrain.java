package io.github.farlog.orderpath.record;

import io.github.farlog.client.Batch;
import io.github.farlog.client.FarlogException;
import io.github.farlog.client.Reader;
import io.github.farlog.client.ReaderOptions;
import io.github.farlog.client.Result;
import java.util.concurrent.locks.LockSupport;

/**
 * What stands in for {@code farlogd drain} where no daemon runs: a thread that reads the ring, checks that no record is
 * missing, counts, and frees the space. It keeps nothing: a ring alone holds only what was recorded last. One thread of
 * its own; the results are to be read after {@link #close}.
 */
public final class LocalDrain implements AutoCloseable {
    private static final long PAUSE_NS = 1_000_000;

    private final Reader reader;
    private final Thread thread;
    private volatile boolean isStopping;
    private volatile String failure = "";
    private long recordCount;
    private long nextSeq = -1;

    /** Fails when another drain has the ring: then that one is to be left to it. */
    public LocalDrain(final String uri) throws FarlogException {
        reader = Reader.open(uri, ReaderOptions.defaults().withDraining());
        thread = Thread.ofPlatform().daemon().name("local-drain").start(this::drain);
    }

    /** Drains what is there and stops. Blocks until then. */
    @Override
    public void close() {
        isStopping = true;
        try {
            thread.join();
        } catch (final InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        reader.close();
    }

    /** The application's records that were drained. */
    public long recordCount() {
        return recordCount;
    }

    /** What was wrong in the stream; empty = nothing. */
    public String failure() {
        return failure;
    }

    /** Throws what was wrong in the stream, if anything was. After {@link #close}. */
    public void throwFailure() {
        if (!failure.isEmpty()) {
            throw new IllegalStateException("drain stopped: " + failure);
        }
    }

    private void drain() {
        final Batch batch = new Batch(1 << 20);
        while (failure.isEmpty()) {
            final boolean isLastLook = isStopping; // read first: what was appended before it was set is drained
            final Result result = reader.read(batch);
            if (result == Result.OK) {
                check(batch);
                release(batch);
            } else if (result != Result.NOT_YET) {
                failure = "read ring: " + result + ", " + result.text();
            } else if (isLastLook) {
                return;
            } else {
                LockSupport.parkNanos(PAUSE_NS);
            }
        }
    }

    private void check(final Batch batch) {
        while (batch.next()) {
            if (nextSeq >= 0 && batch.seq() != nextSeq) {
                failure = "record " + nextSeq + " is missing: lsn " + batch.lsn() + " has " + batch.seq();
            }
            nextSeq = batch.seq() + 1;
            recordCount += batch.flags() == 0 ? 1 : 0;
        }
    }

    private void release(final Batch batch) {
        final Result result = reader.release(batch);
        if (result != Result.OK) {
            failure = "release ring up to " + batch.nextLsn() + ": " + result + ", " + result.text();
        }
    }
}

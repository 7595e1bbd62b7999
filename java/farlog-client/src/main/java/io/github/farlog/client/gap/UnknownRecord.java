package io.github.farlog.client.gap;

import io.github.farlog.client.Position;
import io.github.farlog.client.RecordSink;
import io.github.farlog.client.Result;

/** A record whose append returned UNKNOWN, and its writer. For one thread at a time. */
public final class UnknownRecord {
    private final Position asked = new Position();
    private RecordSink writer;

    /** Makes one without a record. */
    public UnknownRecord() {
    }

    /**
     * Remembers an append that returned UNKNOWN.
     *
     * @param used the writer of the record
     * @param position that came with UNKNOWN
     */
    public void set(final RecordSink used, final Position position) {
        writer = used;
        asked.set(position);
    }

    /**
     * Finds out whether the record was written. Blocks up to the deadline.
     *
     * @param deadlineNanos from now; 0 = the writer's default
     * @return OK: this record is at the writer's level. UNKNOWN: still not known. NOT_FOUND: it was not written, or the
     * writer is closed and cannot find out any more
     */
    public Result resolve(final long deadlineNanos) {
        final Result result = writer.resolve(asked, deadlineNanos);
        return result == Result.OK || result == Result.UNKNOWN ? result : Result.NOT_FOUND;
    }
}

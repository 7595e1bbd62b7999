package io.github.farlog.client.gap;

import io.github.farlog.client.Position;
import io.github.farlog.client.RecordSink;
import io.github.farlog.client.Result;

/** A record whose acknowledgement did not come, and the writer that was given it. For one thread at a time. */
public final class Doubt {
    private final Position asked = new Position();
    private RecordSink writer;

    /** About nothing yet. */
    public Doubt() {
    }

    /**
     * Notes an append that was UNKNOWN.
     *
     * @param used was given the record
     * @param position that came with it
     */
    public void note(final RecordSink used, final Position position) {
        writer = used;
        asked.set(position);
    }

    /**
     * Asks the writer what became of it. Blocks up to the deadline.
     *
     * @param deadlineNanos from now; 0 = the writer's default
     * @return OK: this very record is at the writer's level. UNKNOWN: it is not known yet. NOT_FOUND: it is not there,
     * or the writer is closed and cannot tell any more
     */
    public Result resolve(final long deadlineNanos) {
        final Result result = writer.resolve(asked, deadlineNanos);
        return result == Result.OK || result == Result.UNKNOWN ? result : Result.NOT_FOUND;
    }
}

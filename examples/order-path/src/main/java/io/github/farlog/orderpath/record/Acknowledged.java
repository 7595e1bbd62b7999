package io.github.farlog.orderpath.record;

import io.github.farlog.client.Position;
import io.github.farlog.client.Result;
import io.github.farlog.client.SharedWriter;
import io.github.farlog.client.Writer;

/**
 * Appends until it is known what became of the record: OK returns, everything else is settled or thrown. This is the
 * whole of what a program has to do about farlog's results. Each object belongs to one thread; several may be on one
 * shared writer.
 */
public final class Acknowledged {
    private static final long DEFAULT_DEADLINE = 0;
    private static final int TRY_COUNT = 3;

    private final Append append;
    private final Resolve resolve;
    private final Position position = new Position();

    private interface Append {
        Result append(byte[] data, int off, int len, int classId, byte[] key, int keyOff, int keyLen,
            long deadlineNanos, Position out);
    }

    private interface Resolve {
        Result resolve(long lsn, long deadlineNanos, Position out);
    }

    public Acknowledged(final Writer writer) {
        append = writer::append;
        resolve = writer::resolve;
    }

    public Acknowledged(final SharedWriter writer) {
        append = writer::append;
        resolve = writer::resolve;
    }

    /**
     * Appends a record; when it returns, the record is at the writer's level.
     *
     * @throws NotRecordedException FULL: nobody drains; FENCED: somebody else writes now; UNKNOWN three times: the
     * region has failed
     */
    public Position append(final byte[] data, final int off, final int len, final int classId, final byte[] key,
        final int keyOff,
        final int keyLen) {
        Result result = Result.UNKNOWN;
        for (int i = 0; i < TRY_COUNT; i++) {
            result = append.append(data, off, len, classId, key, keyOff, keyLen, DEFAULT_DEADLINE, position);
            if (result == Result.UNKNOWN) {
                result = settle();
            }
            if (result == Result.OK) {
                return position;
            }
            if (result != Result.NOT_FOUND) {
                break;
            }
        }
        throw new NotRecordedException("append " + len + " bytes: " + result + ", " + result.text());
    }

    /** OK: it is there after all. NOT_FOUND: it is not, and never will be; it may be appended again. */
    private Result settle() {
        final long lsn = position.lsn();
        Result result = Result.UNKNOWN;
        for (int i = 0; i < TRY_COUNT && result == Result.UNKNOWN; i++) {
            result = resolve.resolve(lsn, DEFAULT_DEADLINE, position);
        }
        return result;
    }
}

package io.github.farlog.client;

/**
 * What an acknowledgement says. Made once by the caller and filled by each call, so that appending allocates nothing.
 *
 * <p>Belongs to one thread at a time. Its values are those of the last call that was given it.
 */
public final class Position {
    private long lsn;
    private long endLsn;
    private long seq;
    private int epoch;
    private int level;
    private int copies;
    /** What a route says of the record. Null until this was given to one. */
    private RoutePosition route;

    /** A position of nothing: all zero. */
    public Position() {
    }

    /**
     * Where the record begins. Set also with {@link Result#UNKNOWN}: ask {@code resolve} about it.
     *
     * @return byte position in the stream
     */
    public long lsn() {
        return lsn;
    }

    /**
     * Where the record ends: it is durable when the writer's durable position has reached this.
     *
     * @return byte position in the stream
     */
    public long endLsn() {
        return endLsn;
    }

    /**
     * The record's number in the stream.
     *
     * @return from 0
     */
    public long seq() {
        return seq;
    }

    /**
     * The writer's epoch; with {@link Result#FENCED} the epoch that fenced.
     *
     * @return from 1; 0 = none
     */
    public int epoch() {
        return epoch;
    }

    /**
     * The level that the record has reached.
     *
     * @return null when it was not written
     */
    public Level level() {
        return Level.of(level);
    }

    /**
     * On how many regions it is at that level: of a stream with members, how many of them hold it.
     *
     * @return count; 1 of a ring by itself
     */
    public int copies() {
        return copies;
    }

    /**
     * Takes over what another one says, so that it can be asked about when that is filled again.
     *
     * @param other stays as it is
     */
    public void set(final Position other) {
        set(other.lsn, other.seq, other.epoch, other.level, other.copies, other.endLsn);
        if (other.route != null) {
            inRoute().set(other.route);
        }
    }

    /** Made once. */
    RoutePosition inRoute() {
        if (route == null) {
            route = new RoutePosition();
        }
        return route;
    }

    /** Sets all fields. */
    void set(final long newLsn, final long newSeq, final int newEpoch, final int newLevel, final int newCopies,
        final long newEndLsn) {
        lsn = newLsn;
        seq = newSeq;
        epoch = newEpoch;
        level = newLevel;
        copies = newCopies;
        endLsn = newEndLsn;
    }

    /** About which record to ask. */
    void ask(final long ofLsn, final int ofEpoch) {
        set(ofLsn, 0, ofEpoch, 0, 0, 0);
    }

    /** Sets all fields to 0. */
    void clear() {
        set(0, 0, 0, 0, 0, 0);
    }

    @Override
    public String toString() {
        return "lsn " + lsn + " seq " + seq + " epoch " + epoch + " level " + level() + " end " + endLsn;
    }
}

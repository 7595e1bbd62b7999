package io.github.farlog.orderpath.fix;

import io.github.farlog.orderpath.record.RecordClass;

/**
 * The classes of a FIX engine's records: those of {@link RecordClass} for messages that the store keeps for resending,
 * with a bit added for those that are only logged; and the engine's own.
 */
final class FixClass {
    /** Added to the class of a message that was received. */
    static final int RECEIVED = 16;
    /** Added to the class of a message that was sent and is not the store's: one that is sent again, or fills a gap. */
    static final int SENT_AGAIN = 32;
    /** A session's sequence numbers, as {@link SessionState} writes them. */
    static final int STATE = 64;
    static final int EVENT = 65;
    static final int ERROR_EVENT = 66;

    private FixClass() {
    }

    static boolean isStored(final int recordClass) {
        return recordClass >= RecordClass.SESSION && recordClass <= RecordClass.OTHER;
    }
}

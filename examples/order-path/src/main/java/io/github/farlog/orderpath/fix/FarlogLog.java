package io.github.farlog.orderpath.fix;

import io.github.farlog.orderpath.record.NotRecordedException;
import io.github.farlog.orderpath.record.RecordClass;
import quickfix.Log;

/**
 * A session's log in the same stream as its store. A received message is recorded before the engine looks at it; if
 * that fails the engine never sees it. A message that the store has just recorded is not recorded twice. Any thread.
 */
final class FarlogLog implements Log {
    private final FixStream stream;
    private final String session;
    private final FarlogMessageStore store;

    FarlogLog(final FixStream stream, final String session, final FarlogMessageStore store) {
        this.stream = stream;
        this.session = session;
        this.store = store;
    }

    @Override
    public void onIncoming(final String message) {
        record(message, FixClass.RECEIVED);
    }

    @Override
    public void onOutgoing(final String message) {
        if (!store.isStored(message)) {
            record(message, FixClass.SENT_AGAIN);
        }
    }

    @Override
    public void onEvent(final String text) {
        tell(FixClass.EVENT, text);
    }

    @Override
    public void onErrorEvent(final String text) {
        tell(FixClass.ERROR_EVENT, text);
    }

    @Override
    public void clear() {
        // A stream is only ever appended to.
    }

    private void record(final String message, final int direction) {
        final int recordClass = RecordClass.ofMsgType(FixFields.valueOf(message, 35)) + direction;
        stream.append(recordClass, FixFields.valueOf(message, 11), message);
    }

    /** What the engine says about itself must not stop it; it is often how it says that it cannot record. */
    private void tell(final int recordClass, final String text) {
        try {
            stream.append(recordClass, session, text);
        } catch (final NotRecordedException e) {
            System.err.println(session + ": " + text + " (not recorded: " + e.getMessage() + ")");
        }
    }
}

package farlog.recorder;

import quickfix.Log;
import quickfix.LogFactory;
import quickfix.SessionID;

/** The acceptor's log: the recording is what the initiator saw, so only the acceptor's errors are of interest. */
final class Silent implements Log, LogFactory {
    @Override
    public Log create(final SessionID session) {
        return this;
    }

    @Override
    public void onErrorEvent(final String text) {
        System.err.println("venue engine: " + text);
    }

    @Override
    public void onIncoming(final String message) {
        // Recorded by the other side as outgoing.
    }

    @Override
    public void onOutgoing(final String message) {
        // Recorded by the other side as incoming.
    }

    @Override
    public void onEvent(final String text) {
        // Not a FIX message.
    }

    @Override
    public void clear() {
        // Nothing is kept.
    }
}

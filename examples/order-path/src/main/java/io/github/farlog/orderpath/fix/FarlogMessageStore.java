package io.github.farlog.orderpath.fix;

import io.github.farlog.orderpath.record.NotRecordedException;
import io.github.farlog.orderpath.record.RecordClass;
import java.io.IOException;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Collection;
import java.util.Date;
import quickfix.MessageStore;

/**
 * A session's message store whose every change is a record of the stream before it counts: QuickFIX/J sends a message
 * only when {@link #set} has returned. A change that cannot be recorded is an {@link IOException}, upon which
 * QuickFIX/J does not send. Messages for resending are held in memory too, as in its own cached store. Any thread.
 */
final class FarlogMessageStore implements MessageStore {
    private final FixStream stream;
    private final String session;
    private final SessionState state;
    private String lastStored = "";

    FarlogMessageStore(final FixStream stream, final String session, final SessionState state) {
        this.stream = stream;
        this.session = session;
        this.state = state;
    }

    /** Whether this is the message that was stored last: then it need not be logged once more. */
    synchronized boolean isStored(final String message) {
        return lastStored.equals(message);
    }

    @Override
    public synchronized boolean set(final int sequence, final String message) throws IOException {
        final String clOrdId = FixFields.valueOf(message, 11);
        record(RecordClass.ofMsgType(FixFields.valueOf(message, 35)), clOrdId, message);
        lastStored = message;
        state.keep(sequence, message);
        return true;
    }

    @Override
    public synchronized void get(final int startSequence, final int endSequence, final Collection<String> messages) {
        if (startSequence <= endSequence) {
            messages.addAll(state.messages().subMap(startSequence, true, endSequence, true).values());
        }
    }

    @Override
    public synchronized int getNextSenderMsgSeqNum() {
        return state.nextSender();
    }

    @Override
    public synchronized int getNextTargetMsgSeqNum() {
        return state.nextTarget();
    }

    @Override
    public synchronized void setNextSenderMsgSeqNum(final int next) throws IOException {
        change(next, state.nextTarget(), state.created());
    }

    @Override
    public synchronized void setNextTargetMsgSeqNum(final int next) throws IOException {
        change(state.nextSender(), next, state.created());
    }

    @Override
    public synchronized void incrNextSenderMsgSeqNum() throws IOException {
        setNextSenderMsgSeqNum(state.nextSender() + 1);
    }

    @Override
    public synchronized void incrNextTargetMsgSeqNum() throws IOException {
        setNextTargetMsgSeqNum(state.nextTarget() + 1);
    }

    @Override
    public synchronized Date getCreationTime() {
        return Date.from(state.created());
    }

    /** What was recorded stays recorded; the session counts from 1 again, from now. */
    @Override
    public synchronized void reset() throws IOException {
        final Instant now = Instant.now().truncatedTo(ChronoUnit.MILLIS);
        // A later creation time is what shows the reset.
        change(1, 1, now.isAfter(state.created()) ? now : state.created().plusMillis(1));
    }

    @Override
    public void refresh() {
        // A stream has one writer: what is in memory is what is in the stream.
    }

    private void change(final int nextSender, final int nextTarget, final Instant created) throws IOException {
        final String text = SessionState.write(nextSender, nextTarget, created);
        record(FixClass.STATE, session, text);
        state.apply(text);
    }

    private void record(final int recordClass, final String key, final String payload) throws IOException {
        try {
            stream.append(recordClass, key, payload);
        } catch (final NotRecordedException e) {
            throw new IOException("session " + session + ": " + e.getMessage(), e);
        }
    }
}

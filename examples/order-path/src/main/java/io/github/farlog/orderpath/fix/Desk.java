package io.github.farlog.orderpath.fix;

import io.github.farlog.orderpath.book.Command;
import io.github.farlog.orderpath.load.OrderFlow;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.HdrHistogram.Histogram;
import quickfix.ApplicationAdapter;
import quickfix.FieldNotFound;
import quickfix.Message;
import quickfix.Session;
import quickfix.SessionID;
import quickfix.SessionNotFound;

/**
 * The initiator's application: a desk that sends the order flow and keeps what it is told. {@link #send} is for one
 * thread; what is received comes on another.
 */
final class Desk extends ApplicationAdapter {
    private static final int DIGITS = 3;

    private final OrderFlow flow;
    private final String idPrefix;
    private final SessionID session;
    private final Histogram answerNs = new Histogram(DIGITS);
    private final Map<String, Long> sentNs = new HashMap<>();
    private final List<String> execIds = new ArrayList<>();
    private final List<String> resentExecIds = new ArrayList<>();
    private long tradeCount;

    Desk(final long seed, final String idPrefix, final SessionID session) {
        this.flow = new OrderFlow(seed);
        this.idPrefix = idPrefix;
        this.session = session;
    }

    /**
     * Sends the next order or request of the flow. False: the session is not logged on, or it could not be recorded.
     */
    boolean send() throws SessionNotFound {
        final Command command = new Command();
        flow.next(command);
        final Message message = Wire.order(command, idPrefix);
        synchronized (this) {
            sentNs.put(idPrefix + command.id, System.nanoTime());
        }
        return Session.sendToTarget(message, session);
    }

    @Override
    public synchronized void fromApp(final Message message, final SessionID from) throws FieldNotFound {
        final Long sent = sentNs.remove(message.getString(11));
        if (sent != null) {
            answerNs.recordValue(System.nanoTime() - sent);
        }
        if (!message.isSetField(17)) {
            return;
        }
        if (message.getHeader().isSetField(43) && message.getHeader().getBoolean(43)) {
            resentExecIds.add(message.getString(17));
        } else {
            execIds.add(message.getString(17));
            tradeCount += "F".equals(message.getString(150)) ? 1 : 0;
        }
    }

    /** Orders and requests that have no answer yet. */
    synchronized int waitingCount() {
        return sentNs.size();
    }

    synchronized long tradeCount() {
        return tradeCount;
    }

    /** From sending until the first answer: both engines, both streams, both ways. */
    synchronized Histogram answerNs() {
        return answerNs.copy();
    }

    /** ExecIDs of the reports that were received, in their order. */
    synchronized List<String> execIds() {
        return List.copyOf(execIds);
    }

    /** ExecIDs of the reports that were received once more, in their order. */
    synchronized List<String> resentExecIds() {
        return List.copyOf(resentExecIds);
    }
}

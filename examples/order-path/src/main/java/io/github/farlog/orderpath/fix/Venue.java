package io.github.farlog.orderpath.fix;

import io.github.farlog.orderpath.book.Command;
import io.github.farlog.orderpath.book.OrderBook;
import io.github.farlog.orderpath.load.OrderFlow;
import java.util.HashMap;
import java.util.Map;
import quickfix.ApplicationAdapter;
import quickfix.FieldNotFound;
import quickfix.Message;
import quickfix.Session;
import quickfix.SessionID;
import quickfix.SessionNotFound;

/**
 * The acceptor's application: the order book behind a FIX session. An order that arrives is in the venue's stream
 * already, its log being there; a report is in it before it is sent, its store being there. Its book is empty after a
 * restart: what it owes after that is told by resending. Called by one thread of the engine at a time.
 */
final class Venue extends ApplicationAdapter {
    private final OrderBook book = new OrderBook(2 * OrderFlow.QUOTE_COUNT_MAX, OrderFlow.PRICE_MAX);
    private final Map<String, Long> idsByClOrdId = new HashMap<>();
    private final Map<Long, String> clOrdIds = new HashMap<>();
    private final String idPrefix;
    private final Command command = new Command();
    private long lastId;

    Venue(final String idPrefix) {
        this.idPrefix = idPrefix;
    }

    @Override
    public synchronized void fromApp(final Message message, final SessionID session) throws FieldNotFound {
        final long id = ++lastId;
        final String clOrdId = message.getString(11);
        clOrdIds.put(id, clOrdId);
        Wire.read(message, command);
        command.id = id;
        if (command.kind == Command.CANCEL) {
            final String origId = message.getString(41);
            command.cancel(id, idsByClOrdId.getOrDefault(origId, Long.MAX_VALUE));
            book.apply(command, report -> send(Wire.report(report, clOrdId, origId, idPrefix), session));
            return;
        }
        idsByClOrdId.put(clOrdId, id);
        book.apply(command, report -> send(Wire.report(report, clOrdIds.get(report.orderId), "", idPrefix), session));
    }

    private static void send(final Message message, final SessionID session) {
        try {
            Session.sendToTarget(message, session);
        } catch (final SessionNotFound e) {
            throw new IllegalStateException("send on session " + session + ": no such session", e);
        }
    }

    /** Orders and requests that came in. */
    synchronized long orderCount() {
        return lastId;
    }
}

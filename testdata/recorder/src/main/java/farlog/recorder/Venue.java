package farlog.recorder;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import quickfix.ApplicationAdapter;
import quickfix.FieldNotFound;
import quickfix.Group;
import quickfix.Message;
import quickfix.SessionID;

/**
 * The acceptor's application: a venue that checks, acknowledges, fills, stops, suspends, busts, cancels, replaces and expires
 * orders. One thread owns all state. What it decides for an order is drawn from a generator seeded by the order's id, so
 * that a seed gives the same decisions whatever the timing; which fills cross which requests is left to the run, as in life.
 */
final class Venue extends ApplicationAdapter {
    private static final long QUANTITY_MAX = 1_000_000;
    private static final int HALT_EVERY_MS = 60;
    private static final int HALT_MS = 15;

    private final ScheduledExecutorService thread = Executors.newSingleThreadScheduledExecutor();
    private final AtomicInteger outstanding = new AtomicInteger();
    private final Market market = new Market();
    private final Map<String, VenueOrder> orders = new HashMap<>();
    private final Map<String, VenueOrder> book = new LinkedHashMap<>();
    private final Map<String, List<VenueOrder>> lists = new HashMap<>();
    private final long seed;
    private final Random halts;
    private int orderCount;

    Venue(final long seed) {
        this.seed = seed;
        this.halts = new Random(seed ^ 0x48414c54);
    }

    void open() {
        thread.scheduleAtFixedRate(this::haltSomeSymbol, HALT_EVERY_MS, HALT_EVERY_MS, TimeUnit.MILLISECONDS);
    }

    /** Nothing that the venue has decided to do is still to be done. */
    boolean isQuiet() {
        return outstanding.get() == 0;
    }

    /** The end of the trading day: what still rests is expired or done for the day, and some results are calculated. */
    void closeDay() {
        after(0, () -> List.copyOf(book.values()).forEach(this::closeOrder));
    }

    void stop() {
        thread.shutdownNow();
    }

    @Override
    public void fromApp(final Message message, final SessionID session) {
        after(0, () -> {
            try {
                receive(message, session);
            } catch (final FieldNotFound e) {
                throw new IllegalStateException("venue: message without tag " + e.field + ": " + message, e);
            }
        });
    }

    private void receive(final Message message, final SessionID session) throws FieldNotFound {
        switch (message.getHeader().getString(35)) {
            case "D" -> acceptOrder(newOrder(message, session));
            case "E" -> acceptList(message, session);
            case "L" -> executeList(message.getString(Fix.LIST_ID), session);
            case "F" -> cancel(message);
            case "G" -> replace(message);
            case "H" -> Reports.sendStatus(orders.get(message.getString(Fix.CL_ORD_ID)));
            default -> throw new IllegalStateException("venue: unexpected message " + message);
        }
    }

    // ---- new orders

    private VenueOrder newOrder(final quickfix.FieldMap fields, final SessionID session) throws FieldNotFound {
        final String clOrdId = fields.getString(Fix.CL_ORD_ID);
        final String prefix = Fix.is42(session) ? "Y" : "X";
        final VenueOrder order = new VenueOrder(session, prefix + (++orderCount + 100_000),
                new Random(seed * 31 + clOrdId.hashCode()));
        order.clOrdId = clOrdId;
        order.account = fields.getString(Fix.ACCOUNT);
        order.symbol = fields.getString(Fix.SYMBOL);
        order.side = fields.getChar(Fix.SIDE);
        order.type = fields.getChar(Fix.ORD_TYPE);
        order.timeInForce = fields.getChar(Fix.TIME_IN_FORCE);
        order.quantity = Long.parseLong(fields.getString(Fix.ORDER_QTY));
        order.priceCents = order.type == '2' ? cents(fields) : market.isListed(order.symbol) ? market.price(order.symbol) : 0;
        orders.put(clOrdId, order);
        book.put(order.orderId, order);
        return order;
    }

    private void acceptOrder(final VenueOrder order) {
        if (isRefused(order)) {
            return;
        }
        if (order.random.nextInt(100) < 15) {
            order.isPendingNew = true;
            Reports.send(order, 'A');
            after(micros(order, 300, 1500), () -> acknowledge(order));
        } else {
            acknowledge(order);
        }
    }

    private boolean isRefused(final VenueOrder order) {
        final boolean is42 = Fix.is42(order.session);
        if (!market.isListed(order.symbol)) {
            reject(order, 1, "unknown symbol " + order.symbol);
        } else if (order.quantity > QUANTITY_MAX) {
            reject(order, is42 ? 3 : 13, "quantity above " + QUANTITY_MAX);
        } else if (Math.abs(order.priceCents - market.price(order.symbol)) * 4 > market.price(order.symbol)) {
            reject(order, is42 ? 0 : 3, "price outside collar");
        }
        return order.isRejected;
    }

    private void reject(final VenueOrder order, final int reason, final String text) {
        order.isRejected = true;
        Reports.sendRejected(order, reason, text);
    }

    private void acknowledge(final VenueOrder order) {
        order.isPendingNew = false;
        order.isBidding = false;
        if (!order.isLive()) {
            return;
        }
        Reports.send(order, '0');
        final int draw = order.random.nextInt(100);
        order.fillsLeft = draw < 60 ? 1 + order.random.nextInt(5) : draw < 82 ? 1 + order.random.nextInt(2) : 0;
        order.isResting = draw >= 60;
        if (order.timeInForce == '4') {
            order.fillsLeft = draw < 60 ? 1 : 0;
        }
        if (draw < 4 && order.timeInForce == '0') {
            after(micros(order, 100, 600), () -> stopOrder(order));
        } else {
            scheduleFill(order);
        }
    }

    /** Guarantees the price of the whole order; the trade follows. */
    private void stopOrder(final VenueOrder order) {
        if (!order.isLive() || order.isSuspended || order.hasPendingRequest()) {
            scheduleFill(order);
            return;
        }
        order.isStopped = true;
        order.fillsLeft = 1;
        Reports.sendWithText(order, '7', "stopped at " + Market.format(order.priceCents));
        scheduleFill(order);
    }

    // ---- lists

    private void acceptList(final Message message, final SessionID session) throws FieldNotFound {
        final String listId = message.getString(Fix.LIST_ID);
        final List<VenueOrder> entries = new ArrayList<>();
        for (final Group group : message.getGroups(Fix.NO_ORDERS)) {
            final VenueOrder order = newOrder(group, session);
            order.listId = listId;
            order.isBidding = true;
            entries.add(order);
        }
        lists.put(listId, entries);
        Reports.sendListStatus(session, listId, 1, entries);
    }

    private void executeList(final String listId, final SessionID session) {
        final List<VenueOrder> entries = lists.remove(listId);
        entries.forEach(order -> order.isBidding = false);
        for (final VenueOrder order : entries) {
            if (!isRefused(order)) {
                acknowledge(order);
            }
        }
    }

    // ---- trades

    private void scheduleFill(final VenueOrder order) {
        if (order.fillsLeft > 0) {
            after(micros(order, 50, 2500), () -> fill(order));
        } else if (order.timeInForce == '3' || order.timeInForce == '4') {
            after(micros(order, 20, 100), () -> cancelRemainder(order));
        }
    }

    private void fill(final VenueOrder order) {
        if (!order.isLive() || order.fillsLeft == 0) {
            return;
        }
        if (order.isSuspended) {
            after(5_000, () -> fill(order));
            return;
        }
        order.fillsLeft--;
        final boolean isLast = order.fillsLeft == 0 && !order.isResting || order.isStopped || order.timeInForce == '4';
        final long leaves = order.leavesQty();
        final long lastQty = isLast ? leaves : Math.max(1, roundLot(leaves * (15 + order.random.nextInt(55)) / 100));
        final long lastCents = order.priceCents + (order.side == '1' ? -1 : 1) * order.random.nextInt(3);
        order.fill(lastQty, lastCents);
        order.isStopped = false;
        final String execId = Reports.sendTrade(order, lastQty, lastCents);
        if (order.random.nextInt(200) == 0) {
            after(micros(order, 500, 2000), () -> changeTrade(order, execId, lastQty, lastCents));
        } else {
            scheduleFill(order);
        }
    }

    private void cancelRemainder(final VenueOrder order) {
        if (order.isLive() && !order.hasPendingRequest()) {
            order.isCanceled = true;
            Reports.sendWithText(order, '4', "remainder of an immediate order");
        }
    }

    /** A bust takes the trade back and lets it happen anew; a correction betters its price by a tick. */
    private void changeTrade(final VenueOrder order, final String execId, final long lastQty, final long lastCents) {
        if (!order.isLive() && !order.isFilled() || order.isSuspended || order.hasPendingRequest()) {
            scheduleFill(order);
            return;
        }
        order.unfill(lastQty, lastCents);
        if (order.random.nextBoolean()) {
            order.fillsLeft++;
            Reports.sendTradeChange(order, 'H', execId, lastQty, lastCents);
        } else {
            final long correctedCents = lastCents + (order.side == '1' ? -1 : 1);
            order.fill(lastQty, correctedCents);
            Reports.sendTradeChange(order, 'G', execId, lastQty, correctedCents);
        }
        scheduleFill(order);
    }

    // ---- requests

    private void cancel(final Message request) throws FieldNotFound {
        final String id = request.getString(Fix.CL_ORD_ID);
        final String origId = request.getString(Fix.ORIG_CL_ORD_ID);
        final VenueOrder order = orders.get(origId);
        if (!order.isLive() || order.hasPendingRequest() || !order.clOrdId.equals(origId)) {
            Reports.sendCancelReject(order, id, origId, '1', order.hasPendingRequest() ? 3 : 0);
            return;
        }
        if (order.random.nextInt(100) >= 45) {
            decideCancel(order, id, origId);
            return;
        }
        order.pendingCancelId = id;
        Reports.sendRequested(order, '6', id, origId);
        if (order.random.nextInt(100) < 35 && order.fillsLeft == 0 && !order.isSuspended) {
            order.fillsLeft = 1;
            order.isResting = order.random.nextBoolean();
            scheduleFill(order);
        }
        after(micros(order, 500, 4000), () -> decideCancel(order, id, origId));
    }

    private void decideCancel(final VenueOrder order, final String id, final String origId) {
        order.pendingCancelId = null;
        if (!order.isLive()) {
            Reports.sendCancelReject(order, id, origId, '1', 0);
            return;
        }
        order.isCanceled = true;
        order.clOrdId = id;
        orders.put(id, order);
        Reports.sendRequested(order, '4', id, origId);
    }

    private void replace(final Message request) throws FieldNotFound {
        final String id = request.getString(Fix.CL_ORD_ID);
        final String origId = request.getString(Fix.ORIG_CL_ORD_ID);
        final VenueOrder order = orders.get(origId);
        if (!order.isLive() || order.hasPendingRequest() || !order.clOrdId.equals(origId)) {
            Reports.sendCancelReject(order, id, origId, '2', order.hasPendingRequest() ? 3 : 0);
            return;
        }
        final var wanted = new VenueOrder.PendingReplace(id, Long.parseLong(request.getString(Fix.ORDER_QTY)), cents(request));
        if (order.random.nextInt(100) >= 45) {
            decideReplace(order, wanted, origId);
            return;
        }
        order.pendingReplace = wanted;
        Reports.sendRequested(order, 'E', id, origId);
        after(micros(order, 300, 3000), () -> decideReplace(order, wanted, origId));
    }

    private void decideReplace(final VenueOrder order, final VenueOrder.PendingReplace wanted, final String origId) {
        order.pendingReplace = null;
        if (!order.isLive() || wanted.quantity() <= order.cumQty || order.random.nextInt(100) < 8) {
            Reports.sendCancelReject(order, wanted.clOrdId(), origId, '2', order.isLive() ? 2 : 0);
            return;
        }
        order.clOrdId = wanted.clOrdId();
        order.quantity = wanted.quantity();
        order.priceCents = wanted.priceCents();
        order.isStopped = false;
        orders.put(order.clOrdId, order);
        Reports.sendRequested(order, '5', order.clOrdId, origId);
        if (order.fillsLeft == 0) {
            order.fillsLeft = 1 + order.random.nextInt(2);
            order.isResting = order.random.nextInt(100) < 30;
            scheduleFill(order);
        }
    }

    // ---- the venue's own acts

    private void haltSomeSymbol() {
        final String symbol = market.draw(halts);
        final List<VenueOrder> halted = new ArrayList<>();
        for (final VenueOrder order : book.values()) {
            if (order.symbol.equals(symbol) && order.isLive() && !order.hasPendingRequest() && !order.isSuspended
                    && !order.isStopped && !order.isBidding && !order.isPendingNew && order.timeInForce < '3') {
                order.isSuspended = true;
                Reports.sendWithText(order, '9', "trading halt in " + symbol);
                halted.add(order);
            }
        }
        after(HALT_MS * 1000L, () -> halted.forEach(this::resume));
    }

    private void resume(final VenueOrder order) {
        order.isSuspended = false;
        if (!order.isLive() || order.hasPendingRequest()) {
            return;
        }
        if (order.random.nextInt(100) < 12) {
            order.isCanceled = true;
            Reports.sendWithText(order, '4', "canceled on trading halt");
        } else {
            Reports.sendRestated(order);
        }
    }

    private void closeOrder(final VenueOrder order) {
        order.isSuspended = false;
        if (order.isLive()) {
            final boolean expires = order.timeInForce == '0' && order.random.nextInt(100) < 55;
            order.isExpired = expires;
            order.isDoneForDay = !expires;
            Reports.send(order, expires ? 'C' : '3');
        }
        final boolean isSettled = order.isFilled() || order.isDoneForDay && order.cumQty > 0;
        if (isSettled && order.random.nextInt(100) < 12) {
            order.isCalculated = true;
            Reports.sendCalculated(order);
        }
    }

    // ---- time

    private void after(final long delayUs, final Runnable action) {
        outstanding.incrementAndGet();
        thread.schedule(() -> {
            try {
                action.run();
            } catch (final RuntimeException e) {
                e.printStackTrace();
                Runtime.getRuntime().halt(1);
            } finally {
                outstanding.decrementAndGet();
            }
        }, delayUs, TimeUnit.MICROSECONDS);
    }

    private static long micros(final VenueOrder order, final int from, final int to) {
        return from + order.random.nextInt(to - from);
    }

    private static long roundLot(final long quantity) {
        return quantity >= 100 ? quantity / 100 * 100 : quantity;
    }

    private static long cents(final quickfix.FieldMap fields) throws FieldNotFound {
        return Math.round(Double.parseDouble(fields.getString(Fix.PRICE)) * 100);
    }
}

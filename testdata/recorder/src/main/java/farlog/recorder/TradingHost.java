package farlog.recorder;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import quickfix.ApplicationAdapter;
import quickfix.FieldMap;
import quickfix.FieldNotFound;
import quickfix.Group;
import quickfix.Message;
import quickfix.SessionID;

/**
 * The initiator's application: a desk that sends orders in bursts and cancels, replaces and asks after some of them. The
 * flow of orders and the intents are drawn from the seed alone.
 */
final class TradingHost extends ApplicationAdapter {
    private static final int PERCENT_42 = 15;
    private static final int[] LIST_ENTRY_ORDER = {Fix.CL_ORD_ID, Fix.LIST_SEQ_NO, Fix.ACCOUNT, Fix.HANDL_INST,
        Fix.SYMBOL, Fix.SIDE, Fix.TRANSACT_TIME, Fix.ORDER_QTY, Fix.ORD_TYPE, Fix.PRICE, Fix.CURRENCY, Fix.TIME_IN_FORCE, 0};

    private final Market market = new Market();
    private final Random flow;
    private final List<SessionID> sessions;
    private final Map<String, HostOrder> orders = new HashMap<>();
    private int orderCount;
    private int listCount;

    TradingHost(final long seed, final List<SessionID> sessions) {
        this.flow = new Random(seed);
        this.sessions = sessions;
    }

    /** Sends so many orders in bursts with pauses between them; returns when the last is sent. */
    void trade(final int wanted) {
        while (orderCount < wanted) {
            final double u = flow.nextDouble();
            final int burst = (int) Math.min(40, 1 / (1 - u * 0.98));
            for (int i = 0; i < burst && orderCount < wanted; i++) {
                place();
            }
            LockSupport.parkNanos(TimeUnit.MICROSECONDS.toNanos(500 + flow.nextInt(3000)));
        }
    }

    synchronized boolean isQuiet() {
        return orders.values().stream().noneMatch(order -> order.isRequestPending);
    }

    @Override
    public synchronized void fromApp(final Message message, final SessionID session) throws FieldNotFound {
        switch (message.getHeader().getString(35)) {
            case "8" -> onReport(message);
            case "9" -> onCancelReject(message);
            case "N" -> executeList(message, session);
            default -> throw new IllegalStateException("host: unexpected message " + message);
        }
    }

    // ---- sending

    private synchronized void place() {
        final SessionID session = sessions.get(flow.nextInt(100) < PERCENT_42 ? 1 : 0);
        if (flow.nextInt(150) == 0) {
            placeList(session);
            return;
        }
        final HostOrder order = newOrder(session);
        final Message message = Fix.message(session, "D");
        setTerms(message, order);
        message.setString(Fix.EX_DESTINATION, Fix.is42(session) ? "N" : "XNAS");
        if (Fix.is42(session)) {
            message.setString(Fix.CLIENT_ID, "FUND" + order.account.substring(3));
        } else {
            message.addGroup(party("FUND" + order.account.substring(3), 3));
            message.addGroup(party("TRADER" + (1 + order.random.nextInt(9)), 12));
        }
        Fix.send(message, session);
    }

    private void placeList(final SessionID session) {
        final Message list = Fix.message(session, "E");
        listCount++;
        final int size = 3 + flow.nextInt(5);
        list.setString(Fix.LIST_ID, String.format("PT%05d", listCount));
        list.setInt(Fix.BID_TYPE, 2);
        list.setInt(Fix.TOT_NO_ORDERS, size);
        for (int i = 1; i <= size; i++) {
            final HostOrder order = newOrder(session);
            order.intent = HostOrder.Intent.NOTHING;
            final Group entry = new Group(Fix.NO_ORDERS, Fix.CL_ORD_ID, LIST_ENTRY_ORDER);
            setTerms(entry, order);
            entry.setInt(Fix.LIST_SEQ_NO, i);
            list.addGroup(entry);
        }
        Fix.send(list, session);
    }

    private HostOrder newOrder(final SessionID session) {
        orderCount++;
        final HostOrder order = new HostOrder(session, String.format("D7-%06d", orderCount), new Random(flow.nextLong()));
        final Random random = order.random;
        order.symbol = market.draw(flow);
        order.account = "ACC" + (10 + random.nextInt(40));
        order.side = "1125".charAt(random.nextInt(4));
        order.type = random.nextInt(100) < 8 ? '1' : '2';
        order.timeInForce = "000000001134".charAt(random.nextInt(12));
        order.quantity = drawQuantity(random);
        order.priceCents = market.walk(order.symbol, flow);
        order.intent = drawIntent(random);
        order.tradesBeforeIntent = random.nextInt(3);
        spoilSome(order);
        orders.put(order.clOrdId, order);
        return order;
    }

    /** A few orders that a venue has to refuse: a mistyped symbol, a price far off, a size beyond all limits. */
    private void spoilSome(final HostOrder order) {
        switch (order.random.nextInt(200)) {
            case 0 -> order.symbol = order.symbol + "X";
            case 1 -> order.priceCents = order.priceCents * 2;
            case 2 -> order.quantity = order.quantity * 1_000_000;
            default -> {
                return;
            }
        }
        order.type = '2';
    }

    private static long drawQuantity(final Random random) {
        final int lots = (int) (2 / (1 - random.nextDouble() * 0.98));
        return random.nextInt(10) == 0 ? 1 + random.nextInt(99) : lots * 100L;
    }

    private static HostOrder.Intent drawIntent(final Random random) {
        final int draw = random.nextInt(100);
        if (draw < 22) {
            return HostOrder.Intent.CANCEL;
        }
        if (draw < 38) {
            return HostOrder.Intent.REPLACE;
        }
        if (draw < 46) {
            return HostOrder.Intent.REPLACE_THEN_CANCEL;
        }
        if (draw < 48) {
            return HostOrder.Intent.CANCEL_TWICE;
        }
        return draw < 50 ? HostOrder.Intent.ASK_STATUS : HostOrder.Intent.NOTHING;
    }

    // ---- receiving

    private void onReport(final Message report) throws FieldNotFound {
        final HostOrder order = orders.get(report.isSetField(Fix.ORIG_CL_ORD_ID)
                ? report.getString(Fix.ORIG_CL_ORD_ID) : report.getString(Fix.CL_ORD_ID));
        final char status = report.getChar(Fix.ORD_STATUS);
        final char type = report.getChar(Fix.EXEC_TYPE);
        if (type == '5') {
            order.clOrdId = report.getString(Fix.CL_ORD_ID);
            orders.put(order.clOrdId, order);
        }
        if (type == '5' || type == '4') {
            order.isRequestPending = false;
        }
        if (report.isSetField(Fix.LAST_QTY)) {
            order.trades++;
        }
        order.isOver = "234C8B".indexOf(status) >= 0;
        if (status != 'A' && !order.isOver && !order.isRequestPending && order.trades >= order.tradesBeforeIntent) {
            act(order);
        }
    }

    private void onCancelReject(final Message reject) throws FieldNotFound {
        orders.get(reject.getString(Fix.ORIG_CL_ORD_ID)).isRequestPending = false;
    }

    private void executeList(final Message status, final SessionID session) throws FieldNotFound {
        final Message execute = Fix.message(session, "L");
        execute.setString(Fix.LIST_ID, status.getString(Fix.LIST_ID));
        execute.setString(Fix.TRANSACT_TIME, Fix.now());
        Fix.send(execute, session);
    }

    private void act(final HostOrder order) {
        final HostOrder.Intent intent = order.intent;
        order.intent = HostOrder.Intent.NOTHING;
        switch (intent) {
            case CANCEL -> sendCancel(order);
            case CANCEL_TWICE -> {
                sendCancel(order);
                sendCancel(order);
            }
            case REPLACE -> sendReplace(order);
            case REPLACE_THEN_CANCEL -> {
                sendReplace(order);
                order.intent = HostOrder.Intent.CANCEL;
            }
            case ASK_STATUS -> sendStatusRequest(order);
            case NOTHING -> {
            }
        }
    }

    private void sendCancel(final HostOrder order) {
        final Message request = request(order, "F", order.nextRequestId());
        request.setString(Fix.ORDER_QTY, Long.toString(order.quantity));
        order.isRequestPending = true;
        Fix.send(request, order.session);
    }

    private void sendReplace(final HostOrder order) {
        final long step = Math.max(1, order.quantity / 400 * 100);
        order.quantity = Math.max(1, order.quantity + (order.random.nextInt(4) - 1) * step);
        order.priceCents += (order.side == '1' ? 1 : -1) * (1 + order.random.nextInt(4));
        order.type = '2';
        final Message request = request(order, "G", order.nextRequestId());
        request.setString(Fix.ACCOUNT, order.account);
        request.setChar(Fix.HANDL_INST, '1');
        request.setString(Fix.ORDER_QTY, Long.toString(order.quantity));
        request.setChar(Fix.ORD_TYPE, order.type);
        request.setString(Fix.PRICE, Market.format(order.priceCents));
        request.setChar(Fix.TIME_IN_FORCE, order.timeInForce);
        order.isRequestPending = true;
        Fix.send(request, order.session);
    }

    private void sendStatusRequest(final HostOrder order) {
        final Message request = Fix.message(order.session, "H");
        request.setString(Fix.CL_ORD_ID, order.clOrdId);
        request.setString(Fix.SYMBOL, order.symbol);
        request.setChar(Fix.SIDE, order.side);
        Fix.send(request, order.session);
    }

    private Message request(final HostOrder order, final String type, final String id) {
        final Message request = Fix.message(order.session, type);
        request.setString(Fix.ORIG_CL_ORD_ID, order.clOrdId);
        request.setString(Fix.CL_ORD_ID, id);
        request.setString(Fix.SYMBOL, order.symbol);
        request.setChar(Fix.SIDE, order.side);
        request.setString(Fix.TRANSACT_TIME, Fix.now());
        return request;
    }

    private static void setTerms(final FieldMap fields, final HostOrder order) {
        fields.setString(Fix.CL_ORD_ID, order.clOrdId);
        fields.setString(Fix.ACCOUNT, order.account);
        fields.setChar(Fix.HANDL_INST, '1');
        fields.setString(Fix.SYMBOL, order.symbol);
        fields.setChar(Fix.SIDE, order.side);
        fields.setString(Fix.TRANSACT_TIME, Fix.now());
        fields.setString(Fix.ORDER_QTY, Long.toString(order.quantity));
        fields.setChar(Fix.ORD_TYPE, order.type);
        if (order.type == '2') {
            fields.setString(Fix.PRICE, Market.format(order.priceCents));
        }
        fields.setString(Fix.CURRENCY, "USD");
        fields.setChar(Fix.TIME_IN_FORCE, order.timeInForce);
    }

    private static Group party(final String id, final int role) {
        final Group party = new Group(Fix.NO_PARTY_IDS, Fix.PARTY_ID,
                new int[] {Fix.PARTY_ID, Fix.PARTY_ID_SOURCE, Fix.PARTY_ROLE, 0});
        party.setString(Fix.PARTY_ID, id);
        party.setChar(Fix.PARTY_ID_SOURCE, 'D');
        party.setInt(Fix.PARTY_ROLE, role);
        return party;
    }
}

package farlog.recorder;

import java.math.BigDecimal;
import java.math.RoundingMode;
import java.util.List;
import quickfix.Group;
import quickfix.Message;
import quickfix.SessionID;

/** The messages that the venue sends, in the words of the FIX version of the order's session. */
final class Reports {
    private static final char NEW_42 = '0';
    private static final char CANCEL_42 = '1';
    private static final char CORRECT_42 = '2';
    private static final char STATUS_42 = '3';

    private Reports() {
    }

    /** A report of the order as it stands. type is the FIX 4.4 ExecType; 4.2 has no word of its own for it where it differs. */
    static void send(final VenueOrder order, final char type) {
        Fix.send(report(order, order.clOrdId, null, type, NEW_42), order.session);
    }

    static void sendWithText(final VenueOrder order, final char type, final String text) {
        final Message report = report(order, order.clOrdId, null, type, NEW_42);
        report.setString(Fix.TEXT, text);
        Fix.send(report, order.session);
    }

    /** A report on a cancel or replace request: it carries the request's id and the order's id before it. */
    static void sendRequested(final VenueOrder order, final char type, final String clOrdId, final String origClOrdId) {
        final Message report = report(order, clOrdId, origClOrdId, type, NEW_42);
        if (type == '5' && Fix.is42(order.session)) {
            report.setChar(Fix.ORD_STATUS, '5');
        }
        Fix.send(report, order.session);
    }

    /** Returns the ExecID, by which a later bust or correction refers to this trade. */
    static String sendTrade(final VenueOrder order, final long lastQty, final long lastCents) {
        final char type = Fix.is42(order.session) ? (order.isFilled() ? '2' : '1') : 'F';
        final Message report = report(order, order.clOrdId, null, type, NEW_42);
        setLast(report, lastQty, lastCents);
        Fix.send(report, order.session);
        return order.orderId + "-" + order.execCount;
    }

    /** A trade cancel (H) or a trade correction (G) of an earlier trade. */
    static void sendTradeChange(final VenueOrder order, final char type, final String execRefId, final long lastQty,
            final long lastCents) {
        final boolean is42 = Fix.is42(order.session);
        final char type42 = order.isFilled() ? '2' : order.cumQty > 0 ? '1' : '0';
        final Message report = report(order, order.clOrdId, null, is42 ? type42 : type, type == 'H' ? CANCEL_42 : CORRECT_42);
        report.setString(Fix.EXEC_REF_ID, execRefId);
        setLast(report, lastQty, lastCents);
        Fix.send(report, order.session);
    }

    static void sendRejected(final VenueOrder order, final int reason, final String text) {
        final Message report = report(order, order.clOrdId, null, '8', NEW_42);
        report.setInt(Fix.ORD_REJ_REASON, reason);
        report.setString(Fix.TEXT, text);
        Fix.send(report, order.session);
    }

    static void sendStatus(final VenueOrder order) {
        final char type = Fix.is42(order.session) ? type42(order.status()) : 'I';
        Fix.send(report(order, order.clOrdId, null, type, STATUS_42), order.session);
    }

    static void sendRestated(final VenueOrder order) {
        final Message report = report(order, order.clOrdId, null, 'D', NEW_42);
        report.setInt(Fix.EXEC_RESTATEMENT_REASON, Fix.is42(order.session) ? 4 : 8);
        report.setString(Fix.TEXT, "trading resumed");
        Fix.send(report, order.session);
    }

    static void sendCalculated(final VenueOrder order) {
        final Message report = report(order, order.clOrdId, null, 'B', NEW_42);
        final BigDecimal commission = order.notional.multiply(new BigDecimal("0.0002")).setScale(2, RoundingMode.HALF_UP);
        report.setString(Fix.COMMISSION, commission.toPlainString());
        report.setChar(Fix.COMM_TYPE, '3');
        Fix.send(report, order.session);
    }

    static void sendCancelReject(final VenueOrder order, final String clOrdId, final String origClOrdId,
            final char responseTo, final int reason) {
        final Message reject = Fix.message(order.session, "9");
        reject.setString(Fix.ORDER_ID, order.orderId);
        reject.setString(Fix.CL_ORD_ID, clOrdId);
        reject.setString(Fix.ORIG_CL_ORD_ID, origClOrdId);
        reject.setChar(Fix.ORD_STATUS, order.status());
        reject.setChar(Fix.CXL_REJ_RESPONSE_TO, responseTo);
        reject.setInt(Fix.CXL_REJ_REASON, reason);
        reject.setString(Fix.TRANSACT_TIME, Fix.now());
        Fix.send(reject, order.session);
    }

    static void sendListStatus(final SessionID session, final String listId, final int listOrderStatus,
            final List<VenueOrder> orders) {
        final Message status = Fix.message(session, "N");
        status.setString(Fix.LIST_ID, listId);
        status.setInt(Fix.LIST_STATUS_TYPE, 1);
        status.setInt(Fix.NO_RPTS, 1);
        status.setInt(Fix.LIST_ORDER_STATUS, listOrderStatus);
        status.setInt(Fix.RPT_SEQ, 1);
        status.setString(Fix.TRANSACT_TIME, Fix.now());
        status.setInt(Fix.TOT_NO_ORDERS, orders.size());
        for (final VenueOrder order : orders) {
            status.addGroup(listEntry(order));
        }
        Fix.send(status, session);
    }

    private static Group listEntry(final VenueOrder order) {
        final Group entry = new Group(Fix.NO_ORDERS, Fix.CL_ORD_ID,
                new int[] {Fix.CL_ORD_ID, Fix.CUM_QTY, Fix.ORD_STATUS, Fix.LEAVES_QTY, Fix.CXL_QTY, Fix.AVG_PX, 0});
        entry.setString(Fix.CL_ORD_ID, order.clOrdId);
        entry.setString(Fix.CUM_QTY, Long.toString(order.cumQty));
        entry.setChar(Fix.ORD_STATUS, order.status());
        entry.setString(Fix.LEAVES_QTY, Long.toString(order.leavesQty()));
        entry.setString(Fix.CXL_QTY, "0");
        entry.setString(Fix.AVG_PX, order.averagePrice());
        return entry;
    }

    private static Message report(final VenueOrder order, final String clOrdId, final String origClOrdId, final char type,
            final char transaction42) {
        final Message report = Fix.message(order.session, "8");
        report.setString(Fix.ORDER_ID, order.orderId);
        report.setString(Fix.CL_ORD_ID, clOrdId);
        if (origClOrdId != null) {
            report.setString(Fix.ORIG_CL_ORD_ID, origClOrdId);
        }
        if (order.listId != null) {
            report.setString(Fix.LIST_ID, order.listId);
        }
        report.setString(Fix.EXEC_ID, order.nextExecId());
        if (Fix.is42(order.session)) {
            report.setChar(Fix.EXEC_TRANS_TYPE, transaction42);
        }
        report.setChar(Fix.EXEC_TYPE, type);
        report.setChar(Fix.ORD_STATUS, order.status());
        setTerms(report, order);
        report.setString(Fix.LEAVES_QTY, Long.toString(order.leavesQty()));
        report.setString(Fix.CUM_QTY, Long.toString(order.cumQty));
        report.setString(Fix.AVG_PX, order.averagePrice());
        report.setString(Fix.TRANSACT_TIME, Fix.now());
        return report;
    }

    private static void setTerms(final Message report, final VenueOrder order) {
        report.setString(Fix.ACCOUNT, order.account);
        report.setString(Fix.SYMBOL, order.symbol);
        report.setChar(Fix.SIDE, order.side);
        report.setString(Fix.ORDER_QTY, Long.toString(order.quantity));
        report.setChar(Fix.ORD_TYPE, order.type);
        if (order.type == '2') {
            report.setString(Fix.PRICE, Market.format(order.priceCents));
        }
        report.setChar(Fix.TIME_IN_FORCE, order.timeInForce);
    }

    private static void setLast(final Message report, final long lastQty, final long lastCents) {
        report.setString(Fix.LAST_QTY, Long.toString(lastQty));
        report.setString(Fix.LAST_PX, Market.format(lastCents));
    }

    /** FIX 4.2 repeats the status as ExecType in a status report. */
    private static char type42(final char status) {
        return status == 'D' ? '0' : status;
    }
}

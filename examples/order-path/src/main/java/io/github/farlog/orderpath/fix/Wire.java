package io.github.farlog.orderpath.fix;

import io.github.farlog.orderpath.book.Command;
import io.github.farlog.orderpath.book.Report;
import java.math.BigDecimal;
import java.math.RoundingMode;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import quickfix.FieldNotFound;
import quickfix.Message;
import quickfix.SessionID;
import quickfix.field.TransactTime;

/** Commands and reports of the book as messages of QuickFIX/J, and back. Prices are in ticks of 0.01. */
final class Wire {
    static final String SYMBOL = "FLGA";
    private static final int PLACES = 2;
    private static final int AVERAGE_PLACES = 6;

    private Wire() {
    }

    /** @param idPrefix what the ids of this run begin with */
    static Message order(final Command command, final String idPrefix) {
        final boolean isCancel = command.kind == Command.CANCEL;
        final Message message = message(isCancel ? "F" : "D");
        message.setString(11, idPrefix + command.id);
        message.setString(55, SYMBOL);
        message.setField(new TransactTime(LocalDateTime.now(ZoneOffset.UTC)));
        if (isCancel) {
            message.setString(41, idPrefix + command.targetId);
            message.setString(54, "1");
            return message;
        }
        message.setString(54, Integer.toString(command.side));
        message.setString(38, Long.toString(command.quantity));
        message.setString(40, "2");
        message.setString(44, price(command.price));
        message.setString(59, command.kind == Command.IMMEDIATE_OR_CANCEL ? "3" : "0");
        return message;
    }

    /** Fills in all but the ids, which are the venue's to give. */
    static void read(final Message message, final Command command) throws FieldNotFound {
        command.kind = Command.CANCEL;
        if ("F".equals(message.getHeader().getString(35))) {
            return;
        }
        command.kind = message.getChar(59) == '3' ? Command.IMMEDIATE_OR_CANCEL : Command.LIMIT;
        command.side = (byte) (message.getChar(54) - '0');
        command.quantity = Long.parseLong(message.getString(38));
        command.price = new BigDecimal(message.getString(44)).movePointRight(PLACES).intValueExact();
    }

    /**
     * @param clOrdId of the order, or of the request that this answers
     * @param origId of the order that a request was about; empty = this answers none
     * @param idPrefix what the venue's own ids of this run begin with
     */
    static Message report(final Report report, final String clOrdId, final String origId, final String idPrefix) {
        final boolean isRefusal = report.kind == Report.CANCEL_REFUSED;
        final Message message = message(isRefusal ? "9" : "8");
        message.setString(11, clOrdId);
        if (!origId.isEmpty()) {
            message.setString(41, origId);
        }
        message.setString(37, report.status == '8' && isRefusal ? "NONE" : idPrefix + report.orderId);
        message.setString(39, Character.toString(report.status));
        if (isRefusal) {
            message.setString(434, "1");
            message.setString(102, report.status == '8' ? "1" : "0");
            return message;
        }
        message.setString(17, idPrefix + "E" + report.execId);
        message.setString(150, execTypeOf(report.kind));
        message.setString(55, SYMBOL);
        message.setString(54, Integer.toString(report.side));
        message.setString(38, Long.toString(report.quantity));
        message.setString(44, price(report.price));
        setQuantities(message, report);
        return message;
    }

    private static void setQuantities(final Message message, final Report report) {
        if (report.kind == Report.TRADE) {
            message.setString(32, Long.toString(report.lastQuantity));
            message.setString(31, price(report.lastPrice));
        }
        message.setString(151, Long.toString(report.leavesQuantity));
        message.setString(14, Long.toString(report.cumQuantity));
        message.setString(6, report.cumQuantity == 0 ? "0" : BigDecimal.valueOf(report.notional, PLACES)
            .divide(BigDecimal.valueOf(report.cumQuantity), AVERAGE_PLACES, RoundingMode.HALF_UP).toPlainString());
    }

    private static String execTypeOf(final byte kind) {
        return switch (kind) {
            case Report.NEW -> "0";
            case Report.TRADE -> "F";
            case Report.CANCELED -> "4";
            default -> "8";
        };
    }

    private static Message message(final String type) {
        final Message message = new Message();
        message.getHeader().setString(8, "FIX.4.4");
        message.getHeader().setString(35, type);
        return message;
    }

    private static String price(final int ticks) {
        return BigDecimal.valueOf(ticks, PLACES).toPlainString();
    }

    static SessionID session(final String sender, final String target) {
        return new SessionID("FIX.4.4", sender, target);
    }
}

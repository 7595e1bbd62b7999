package io.github.farlog.orderpath.record;

import io.github.farlog.orderpath.book.Command;
import io.github.farlog.orderpath.book.Report;

/**
 * Commands and reports as FIX 4.4 messages: what a venue's gateway would have on the wire, in the form that
 * {@code farlog order} reads. The last message and where its ClOrdID (the record's key) lies are held until the next
 * one. One thread; allocates nothing after its making.
 */
public final class OrderMessages {
    private static final int LENGTH_MAX = 512;
    private static final int ID_DIGITS = 9;
    private static final int PRICE_PLACES = 2;
    private static final int AVERAGE_PLACES = 6;
    private static final long AVERAGE_UNIT = 10_000; // from price ticks of 0.01 to the last place of an average

    private final FixText text = new FixText("FIX.4.4", LENGTH_MAX);
    private final byte[] idPrefix;
    private final byte[] symbol;
    private final byte[] newOrder = FixText.ascii("35=D|49=OB|56=ME|");
    private final byte[] cancelRequest = FixText.ascii("35=F|49=OB|56=ME|");
    private final byte[] execution = FixText.ascii("35=8|49=ME|56=OB|");
    private final byte[] cancelReject = FixText.ascii("35=9|49=ME|56=OB|");
    private final byte[] clOrdId = FixText.ascii("11=");
    private final byte[] origClOrdId = FixText.ascii("41=");
    private final byte[] orderId = FixText.ascii("37=");
    private final byte[] orderIdNone = FixText.ascii("37=NONE|");
    private final byte[] execId = FixText.ascii("17=");
    private final byte[] execType = FixText.ascii("150=");
    private final byte[] ordStatus = FixText.ascii("39=");
    private final byte[] side = FixText.ascii("54=");
    private final byte[] quantity = FixText.ascii("38=");
    private final byte[] price = FixText.ascii("44=");
    private final byte[] limitDay = FixText.ascii("40=2|59=0|");
    private final byte[] limitImmediate = FixText.ascii("40=2|59=3|");
    private final byte[] lastQuantity = FixText.ascii("32=");
    private final byte[] lastPrice = FixText.ascii("31=");
    private final byte[] leavesQuantity = FixText.ascii("151=");
    private final byte[] cumQuantity = FixText.ascii("14=");
    private final byte[] averagePrice = FixText.ascii("6=");
    private final byte[] tooLate = FixText.ascii("434=1|102=0|");
    private final byte[] unknownOrder = FixText.ascii("434=1|102=1|");
    private int recordClass;
    private int keyOffset;
    private int keyLength;

    /**
     * @param idPrefix what the ids of this book begin with; unique over all that is ever recorded in the stream
     * @param symbol the book's instrument
     */
    public OrderMessages(final String idPrefix, final String symbol) {
        this.idPrefix = FixText.ascii(idPrefix);
        this.symbol = FixText.ascii("55=" + symbol + "|");
    }

    public byte[] bytes() {
        return text.bytes();
    }

    public int length() {
        return text.length();
    }

    public int recordClass() {
        return recordClass;
    }

    public int keyOffset() {
        return keyOffset;
    }

    public int keyLength() {
        return keyLength;
    }

    /** Writes the order, or the request to cancel. */
    public void write(final Command command) {
        if (command.kind == Command.CANCEL) {
            recordClass = RecordClass.REQUEST;
            text.begin(cancelRequest);
            putKey(command.id);
            putId(origClOrdId, command.targetId);
        } else {
            recordClass = RecordClass.ORDER;
            text.begin(newOrder);
            putKey(command.id);
            putTerms(command.side, command.quantity, command.price);
            text.put(command.kind == Command.IMMEDIATE_OR_CANCEL ? limitImmediate : limitDay);
        }
        text.put(symbol);
        text.finish();
    }

    /** Writes the report. */
    public void write(final Report report) {
        if (report.kind == Report.CANCEL_REFUSED) {
            writeRefusal(report);
        } else {
            writeExecution(report);
        }
        text.finish();
    }

    private void writeExecution(final Report report) {
        recordClass = RecordClass.EXECUTION;
        text.begin(execution);
        if (report.requestId != 0) { // the answer to a request carries the request's id
            putKey(report.requestId);
            putId(origClOrdId, report.orderId);
        } else {
            putKey(report.orderId);
        }
        putId(orderId, report.orderId);
        text.put(execId).put(idPrefix).put(report.execId).end();
        text.put(execType).put(execTypeOf(report.kind)).end();
        text.put(ordStatus).put(report.status).end();
        text.put(symbol);
        putTerms(report.side, report.quantity, report.price);
        if (report.kind == Report.TRADE) {
            text.put(lastQuantity).put(report.lastQuantity).end();
            text.put(lastPrice).putDecimal(report.lastPrice, PRICE_PLACES).end();
        }
        text.put(leavesQuantity).put(report.leavesQuantity).end();
        text.put(cumQuantity).put(report.cumQuantity).end();
        text.put(averagePrice).putDecimal(average(report), AVERAGE_PLACES).end();
    }

    private void writeRefusal(final Report report) {
        recordClass = RecordClass.REJECT;
        final boolean isKnown = report.status != '8';
        text.begin(cancelReject);
        putKey(report.requestId);
        putId(origClOrdId, report.orderId);
        if (isKnown) {
            putId(orderId, report.orderId);
        } else {
            text.put(orderIdNone);
        }
        text.put(ordStatus).put(report.status).end();
        text.put(isKnown ? tooLate : unknownOrder);
    }

    private void putKey(final long id) {
        text.put(clOrdId);
        keyOffset = text.length();
        text.put(idPrefix).putPadded(id, ID_DIGITS);
        keyLength = text.length() - keyOffset;
        text.end();
    }

    private void putId(final byte[] tag, final long id) {
        text.put(tag).put(idPrefix).putPadded(id, ID_DIGITS).end();
    }

    private void putTerms(final byte ofSide, final long ofQuantity, final int atPrice) {
        text.put(side).put((byte) ('0' + ofSide)).end();
        text.put(quantity).put(ofQuantity).end();
        text.put(price).putDecimal(atPrice, PRICE_PLACES).end();
    }

    private static byte execTypeOf(final byte kind) {
        return switch (kind) {
            case Report.NEW -> '0';
            case Report.TRADE -> 'F';
            case Report.CANCELED -> '4';
            case Report.REJECTED -> '8';
            default -> throw new IllegalArgumentException("report of kind " + kind + " is not an execution report");
        };
    }

    private static long average(final Report report) {
        if (report.cumQuantity == 0) {
            return 0;
        }
        return (report.notional * AVERAGE_UNIT + report.cumQuantity / 2) / report.cumQuantity;
    }
}

package io.github.farlog.orderpath.book;

/** What the book says about an order after each thing that happens to it. Mutable and reused, as {@link Command} is. */
public final class Report {
    /** The order is accepted; its trades follow. */
    public static final byte NEW = 1;
    public static final byte TRADE = 2;
    /** By request, or what was left of an immediate-or-cancel order. */
    public static final byte CANCELED = 3;
    /** The order was never in the book. */
    public static final byte REJECTED = 4;
    /** The request to cancel came too late, or names no order. The state of the order, if any, is unchanged. */
    public static final byte CANCEL_REFUSED = 5;

    public byte kind;
    public long orderId;
    /** The request that this answers; 0 = none. */
    public long requestId;
    /** +1 with each report of one book. */
    public long execId;
    public byte side;
    /** {@link Command#LIMIT} or {@link Command#IMMEDIATE_OR_CANCEL}. */
    public byte orderKind;
    public long quantity;
    public int price;
    public long lastQuantity;
    public int lastPrice;
    public long cumQuantity;
    /** What may still trade: 0 once the order is over. */
    public long leavesQuantity;
    /** Sum of quantity times price of the order's trades. */
    public long notional;
    /** OrdStatus of FIX after this report. */
    public byte status;
    /** The command that caused this has no further report. */
    public boolean isLast;
    /** Of the command that caused this; see {@link Command#dueNs}. */
    public long dueNs;

    public void copyFrom(final Report other) {
        kind = other.kind;
        orderId = other.orderId;
        requestId = other.requestId;
        execId = other.execId;
        side = other.side;
        orderKind = other.orderKind;
        quantity = other.quantity;
        price = other.price;
        lastQuantity = other.lastQuantity;
        lastPrice = other.lastPrice;
        cumQuantity = other.cumQuantity;
        leavesQuantity = other.leavesQuantity;
        notional = other.notional;
        status = other.status;
        isLast = other.isLast;
        dueNs = other.dueNs;
    }
}

package io.github.farlog.orderpath.book;

/**
 * What comes in to the book: a new order, or the request to cancel one. Mutable and reused: commands live in the slots
 * of a Disruptor, so that nothing is allocated on the order path. Owned by whoever holds its slot.
 */
public final class Command {
    /** A limit order that rests until it is traded or cancelled. */
    public static final byte LIMIT = 1;
    /** A limit order that trades what it can at once; what is left is cancelled, and never rests. */
    public static final byte IMMEDIATE_OR_CANCEL = 2;
    /** The request to cancel the order {@link #targetId}. */
    public static final byte CANCEL = 3;

    public static final byte BUY = 1;
    public static final byte SELL = 2;

    public byte kind;
    public byte side;
    /** Number of the order or of the request; positive, never used twice. */
    public long id;
    /** With {@link #CANCEL}: the order meant. */
    public long targetId;
    public long quantity;
    /** In ticks, within the book's range. */
    public int price;
    /** When the order was due to be sent, by {@link System#nanoTime}; 0 where nobody measures. */
    public long dueNs;

    public void copyFrom(final Command other) {
        kind = other.kind;
        side = other.side;
        id = other.id;
        targetId = other.targetId;
        quantity = other.quantity;
        price = other.price;
        dueNs = other.dueNs;
    }

    /** Makes this a new order. */
    public Command order(final byte newKind, final long newId, final byte newSide, final long newQuantity,
        final int newPrice) {
        kind = newKind;
        id = newId;
        targetId = 0;
        side = newSide;
        quantity = newQuantity;
        price = newPrice;
        return this;
    }

    /** Makes this a request to cancel. */
    public Command cancel(final long newId, final long orderId) {
        kind = CANCEL;
        id = newId;
        targetId = orderId;
        side = 0;
        quantity = 0;
        price = 0;
        return this;
    }
}

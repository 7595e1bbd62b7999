package io.github.farlog.orderpath.book;

/** How the orders ended that left the book last: a request to cancel that comes too late is told so. One thread. */
final class FinishedOrders {
    private final long[] ids;
    private final byte[] statuses;
    private final int mask;

    /** @param count how many are remembered, a power of two; order numbers that differ by it push each other out */
    FinishedOrders(final int count) {
        ids = new long[count];
        statuses = new byte[count];
        mask = count - 1;
    }

    void add(final long id, final byte status) {
        ids[(int) id & mask] = id;
        statuses[(int) id & mask] = status;
    }

    /** The OrdStatus with which the order ended, 0 = not known. */
    byte statusOf(final long id) {
        return ids[(int) id & mask] == id ? statuses[(int) id & mask] : 0;
    }
}

package io.github.farlog.orderpath.book;

/**
 * The orders that rest, in price-time priority: for each side and price a first-in-first-out list, threaded through
 * arrays so that nothing is allocated. A slot is an index into them. One thread.
 */
final class RestingOrders {
    static final int NONE = -1;

    final long[] id;
    final long[] quantity;
    final long[] cumQuantity;
    final long[] notional;
    final int[] price;
    final byte[] side;

    private final int[] next;
    private final int[] previous;
    private final int[][] first = new int[3][];
    private final int[][] last = new int[3][];
    private final int[] best = {0, 0, 0};
    private final int priceMax;
    private int free;
    private int count;

    /** @param priceMax prices are 1 to this, in ticks */
    RestingOrders(final int countMax, final int priceMax) {
        id = new long[countMax];
        quantity = new long[countMax];
        cumQuantity = new long[countMax];
        notional = new long[countMax];
        price = new int[countMax];
        side = new byte[countMax];
        next = new int[countMax];
        previous = new int[countMax];
        this.priceMax = priceMax;
        for (int i = 0; i < countMax; i++) {
            next[i] = i + 1 < countMax ? i + 1 : NONE;
        }
        for (final byte s : new byte[] {Command.BUY, Command.SELL}) {
            first[s] = new int[priceMax + 2];
            last[s] = new int[priceMax + 2];
            java.util.Arrays.fill(first[s], NONE);
            java.util.Arrays.fill(last[s], NONE);
        }
        best[Command.SELL] = priceMax + 1;
    }

    boolean isFull() {
        return free == NONE;
    }

    int count() {
        return count;
    }

    /** Best price of a side; 0 (buy) or one above the highest price (sell) when nobody is there. */
    int bestPrice(final byte ofSide) {
        return best[ofSide];
    }

    /** The oldest order at the best price, NONE = the side is empty. */
    int bestSlot(final byte ofSide) {
        return first[ofSide][best[ofSide]];
    }

    int firstAt(final byte ofSide, final int atPrice) {
        return first[ofSide][atPrice];
    }

    int nextOf(final int slot) {
        return next[slot];
    }

    /** Takes a free slot and puts an order at the end of its price. Not when {@link #isFull}. */
    int add(final byte ofSide, final int atPrice, final long orderId) {
        final int slot = free;
        free = next[slot];
        count++;
        id[slot] = orderId;
        side[slot] = ofSide;
        price[slot] = atPrice;
        next[slot] = NONE;
        previous[slot] = last[ofSide][atPrice];
        if (previous[slot] == NONE) {
            first[ofSide][atPrice] = slot;
        } else {
            next[previous[slot]] = slot;
        }
        last[ofSide][atPrice] = slot;
        if (ofSide == Command.BUY ? atPrice > best[ofSide] : atPrice < best[ofSide]) {
            best[ofSide] = atPrice;
        }
        return slot;
    }

    void remove(final int slot) {
        final byte s = side[slot];
        final int p = price[slot];
        if (previous[slot] == NONE) {
            first[s][p] = next[slot];
        } else {
            next[previous[slot]] = next[slot];
        }
        if (next[slot] == NONE) {
            last[s][p] = previous[slot];
        } else {
            previous[next[slot]] = previous[slot];
        }
        next[slot] = free;
        free = slot;
        count--;
        if (first[s][p] == NONE && p == best[s]) {
            moveBest(s);
        }
    }

    /** Walks to the next price at which somebody is; the ends of the arrays stand for nobody. */
    private void moveBest(final byte s) {
        final int step = s == Command.BUY ? -1 : 1;
        int p = best[s];
        while (p >= 1 && p <= priceMax && first[s][p] == NONE) {
            p += step;
        }
        best[s] = p;
    }
}

package io.github.farlog.orderpath.load;

import io.github.farlog.orderpath.book.Command;
import java.util.SplittableRandom;

/**
 * The order generator's flow: quotes that rest around a price that wanders, immediate-or-cancel orders that take them,
 * and a request to cancel each quote once it is old, whether it was traded meanwhile or not. So the book stays as deep
 * as the quotes that are kept, however long it runs. Drawn from the seed alone; allocates nothing after its making. One
 * thread.
 */
public final class OrderFlow {
    /** Prices that the flow may use are below this. */
    public static final int PRICE_MAX = 20_000;
    /** How many quotes are left in the book before the oldest is cancelled. */
    public static final int QUOTE_COUNT_MAX = 512;

    private static final int PRICE_START = PRICE_MAX / 2;
    private static final int PRICE_MARGIN = 1_000;
    private static final int QUOTE_DEPTH = 20;
    private static final int TAKE_DEPTH = 10;
    private static final int LOT = 100;

    private final SplittableRandom random;
    private final long[] quotes = new long[QUOTE_COUNT_MAX];
    private long quoteCount;
    private long cancelCount;
    private long lastId;
    private int middle = PRICE_START;

    public OrderFlow(final long seed) {
        random = new SplittableRandom(seed);
    }

    /** Makes {@code command} the next one of the flow. Its id is one more than that before. */
    public void next(final Command command) {
        final long id = ++lastId;
        if (quoteCount - cancelCount == QUOTE_COUNT_MAX) {
            command.cancel(id, quotes[(int) (cancelCount++ % QUOTE_COUNT_MAX)]);
            return;
        }
        walk();
        final int draw = random.nextInt(64);
        final byte side = (draw & 1) == 0 ? Command.BUY : Command.SELL;
        final int away = side == Command.BUY ? -1 : 1;
        if (draw < 32) {
            final int price = middle - away * random.nextInt(TAKE_DEPTH);
            command.order(Command.IMMEDIATE_OR_CANCEL, id, side, LOT * (1 + random.nextInt(5)), price);
        } else {
            quotes[(int) (quoteCount++ % QUOTE_COUNT_MAX)] = id;
            final int price = middle + away * (1 + random.nextInt(QUOTE_DEPTH));
            command.order(Command.LIMIT, id, side, LOT * (1 + random.nextInt(10)), price);
        }
    }

    private void walk() {
        final int step = random.nextInt(64);
        if (step < 2) {
            middle = Math.clamp(middle + (step == 0 ? -1 : 1), PRICE_MARGIN, PRICE_MAX - PRICE_MARGIN);
        }
    }
}

package io.github.farlog.orderpath.book;

/**
 * The order book of one instrument, with continuous matching in price-time priority. What it does depends on the
 * commands and their order alone: no clock, no random number, no hash order. So the same commands give the same book
 * and the same reports, which is what makes a journal of the commands a backup of the book.
 *
 * <p>One thread. Allocates nothing after its making.
 */
public final class OrderBook {
    private static final int FINISHED_COUNT = 1 << 16;

    private final int priceMax;
    private final RestingOrders resting;
    private final IdMap slots;
    private final FinishedOrders finished = new FinishedOrders(FINISHED_COUNT);
    private final Report report = new Report();
    private Reports out;
    private long execId;
    private long appliedCount;
    private long lastId;

    // The incoming order while it is matched.
    private long cumQuantity;
    private long notional;

    /**
     * @param restingMax how many orders may rest at once; more are rejected
     * @param priceMax prices are 1 to this, in ticks
     */
    public OrderBook(final int restingMax, final int priceMax) {
        this.priceMax = priceMax;
        resting = new RestingOrders(restingMax, priceMax);
        slots = new IdMap(restingMax);
    }

    /** Applies a command; its reports are given to {@code reports} before this returns, at least one. */
    public void apply(final Command command, final Reports reports) {
        out = reports;
        appliedCount++;
        lastId = Math.max(lastId, command.id);
        report.dueNs = command.dueNs;
        if (command.kind == Command.CANCEL) {
            cancel(command);
        } else if (isAcceptable(command)) {
            place(command);
        } else {
            reportIncoming(command, Report.REJECTED, '8', 0, true);
        }
    }

    public int restingCount() {
        return resting.count();
    }

    /** How many commands were applied. */
    public long appliedCount() {
        return appliedCount;
    }

    /** The highest number of a command that was applied; 0 = none. */
    public long lastId() {
        return lastId;
    }

    /** Best bid in ticks; 0 = nobody bids. */
    public int bestBid() {
        return resting.bestPrice(Command.BUY);
    }

    /** Best offer in ticks; one above the highest price = nobody offers. */
    public int bestOffer() {
        return resting.bestPrice(Command.SELL);
    }

    public boolean isResting(final long orderId) {
        return slots.get(orderId) != IdMap.NONE;
    }

    /**
     * Everything that the book will ever decide by, in priority order, as one number. Not for the order path: it walks
     * all prices.
     */
    public long checksum() {
        long sum = mix(mix(0, execId), appliedCount);
        for (byte side = Command.BUY; side <= Command.SELL; side++) {
            for (int price = 1; price <= priceMax; price++) {
                for (int slot = resting.firstAt(side, price); slot != RestingOrders.NONE; slot = resting.nextOf(slot)) {
                    sum = mix(mix(mix(sum, resting.id[slot]), resting.quantity[slot]), resting.cumQuantity[slot]);
                    sum = mix(mix(mix(sum, resting.notional[slot]), side), price);
                }
            }
        }
        return sum;
    }

    private static long mix(final long sum, final long value) {
        final long x = (sum ^ value) * 0x9E3779B97F4A7C15L;
        return x ^ x >>> 29;
    }

    private boolean isAcceptable(final Command command) {
        return command.id > 0 && command.quantity > 0 && command.price >= 1 && command.price <= priceMax
            && (command.side == Command.BUY || command.side == Command.SELL)
            && (command.kind == Command.IMMEDIATE_OR_CANCEL || command.kind == Command.LIMIT && !resting.isFull())
            && slots.get(command.id) == IdMap.NONE;
    }

    private void place(final Command command) {
        cumQuantity = 0;
        notional = 0;
        final boolean isImmediate = command.kind == Command.IMMEDIATE_OR_CANCEL;
        final boolean isCrossing = isCrossing(command);
        reportIncoming(command, Report.NEW, '0', command.quantity, !isCrossing && !isImmediate);
        while (cumQuantity < command.quantity && isCrossing(command)) {
            trade(command);
        }
        if (cumQuantity == command.quantity) {
            finished.add(command.id, (byte) '2');
        } else if (isImmediate) {
            finished.add(command.id, (byte) '4');
            reportIncoming(command, Report.CANCELED, '4', 0, true);
        } else {
            rest(command);
        }
    }

    private void rest(final Command command) {
        final int slot = resting.add(command.side, command.price, command.id);
        resting.quantity[slot] = command.quantity;
        resting.cumQuantity[slot] = cumQuantity;
        resting.notional[slot] = notional;
        slots.put(command.id, slot);
    }

    private boolean isCrossing(final Command command) {
        return command.side == Command.BUY
            ? resting.bestPrice(Command.SELL) <= Math.min(command.price, priceMax)
            : resting.bestPrice(Command.BUY) >= Math.max(command.price, 1);
    }

    /**
     * One trade with the oldest order at the best price of the other side, at that order's price. Resting side first.
     */
    private void trade(final Command command) {
        final byte otherSide = command.side == Command.BUY ? Command.SELL : Command.BUY;
        final int slot = resting.bestSlot(otherSide);
        final int price = resting.price[slot];
        final long left = resting.quantity[slot] - resting.cumQuantity[slot];
        final long traded = Math.min(left, command.quantity - cumQuantity);
        resting.cumQuantity[slot] += traded;
        resting.notional[slot] += traded * price;
        cumQuantity += traded;
        notional += traded * price;
        report.lastQuantity = traded;
        report.lastPrice = price;
        reportResting(slot, Report.TRADE, traded == left ? '2' : '1', left - traded, 0, false);
        if (traded == left) {
            finish(slot, (byte) '2');
        }
        final long leaves = command.quantity - cumQuantity;
        final boolean isOver = leaves == 0;
        final boolean isLast = isOver || command.kind == Command.LIMIT && !isCrossing(command);
        report.lastQuantity = traded;
        report.lastPrice = price;
        reportIncoming(command, Report.TRADE, isOver ? '2' : '1', leaves, isLast);
    }

    private void cancel(final Command command) {
        final int slot = slots.get(command.targetId);
        if (slot == IdMap.NONE) {
            refuseCancel(command);
            return;
        }
        reportResting(slot, Report.CANCELED, '4', 0, command.id, true);
        finish(slot, (byte) '4');
    }

    private void refuseCancel(final Command command) {
        final byte status = finished.statusOf(command.targetId);
        report.orderId = command.targetId;
        report.side = 0;
        report.orderKind = 0;
        report.quantity = 0;
        report.price = 0;
        report.cumQuantity = 0;
        report.notional = 0;
        emit(Report.CANCEL_REFUSED, status == 0 ? '8' : (char) status, 0, command.id, true);
    }

    private void finish(final int slot, final byte status) {
        finished.add(resting.id[slot], status);
        slots.remove(resting.id[slot]);
        resting.remove(slot);
    }

    private void reportIncoming(final Command command, final byte kind, final char status, final long leaves,
        final boolean isLast) {
        report.orderId = command.id;
        report.side = command.side;
        report.orderKind = command.kind;
        report.quantity = command.quantity;
        report.price = command.price;
        report.cumQuantity = kind == Report.REJECTED ? 0 : cumQuantity;
        report.notional = kind == Report.REJECTED ? 0 : notional;
        emit(kind, status, leaves, 0, isLast);
    }

    private void reportResting(final int slot, final byte kind, final char status, final long leaves,
        final long requestId,
        final boolean isLast) {
        report.orderId = resting.id[slot];
        report.side = resting.side[slot];
        report.orderKind = Command.LIMIT;
        report.quantity = resting.quantity[slot];
        report.price = resting.price[slot];
        report.cumQuantity = resting.cumQuantity[slot];
        report.notional = resting.notional[slot];
        emit(kind, status, leaves, requestId, isLast);
    }

    private void emit(final byte kind, final char status, final long leaves, final long requestId,
        final boolean isLast) {
        report.kind = kind;
        report.status = (byte) status;
        report.leavesQuantity = leaves;
        report.requestId = requestId;
        report.execId = ++execId;
        report.isLast = isLast;
        if (kind != Report.TRADE) {
            report.lastQuantity = 0;
            report.lastPrice = 0;
        }
        out.onReport(report);
    }
}

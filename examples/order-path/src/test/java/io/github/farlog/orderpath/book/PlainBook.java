package io.github.farlog.orderpath.book;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;

/** What an order book is by definition, as slowly and plainly as can be: a list, sorted by price and then by time. */
final class PlainBook {
    /** One trade: who was hit, who hit, how much, at what price. */
    record Trade(long restingId, long incomingId, long quantity, int price) {
    }

    /** An order that rests; arrival gives time priority. */
    static final class Resting {
        final long id;
        final byte side;
        final int price;
        final long arrival;
        long left;

        Resting(final Command command, final long arrival, final long left) {
            this.id = command.id;
            this.side = command.side;
            this.price = command.price;
            this.arrival = arrival;
            this.left = left;
        }
    }

    final List<Resting> resting = new ArrayList<>();
    private long arrivals;

    /** Matches and returns the trades. */
    List<Trade> apply(final Command command) {
        final List<Trade> trades = new ArrayList<>();
        if (command.kind == Command.CANCEL) {
            resting.removeIf(order -> order.id == command.targetId);
            return trades;
        }
        final boolean isBuy = command.side == Command.BUY;
        final Comparator<Resting> byPrice = Comparator.comparingInt(order -> isBuy ? order.price : -order.price);
        final List<Resting> others = new ArrayList<>(resting.stream()
            .filter(order -> order.side != command.side
                && (isBuy ? order.price <= command.price : order.price >= command.price))
            .sorted(byPrice.thenComparingLong(order -> order.arrival)).toList());
        long left = command.quantity;
        for (final Resting other : others) {
            final long traded = Math.min(left, other.left);
            if (traded == 0) {
                break;
            }
            trades.add(new Trade(other.id, command.id, traded, other.price));
            left -= traded;
            other.left -= traded;
        }
        resting.removeIf(order -> order.left == 0);
        if (left > 0 && command.kind == Command.LIMIT) {
            resting.add(new Resting(command, arrivals++, left));
        }
        return trades;
    }
}

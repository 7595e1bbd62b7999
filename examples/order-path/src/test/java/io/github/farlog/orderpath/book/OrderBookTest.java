package io.github.farlog.orderpath.book;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.junit.jupiter.api.Test;

/**
 * Random commands against the plain book: each trade must be the one that price-time priority gives; and whatever the
 * trades, quantities are conserved, no price is worse than the limit, nothing immediate rests, and each life of an
 * order is one that FIX allows.
 */
final class OrderBookTest {
    private static final int PRICE_MAX = 40; // few prices: much matching, many orders at one price
    private static final int RESTING_MAX = 64;
    private static final int COMMAND_COUNT = 20_000;

    private final OrderBook book = new OrderBook(RESTING_MAX, PRICE_MAX);
    private final PlainBook plain = new PlainBook();
    private final Map<Long, Life> lives = new HashMap<>();
    private final List<Report> answers = new ArrayList<>();

    /** What is known of one order from its reports alone. */
    private static final class Life {
        Command order;
        long cumQuantity;
        long notional;
        boolean isNew;
        boolean isOver;
    }

    @Test
    void shouldKeepPriceTimePriorityAndConserveQuantitiesWhenOrdersAreRandom() {
        for (int round = 0; round < 10; round++) {
            final long seed = System.nanoTime();
            try {
                new OrderBookTest().run(new Random(seed));
            } catch (final AssertionError e) {
                throw new AssertionError("seed " + seed, e);
            }
        }
    }

    @Test
    void shouldGiveTheSameBookAndReportsWhenCommandsAreTheSame() {
        final long[] sums = new long[2];
        for (int i = 0; i < 2; i++) {
            final OrderBookTest test = new OrderBookTest();
            test.run(new Random(20261121));
            sums[i] = test.book.checksum();
        }
        assertEquals(sums[0], sums[1]);
    }

    @Test
    void shouldCancelTheRestAndNeverRestWhenImmediate() {
        send(new Command().order(Command.LIMIT, 1, Command.SELL, 100, 10));
        answers.clear();
        send(new Command().order(Command.IMMEDIATE_OR_CANCEL, 2, Command.BUY, 250, 12));
        assertEquals(List.of(Report.NEW, Report.TRADE, Report.TRADE, Report.CANCELED),
            answers.stream().map(r -> r.kind).toList());
        assertEquals(100, answers.getLast().cumQuantity);
        assertEquals(0, answers.getLast().leavesQuantity);
        assertEquals(10, answers.get(1).lastPrice, "a trade is at the resting order's price");
        assertFalse(book.isResting(2));
        assertEquals(0, book.restingCount());
    }

    @Test
    void shouldSayHowTheOrderEndedWhenCancelComesTooLate() {
        send(new Command().order(Command.LIMIT, 1, Command.SELL, 100, 10));
        send(new Command().order(Command.IMMEDIATE_OR_CANCEL, 2, Command.BUY, 100, 10));
        send(new Command().cancel(3, 1));
        assertEquals(Report.CANCEL_REFUSED, answers.getLast().kind);
        assertEquals('2', answers.getLast().status);
        send(new Command().cancel(4, 99));
        assertEquals('8', answers.getLast().status);
    }

    @Test
    void shouldRejectWhenTermsAreOutOfRangeOrBookIsFull() {
        final Command[] bad = {new Command().order(Command.LIMIT, 1, Command.BUY, 0, 5),
            new Command().order(Command.LIMIT, 2, Command.BUY, 1, 0),
            new Command().order(Command.LIMIT, 3, Command.BUY, 1, PRICE_MAX + 1),
            new Command().order(Command.LIMIT, 4, (byte) 3, 1, 5),
            new Command().order((byte) 9, 5, Command.BUY, 1, 5)};
        for (final Command command : bad) {
            send(command);
            assertEquals(Report.REJECTED, answers.getLast().kind, "order " + command.id);
        }
        for (int i = 0; i < RESTING_MAX; i++) {
            send(new Command().order(Command.LIMIT, 10 + i, Command.BUY, 1, 5));
            assertEquals(Report.NEW, answers.getLast().kind);
        }
        send(new Command().order(Command.LIMIT, 9, Command.BUY, 1, 5));
        assertEquals(Report.REJECTED, answers.getLast().kind);
        assertEquals(RESTING_MAX, book.restingCount());
    }

    @Test
    void shouldFindEveryIdWhenIdsCollideInTheMap() {
        final IdMap map = new IdMap(512);
        final Map<Long, Integer> model = new HashMap<>();
        final long seed = System.nanoTime();
        final Random random = new Random(seed);
        for (int i = 0; i < 200_000; i++) {
            final long id = 1 + random.nextInt(900);
            if (model.remove(id) != null) {
                map.remove(id);
            } else if (model.size() < 512) {
                model.put(id, i);
                map.put(id, i);
            }
            final long asked = 1 + random.nextInt(900);
            assertEquals(model.getOrDefault(asked, IdMap.NONE), map.get(asked), "seed " + seed + " step " + i);
        }
    }

    private void run(final Random random) {
        for (int i = 1; i <= COMMAND_COUNT; i++) {
            final Command command = draw(random, i);
            final boolean isRejected = command.kind == Command.LIMIT && plain.resting.size() == RESTING_MAX;
            answers.clear();
            send(command);
            checkTrades(command, isRejected ? List.of() : plain.apply(command));
            answers.forEach(this::follow);
            assertEquals(1, answers.stream().filter(report -> report.isLast).count(), "one last report");
            assertTrue(answers.getLast().isLast);
            assertEquals(plain.resting.size(), book.restingCount());
            assertTrue(book.bestBid() < book.bestOffer(), "the book is never crossed");
        }
        checkRest();
    }

    private static Command draw(final Random random, final long id) {
        final byte side = random.nextBoolean() ? Command.BUY : Command.SELL;
        final int price = 1 + random.nextInt(PRICE_MAX);
        return switch (random.nextInt(5)) {
            case 0 -> new Command().cancel(id, 1 + random.nextLong(id));
            case 1, 2 -> new Command().order(Command.IMMEDIATE_OR_CANCEL, id, side, 1 + random.nextInt(300), price);
            default -> new Command().order(Command.LIMIT, id, side, 1 + random.nextInt(300), price);
        };
    }

    private void send(final Command command) {
        if (command.kind != Command.CANCEL) {
            lives.computeIfAbsent(command.id, id -> new Life()).order = command;
        }
        book.apply(command, report -> {
            final Report copy = new Report();
            copy.copyFrom(report);
            answers.add(copy);
        });
    }

    /** Trades come in pairs, resting side first, and are those of the plain book in its order. */
    private void checkTrades(final Command command, final List<PlainBook.Trade> expected) {
        final List<PlainBook.Trade> found = new ArrayList<>();
        final List<Report> trades = answers.stream().filter(report -> report.kind == Report.TRADE).toList();
        for (int i = 0; i < trades.size(); i += 2) {
            final Report resting = trades.get(i);
            final Report incoming = trades.get(i + 1);
            assertEquals(resting.lastQuantity, incoming.lastQuantity, "what one side gains the other loses");
            assertEquals(resting.lastPrice, incoming.lastPrice);
            found
                .add(new PlainBook.Trade(resting.orderId, incoming.orderId, incoming.lastQuantity, incoming.lastPrice));
        }
        assertEquals(expected, found, "trades of command " + command.id);
        if (command.kind == Command.IMMEDIATE_OR_CANCEL) {
            assertFalse(book.isResting(command.id), "an immediate order never rests");
        }
    }

    /** Holds a report against all that the order's earlier ones have said. */
    private void follow(final Report report) {
        if (report.kind == Report.CANCEL_REFUSED) {
            return;
        }
        final Life life = lives.get(report.orderId);
        assertFalse(life.isOver, "order " + report.orderId + " comes back to life");
        assertEquals(report.kind != Report.NEW && report.kind != Report.REJECTED, life.isNew,
            "New comes first, and once");
        life.isNew = true;
        if (report.kind == Report.TRADE) {
            final boolean isBuy = report.side == Command.BUY;
            assertTrue(isBuy ? report.lastPrice <= life.order.price : report.lastPrice >= life.order.price,
                "worse than the limit");
            life.cumQuantity += report.lastQuantity;
            life.notional += report.lastQuantity * report.lastPrice;
        }
        life.isOver = report.status == '2' || report.status == '4' || report.status == '8';
        assertEquals(life.cumQuantity, report.cumQuantity);
        assertEquals(life.notional, report.notional);
        assertEquals(life.isOver ? 0 : life.order.quantity - life.cumQuantity, report.leavesQuantity);
        assertEquals(report.status == '2', report.cumQuantity == life.order.quantity);
    }

    /** What rests at the end is what the plain book has, with what the lives say is left. */
    private void checkRest() {
        for (final PlainBook.Resting order : plain.resting) {
            assertTrue(book.isResting(order.id));
            assertEquals(lives.get(order.id).order.quantity - lives.get(order.id).cumQuantity, order.left);
        }
        lives.forEach((id, life) -> assertEquals(!life.isOver, book.isResting(id), "order " + id));
    }
}

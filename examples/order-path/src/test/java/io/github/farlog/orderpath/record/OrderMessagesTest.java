package io.github.farlog.orderpath.record;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.github.farlog.orderpath.book.Command;
import io.github.farlog.orderpath.book.OrderBook;
import java.nio.charset.StandardCharsets;
import org.junit.jupiter.api.Test;
import quickfix.DataDictionary;
import quickfix.Message;

/** The messages are read by a FIX engine that is not ours: framing, body length, check sum, types of the fields. */
final class OrderMessagesTest {
    private final OrderMessages messages = new OrderMessages("RUN-1A-", "FLGA");

    @Test
    void shouldBeValidForAnotherEngineWhenOrdersTradeAndAreCancelled() throws Exception {
        final DataDictionary dictionary = new DataDictionary("FIX44.xml");
        final OrderBook book = new OrderBook(16, 20_000);
        final Command[] commands = {new Command().order(Command.LIMIT, 1, Command.SELL, 300, 10_050),
            new Command().order(Command.LIMIT, 2, Command.SELL, 300, 10_051),
            new Command().order(Command.IMMEDIATE_OR_CANCEL, 3, Command.BUY, 700, 10_060),
            new Command().order(Command.LIMIT, 4, Command.BUY, 100, 1), new Command().cancel(5, 4),
            new Command().cancel(6, 3), new Command().cancel(7, 99)};
        for (final Command command : commands) {
            messages.write(command);
            assertEquals(String.format("RUN-1A-%09d", command.id), parse(dictionary).getString(11));
            book.apply(command, report -> {
                messages.write(report);
                try {
                    final Message parsed = parse(dictionary);
                    assertEquals(
                        String.format("RUN-1A-%09d", report.requestId == 0 ? report.orderId : report.requestId),
                        parsed.getString(11));
                } catch (final Exception e) {
                    throw new AssertionError(text(), e);
                }
            });
        }
    }

    @Test
    void shouldGiveAveragePriceToSixPlacesWhenPricesDiffer() throws Exception {
        final OrderBook book = new OrderBook(16, 20_000);
        book.apply(new Command().order(Command.LIMIT, 1, Command.SELL, 100, 10_050), report -> {});
        book.apply(new Command().order(Command.LIMIT, 2, Command.SELL, 200, 10_051), report -> {});
        final String[] last = new String[1];
        book.apply(new Command().order(Command.IMMEDIATE_OR_CANCEL, 3, Command.BUY, 300, 10_060), report -> {
            messages.write(report);
            last[0] = text();
        });
        assertEquals("100.506667", new Message(last[0], new DataDictionary("FIX44.xml"), false).getString(6));
    }

    private Message parse(final DataDictionary dictionary) throws Exception {
        final Message message = new Message(text(), dictionary, true);
        final String key = new String(messages.bytes(), messages.keyOffset(), messages.keyLength(),
            StandardCharsets.US_ASCII);
        assertEquals(message.getString(11), key);
        assertEquals(RecordClass.ofMsgType(message.getHeader().getString(35)), messages.recordClass());
        return message;
    }

    private String text() {
        return new String(messages.bytes(), 0, messages.length(), StandardCharsets.US_ASCII);
    }
}

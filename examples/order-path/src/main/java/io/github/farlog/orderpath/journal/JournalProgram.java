package io.github.farlog.orderpath.journal;

import io.github.farlog.client.Level;
import io.github.farlog.orderpath.Arguments;
import io.github.farlog.orderpath.book.Command;
import io.github.farlog.orderpath.book.OrderBook;
import io.github.farlog.orderpath.load.OrderFlow;
import io.github.farlog.orderpath.record.FarlogStream;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Locale;
import java.util.function.LongConsumer;
import java.util.concurrent.locks.LockSupport;

/**
 * Runs the journalled engine: makes the book from what the journal has, goes on with the flow from there, and at the
 * end makes the book once more from the journal alone and compares. Started again, or after it was killed, it goes on
 * where it was.
 */
public final class JournalProgram {
    /** What keeps the journal. */
    private enum Kind {
        FARLOG, FILE, FORCED
    }

    private static final VarHandle LONG = ValueLayout.JAVA_LONG.varHandle();

    private JournalProgram() {
    }

    public static int run(final String[] words) throws Exception {
        final Arguments arguments = new Arguments("run journal [--NAME VALUE ...]")
            .option("journal", "farlog", "farlog, file (RandomAccessFile) or forced (the same, forced at each batch)")
            .ring("ring", "farlog-journal.ring", "URI of the ring of --journal farlog")
            .option("size", "256MiB", "size of a ring that is formatted")
            .option("level", "visible", "durability level of --journal farlog: visible on tmpfs, persistent on a file")
            .option("file", "order-path.journal", "file of --journal file and forced")
            .option("orders", "200000", "orders and requests to place")
            .option("rate", "0", "orders a second, 0 = as fast as they are taken")
            .option("seed", "1", "seed of the flow; the same for a journal's whole life")
            .option("acks", "", "file whose first 8 bytes are kept at the id that was acknowledged last").parse(words);
        final OrderBook book = newBook();
        try (Arena arena = Arena.ofShared(); Journal journal = open(arguments)) {
            print("journal: %s%n",
                arguments.text("journal").equals("farlog")
                    ? "farlog, " + arguments.uri("ring") + ", level " + arguments.text("level")
                    : arguments.text("journal") + ", " + arguments.text("file"));
            final long replayed = journal.replay(command -> book.apply(command, report -> {}));
            print("replayed %d commands, checksum %016x%n", replayed, book.checksum());
            trade(arguments, book, journal, replayed, acknowledgements(arguments.text("acks"), arena));
        }
        prove(arguments, book);
        return 0;
    }

    /** The book of this program: its flow never fills it. */
    static OrderBook newBook() {
        return new OrderBook(2 * OrderFlow.QUOTE_COUNT_MAX, OrderFlow.PRICE_MAX);
    }

    /** The flow of a seed, behind its first so many commands. */
    static OrderFlow flowAfter(final long seed, final long count) {
        final OrderFlow flow = new OrderFlow(seed);
        final Command passed = new Command();
        for (long i = 0; i < count; i++) {
            flow.next(passed);
        }
        return flow;
    }

    private static void trade(final Arguments arguments, final OrderBook book, final Journal journal,
        final long replayed,
        final LongConsumer acknowledge) throws Exception {
        final OrderFlow flow = flowAfter(arguments.count("seed"), replayed);
        final int count = arguments.count("orders");
        final long startNs = System.nanoTime();
        try (JournalledEngine engine = new JournalledEngine(book, journal, acknowledge)) {
            place(engine, flow, count, arguments.count("rate"));
            engine.drain();
        }
        final double seconds = (System.nanoTime() - startNs) / 1e9;
        print("placed %d commands in %.2f s, %.0f a second, checksum %016x%n", count, seconds, count / seconds,
            book.checksum());
    }

    /** The journal's use, shown: the book that it makes is the book that there is. */
    private static void prove(final Arguments arguments, final OrderBook book) throws Exception {
        final OrderBook remade = newBook();
        try (Journal again = open(arguments)) {
            final long count = again.replay(command -> remade.apply(command, report -> {}));
            print("remade from %d commands, checksum %016x%n", count, remade.checksum());
        }
        if (remade.checksum() != book.checksum()) {
            throw new IllegalStateException("the book that the journal makes is not the book that it was written for");
        }
    }

    private static void place(final JournalledEngine engine, final OrderFlow flow, final int count, final int rate) {
        final Command command = new Command();
        final long startNs = System.nanoTime();
        for (int i = 0; i < count; i++) {
            final long dueNs = rate == 0 ? startNs : startNs + (long) (i * (1e9 / rate));
            while (dueNs - System.nanoTime() > 0) {
                LockSupport.parkNanos(dueNs - System.nanoTime());
            }
            flow.next(command);
            engine.place(command);
        }
    }

    private static Journal open(final Arguments arguments) throws Exception {
        final Kind kind = arguments.choice("journal", Kind.class);
        if (kind != Kind.FARLOG) {
            return new RandomAccessFileJournal(Path.of(arguments.text("file")), kind == Kind.FORCED);
        }
        final FarlogStream stream = new FarlogStream(arguments.uri("ring"), arguments.choice("level", Level.class));
        return new FarlogJournal(stream.formatted("order-path/journal", arguments.bytes("size")));
    }

    /**
     * Writes each acknowledged id into a mapped file: there it survives the process, at once and without a system call.
     */
    private static LongConsumer acknowledgements(final String path, final Arena arena) throws IOException {
        if (path.isEmpty()) {
            return id -> {};
        }
        try (FileChannel file = FileChannel.open(Path.of(path), StandardOpenOption.CREATE, StandardOpenOption.READ,
            StandardOpenOption.WRITE)) {
            final MemorySegment last = file.map(FileChannel.MapMode.READ_WRITE, 0, Long.BYTES, arena);
            return id -> LONG.setRelease(last, 0L, id);
        }
    }

    private static void print(final String format, final Object... values) {
        System.out.printf(Locale.ROOT, format, values);
    }
}

package io.github.farlog.orderpath.journal;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.github.farlog.client.Level;
import io.github.farlog.orderpath.book.Command;
import io.github.farlog.orderpath.book.OrderBook;
import io.github.farlog.orderpath.load.OrderFlow;
import io.github.farlog.orderpath.record.FarlogStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

final class JournalTest {
    private static final int COUNT = 20_000;

    @TempDir
    Path folder;

    @Test
    void shouldMakeTheSameBookWhenFarlogJournalIsReplayed() throws Exception {
        final FarlogStream stream = new FarlogStream("mem:" + folder.resolve("ring"), Level.PERSISTENT)
            .formatted("test/journal", 16 << 20);
        checkReplay(() -> new FarlogJournal(stream));
    }

    @Test
    void shouldMakeTheSameBookWhenFileJournalIsReplayed() throws Exception {
        checkReplay(() -> new RandomAccessFileJournal(folder.resolve("journal"), true));
    }

    @Test
    void shouldCutTheTailOffWhenFileJournalIsTorn() throws Exception {
        final Path path = folder.resolve("torn");
        try (Journal journal = new RandomAccessFileJournal(path, false)) {
            append(journal, new OrderFlow(1), 10);
        }
        Files.write(path, new byte[] {1, 2, 3}, StandardOpenOption.APPEND);
        try (Journal journal = new RandomAccessFileJournal(path, false)) {
            assertEquals(10, journal.replay(command -> {}));
            append(journal, new OrderFlow(2), 1);
        }
        try (Journal journal = new RandomAccessFileJournal(path, false)) {
            assertEquals(11, journal.replay(command -> {}));
        }
    }

    @Test
    void shouldStopTheEngineWhenTheJournalIsFull() throws Exception {
        final FarlogStream stream = new FarlogStream("mem:" + folder.resolve("small"), Level.VISIBLE)
            .formatted("test/journal", 64 << 10);
        final long[] acknowledged = new long[1];
        try (Journal journal = new FarlogJournal(stream)) {
            final JournalledEngine engine = new JournalledEngine(JournalProgram.newBook(), journal,
                id -> acknowledged[0] = id);
            assertThrows(IllegalStateException.class, () -> place(engine, COUNT));
            engine.close();
        }
        try (Journal journal = new FarlogJournal(stream)) {
            final long found = journal.replay(command -> {});
            assertEquals(true, found >= acknowledged[0] && found > 100,
                found + " found, " + acknowledged[0] + " acknowledged");
        }
    }

    /** Opens a journal. */
    private interface Opener {
        Journal open() throws Exception;
    }

    private static void checkReplay(final Opener opener) throws Exception {
        final OrderBook book = JournalProgram.newBook();
        try (Journal journal = opener.open(); JournalledEngine engine = new JournalledEngine(book, journal, id -> {})) {
            place(engine, COUNT);
        }
        final OrderBook remade = JournalProgram.newBook();
        try (Journal journal = opener.open()) {
            assertEquals(COUNT, journal.replay(command -> remade.apply(command, report -> {})));
        }
        assertEquals(book.checksum(), remade.checksum());
    }

    private static void place(final JournalledEngine engine, final int count) {
        final OrderFlow flow = new OrderFlow(1);
        final Command command = new Command();
        for (int i = 0; i < count; i++) {
            flow.next(command);
            engine.place(command);
        }
        engine.drain();
    }

    private static void append(final Journal journal, final OrderFlow flow, final int count) {
        final Command command = new Command();
        for (int i = 0; i < count; i++) {
            flow.next(command);
            journal.append(command);
        }
        journal.sync();
    }
}

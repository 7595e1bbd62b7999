package io.github.farlog.orderpath.journal;

import io.github.farlog.orderpath.book.Command;
import java.util.function.Consumer;

/**
 * Where a matching engine's input is kept, so that its book can be made again. First {@link #replay} what is there,
 * then append. One thread at a time.
 */
public interface Journal extends AutoCloseable {
    /**
     * Gives every whole command of the journal, in order. To be called once, before the first append.
     *
     * @param to gets a command that is valid only during the call
     * @return how many there were
     */
    long replay(Consumer<Command> to);

    /** Writes a command behind the others. It is not safe yet. Throws when it is not written: the engine must stop. */
    void append(Command command);

    /** Returns when all that was appended is safe, to the level that this journal was opened with; throws otherwise. */
    void sync();

    @Override
    void close();
}

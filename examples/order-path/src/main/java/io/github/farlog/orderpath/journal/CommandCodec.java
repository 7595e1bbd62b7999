package io.github.farlog.orderpath.journal;

import io.github.farlog.orderpath.book.Command;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** A command as bytes, of a fixed length: kind, side, two zeros, price, id, target id, quantity; little endian. */
final class CommandCodec {
    static final int LENGTH = 32;

    private CommandCodec() {
    }

    static ByteBuffer buffer(final int length) {
        return ByteBuffer.allocate(length).order(ByteOrder.LITTLE_ENDIAN);
    }

    static void write(final Command command, final ByteBuffer to) {
        to.put(command.kind).put(command.side).putShort((short) 0).putInt(command.price);
        to.putLong(command.id).putLong(command.targetId).putLong(command.quantity);
    }

    static void read(final ByteBuffer from, final Command command) {
        command.kind = from.get();
        command.side = from.get();
        from.getShort();
        command.price = from.getInt();
        command.id = from.getLong();
        command.targetId = from.getLong();
        command.quantity = from.getLong();
        command.dueNs = 0;
    }
}

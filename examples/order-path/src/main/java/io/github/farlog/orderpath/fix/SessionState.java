package io.github.farlog.orderpath.fix;

import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.NavigableMap;
import java.util.TreeMap;
import quickfix.SessionID;

/**
 * What a session must know after a restart: its next sequence numbers, since when it counts, and the messages that it
 * may be asked to send again. The records of a stream, applied in their order, make it. Guarded by the store that owns
 * it.
 */
final class SessionState {
    private final NavigableMap<Integer, String> messages = new TreeMap<>();
    private int nextSender = 1;
    private int nextTarget = 1;
    private Instant created = Instant.now().truncatedTo(ChronoUnit.MILLIS); // no finer than it is written
    private boolean isRecorded;

    int nextSender() {
        return nextSender;
    }

    int nextTarget() {
        return nextTarget;
    }

    Instant created() {
        return created;
    }

    NavigableMap<Integer, String> messages() {
        return messages;
    }

    /** The key of a session's records that concern no order, and the name under which its state is found again. */
    static String keyOf(final SessionID session) {
        return session.getBeginString() + " " + session.getSenderCompID() + ">" + session.getTargetCompID();
    }

    /** The session that sent a message, in the form of {@link #keyOf}. */
    static String senderOf(final String message) {
        return FixFields.valueOf(message, 8) + " " + FixFields.valueOf(message, 49) + ">"
            + FixFields.valueOf(message, 56);
    }

    /** The payload of a record of class {@link FixClass#STATE}. */
    static String write(final int nextSender, final int nextTarget, final Instant created) {
        return "sender=" + nextSender + " target=" + nextTarget + " created=" + created.toEpochMilli();
    }

    /** Takes over what {@link #write} wrote. Another time of creation means that the session began again. */
    void apply(final String text) {
        final Instant newCreated = Instant.ofEpochMilli(Long.parseLong(number(text, "created=")));
        if (isRecorded && !newCreated.equals(created)) {
            messages.clear();
        }
        isRecorded = true;
        created = newCreated;
        nextSender = Integer.parseInt(number(text, "sender="));
        nextTarget = Integer.parseInt(number(text, "target="));
    }

    void keep(final int sequence, final String message) {
        messages.put(sequence, message);
    }

    private static String number(final String text, final String name) {
        final int start = text.indexOf(name) + name.length();
        final int end = text.indexOf(' ', start);
        return text.substring(start, end < 0 ? text.length() : end);
    }
}

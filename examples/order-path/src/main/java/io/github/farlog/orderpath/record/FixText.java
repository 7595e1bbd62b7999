package io.github.farlog.orderpath.record;

import java.nio.charset.StandardCharsets;

/**
 * Writes one FIX message at a time into a buffer that is reused, without allocating. BodyLength has a fixed width with
 * leading zeros, as FIX allows, so that it can be put in when the body is there. One thread.
 */
final class FixText {
    private static final byte SOH = 1;
    private static final int BODY_LENGTH_DIGITS = 4;

    private final byte[] bytes;
    private final byte[] digits = new byte[20];
    private final int bodyStart;
    private int length;

    /** @param lengthMax longest message, in bytes */
    FixText(final String beginString, final int lengthMax) {
        bytes = new byte[lengthMax];
        put("8=").put(beginString).end().put("9=").put("0".repeat(BODY_LENGTH_DIGITS)).end();
        bodyStart = length;
    }

    byte[] bytes() {
        return bytes;
    }

    int length() {
        return length;
    }

    FixText begin(final byte[] head) {
        length = bodyStart;
        return put(head);
    }

    FixText put(final byte[] text) {
        System.arraycopy(text, 0, bytes, length, text.length);
        length += text.length;
        return this;
    }

    FixText put(final byte character) {
        bytes[length++] = character;
        return this;
    }

    FixText put(final long number) {
        int count = 0;
        long rest = number;
        do {
            digits[count++] = (byte) ('0' + rest % 10);
            rest /= 10;
        } while (rest != 0);
        while (count > 0) {
            bytes[length++] = digits[--count];
        }
        return this;
    }

    /** A number with so many digits, zeros in front. */
    FixText putPadded(final long number, final int width) {
        long rest = number;
        for (int i = length + width - 1; i >= length; i--) {
            bytes[i] = (byte) ('0' + rest % 10);
            rest /= 10;
        }
        length += width;
        return this;
    }

    /** A fixed-point number: 12345 with 2 places is 123.45. */
    FixText putDecimal(final long scaled, final int places) {
        long unit = 1;
        for (int i = 0; i < places; i++) {
            unit *= 10;
        }
        return put(scaled / unit).put((byte) '.').putPadded(scaled % unit, places);
    }

    /** Ends a field. */
    FixText end() {
        bytes[length++] = SOH;
        return this;
    }

    /** Puts BodyLength and CheckSum in; the message is whole then. */
    void finish() {
        final int bodyLength = length - bodyStart;
        final int end = length;
        length = bodyStart - 1 - BODY_LENGTH_DIGITS;
        putPadded(bodyLength, BODY_LENGTH_DIGITS);
        length = end;
        int sum = 0;
        for (int i = 0; i < end; i++) {
            sum += bytes[i];
        }
        put(CHECK_SUM).putPadded(sum & 0xff, 3).end();
    }

    private static final byte[] CHECK_SUM = ascii("10=");

    static byte[] ascii(final String text) {
        return text.replace('|', (char) SOH).getBytes(StandardCharsets.US_ASCII);
    }

    private FixText put(final String text) {
        return put(ascii(text));
    }
}

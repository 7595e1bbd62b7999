package io.github.farlog.orderpath.fix;

/** Finds single fields in the text of a FIX message, without parsing it. */
final class FixFields {
    private static final char SOH = 1;

    private FixFields() {
    }

    /** The value of the first field with this tag; empty = there is none. */
    static String valueOf(final String message, final int tag) {
        final String head = tag + "=";
        int start = message.startsWith(head) ? 0 : message.indexOf(SOH + head) + 1;
        if (start == 0 && !message.startsWith(head)) {
            return "";
        }
        start += head.length();
        final int end = message.indexOf(SOH, start);
        return message.substring(start, end < 0 ? message.length() : end);
    }
}

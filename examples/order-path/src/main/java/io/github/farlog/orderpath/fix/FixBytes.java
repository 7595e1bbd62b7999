package io.github.farlog.orderpath.fix;

import org.quickfixj.CharsetSupport;

/**
 * A message as it is on the wire. QuickFIX/J hands a store characters, and says by {@link CharsetSupport} what bytes
 * they were (ISO-8859-1 unless an application sets another): in any other encoding a character that it does not have
 * would come back as a question mark, under a checksum that no longer fits.
 */
final class FixBytes {
    private FixBytes() {
    }

    static byte[] of(final String text) {
        return text.getBytes(CharsetSupport.getCharsetInstance());
    }

    static String text(final byte[] bytes) {
        return new String(bytes, CharsetSupport.getCharsetInstance());
    }
}

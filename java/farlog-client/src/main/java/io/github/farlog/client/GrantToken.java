package io.github.farlog.client;

import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.HexFormat;

/** What lets one writer into a ring on another host. A secret: {@link #toString} does not tell it. Immutable. */
public final class GrantToken {
    private static final int LEN = 16;

    private final byte[] bytes;

    private GrantToken(final byte[] bytes) {
        this.bytes = bytes;
    }

    /**
     * Takes a token from a grant.
     *
     * @param bytes 16 of them
     * @return the token
     * @throws IllegalArgumentException there are more or fewer
     */
    public static GrantToken of(final byte[] bytes) {
        if (bytes.length != LEN) {
            throw new IllegalArgumentException("token of " + bytes.length + " bytes: expected " + LEN);
        }
        return new GrantToken(bytes.clone());
    }

    /**
     * Takes a token as {@code farlog stream grant} writes it.
     *
     * @param digits 32 hexadecimal digits
     * @return the token
     * @throws IllegalArgumentException they are not; the text does not tell them
     */
    public static GrantToken ofHex(final String digits) {
        try {
            return of(HexFormat.of().parseHex(digits));
        } catch (final IllegalArgumentException e) {
            throw new IllegalArgumentException(
                "token of " + digits.length() + " characters: expected " + 2 * LEN + " hexadecimal digits");
        }
    }

    void copyTo(final MemorySegment target) {
        target.copyFrom(MemorySegment.ofArray(bytes));
    }

    @Override
    public boolean equals(final Object other) {
        return other instanceof final GrantToken token && Arrays.equals(bytes, token.bytes);
    }

    @Override
    public int hashCode() {
        return Arrays.hashCode(bytes);
    }

    @Override
    public String toString() {
        return "GrantToken";
    }
}

package io.github.farlog.client;

/**
 * A CRC-32C that goes on from a seed, which {@link java.util.zip.CRC32C} cannot. The CRC is linear: the one begun with
 * a seed differs from the plain one by the seed moved on over as many zero bytes as there were bytes.
 */
final class Crc32cSeed {
    private static final int POLYNOMIAL = 0x82F63B78; // reflected
    private static final int ONE = 0x80000000; // x to the power 0, reflected

    private Crc32cSeed() {
    }

    /** The seed multiplied by x to the power of 8 times len, modulo the polynomial. */
    static int shift(final int seed, final long len) {
        int power = ONE >>> 8; // x to the power 8
        int result = seed;
        for (long left = len; left != 0; left >>>= 1) {
            if ((left & 1) != 0) {
                result = multiply(result, power);
            }
            power = multiply(power, power);
        }
        return result;
    }

    private static int multiply(final int a, final int b) {
        int product = 0;
        int factor = b;
        for (int bit = 0; bit < Integer.SIZE; bit++) {
            if ((a & ONE >>> bit) != 0) {
                product ^= factor;
            }
            factor = factor >>> 1 ^ ((factor & 1) != 0 ? POLYNOMIAL : 0);
        }
        return product;
    }
}

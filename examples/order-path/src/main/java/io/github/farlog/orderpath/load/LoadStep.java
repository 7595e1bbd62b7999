package io.github.farlog.orderpath.load;

import java.util.ArrayList;
import java.util.List;

/**
 * One step of a load: so many pairs of generator and engine, each with so many orders a second.
 *
 * @param pairCount at least 1
 * @param ratePerSecond of each pair
 */
public record LoadStep(int pairCount, int ratePerSecond) {
    private static final int PAIR_COUNT_MAX = 16;
    private static final int RATE_MAX = 10_000_000;

    /** Reads a list as {@code 1k,50k,6x50k}. */
    public static List<LoadStep> parseList(final String text) {
        final List<LoadStep> steps = new ArrayList<>();
        for (final String word : text.split(",")) {
            steps.add(parse(word.strip()));
        }
        return steps;
    }

    static LoadStep parse(final String word) {
        if (!word.matches("(\\d{1,2}x)?\\d{1,7}k?")) {
            throw new IllegalArgumentException("step \"" + word + "\": expected orders a second as 500, 10k or 6x50k");
        }
        final int times = word.indexOf('x');
        final int pairCount = times < 0 ? 1 : Integer.parseInt(word.substring(0, times));
        final String number = word.substring(times + 1).replace("k", "");
        final long rate = Long.parseLong(number) * (word.endsWith("k") ? 1000 : 1);
        if (pairCount < 1 || pairCount > PAIR_COUNT_MAX || rate < 1 || rate > RATE_MAX) {
            throw new IllegalArgumentException(
                "step \"" + word + "\": expected 1 to " + PAIR_COUNT_MAX + " pairs and 1 to "
                    + RATE_MAX + " orders a second");
        }
        return new LoadStep(pairCount, (int) rate);
    }

    /** As the tables print it. */
    @Override
    public String toString() {
        final String rate = ratePerSecond % 1000 == 0 ? ratePerSecond / 1000 + " k" : Integer.toString(ratePerSecond);
        return pairCount == 1 ? rate : pairCount + " x " + rate;
    }
}

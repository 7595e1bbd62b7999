package io.github.farlog.bench;

/** What one fork said about one target, in nanoseconds. */
record Sample(String name, double p50, double p99, double p999, double p9999, double max, long count,
    long collections) {
    /** Reads a line of a fork; null when it is some library's. */
    static Sample parse(final String line) {
        if (!line.startsWith(Fork.MARK + " ")) {
            return null;
        }
        final String[] words = line.split(" ");
        return new Sample(words[1], Double.parseDouble(words[2]), Double.parseDouble(words[3]),
            Double.parseDouble(words[4]),
            Double.parseDouble(words[5]), Double.parseDouble(words[6]), Long.parseLong(words[7]),
            Long.parseLong(words[8]));
    }

    double at(final String quantile) {
        return switch (quantile) {
            case "p50" -> p50;
            case "p99" -> p99;
            case "p999" -> p999;
            case "p9999" -> p9999;
            case "max" -> max;
            default -> throw new IllegalArgumentException(quantile);
        };
    }
}

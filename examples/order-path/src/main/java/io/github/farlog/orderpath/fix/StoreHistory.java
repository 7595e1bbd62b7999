package io.github.farlog.orderpath.fix;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The history in the store of a daemon, read by {@code farlog dump}, which checks every record on the way. */
final class StoreHistory implements History {
    private static final Pattern LINE = Pattern
        .compile("\"seq\":(\\d+),.*\"flags\":\"([^\"]*)\",(\"superseded\":true,)?\"class\":(\\d+),"
            + "(?:\"key\":\"([0-9a-f]*)\",)?\"len\":\\d+(?:,\"payload\":\"([0-9a-f]*)\")?");

    private final ProcessBuilder dump;

    /** @param farlog the command line program */
    StoreHistory(final Path farlog, final Path store, final String streamName) {
        dump = new ProcessBuilder(farlog.toString(), "dump", store.toString(), "--stream", streamName, "--output",
            "json", "--payload", "hex")
            .redirectError(ProcessBuilder.Redirect.INHERIT);
    }

    @Override
    public long replay(final Records to) {
        long nextSeq = 0;
        try {
            final Process process = dump.start();
            try (BufferedReader lines = process.inputReader(StandardCharsets.US_ASCII)) {
                for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                    nextSeq = Math.max(nextSeq, take(line, to));
                }
            }
            if (process.waitFor() != 0) {
                throw new IllegalStateException(
                    String.join(" ", dump.command()) + ": exit code " + process.exitValue());
            }
        } catch (final IOException e) {
            throw new UncheckedIOException("run " + String.join(" ", dump.command()), e);
        } catch (final InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException("interrupted while reading the store", e);
        }
        return nextSeq;
    }

    private static long take(final String line, final Records to) {
        final Matcher field = LINE.matcher(line);
        if (!field.find()) {
            throw new IllegalStateException("farlog dump said " + line + ", expected a record");
        }
        if (field.group(3) != null) { // a later epoch replaced it: it was never acknowledged
            return 0;
        }
        if ("-".equals(field.group(2))) {
            to.onRecord(Integer.parseInt(field.group(4)), textOf(field.group(5)), textOf(field.group(6)));
        }
        return Long.parseLong(field.group(1)) + 1;
    }

    private static String textOf(final String hex) {
        return hex == null ? "" : FixBytes.text(HexFormat.of().parseHex(hex));
    }
}

package io.github.farlog.endtoend;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/** A record in the store, as {@code farlog dump} shows it. */
record Stored(long lsn, int classId, String text) {
    private static final Pattern LINE = Pattern
        .compile("\\S+ lsn=(\\d+) .* flags=(\\S+) class=(\\d+) (?:key=\\S* )?len=\\d+ ?(.*)");

    /** Every record of the application that is in force, in the order of the store. */
    static List<Stored> of(final Fabric fabric, final String stream) throws IOException, InterruptedException {
        final List<Stored> all = new ArrayList<>();
        try (Stream<String> lines = Files.lines(fabric.farlog("dump", fabric.store().toString(), "--stream", stream))) {
            lines.forEach(line -> {
                final Matcher matcher = LINE.matcher(line);
                assertTrue(matcher.matches(), line);
                if (matcher.group(2).equals("-")) {
                    all.add(new Stored(Long.parseLong(matcher.group(1)), Integer.parseInt(matcher.group(3)),
                        matcher.group(4)));
                }
            });
        }
        return all;
    }

    /**
     * Compares what is stored with what the applications noted: nothing that was refused is there, nothing twice, the
     * events of a thread in order.
     *
     * @return the events whose calls returned and that are not there
     */
    static List<String> missing(final List<Stored> records, final Map<String, Notes> runs) {
        final List<String> missing = new ArrayList<>();
        final Map<String, int[]> next = new HashMap<>();
        for (final Stored stored : records) {
            final String[] words = stored.text.split(" ");
            final int thread = Integer.parseInt(words[1]);
            final int number = Integer.parseInt(words[2]);
            final int[] due = next.computeIfAbsent(words[0], run -> new int[Notes.THREADS]);
            assertEquals(Application.event(words[0], thread, number).strip(), stored.text.strip());
            assertTrue(number >= due[thread], () -> "twice or out of order: " + stored);
            assertTrue(runs.get(words[0]).get(thread, number) != Notes.REFUSED,
                () -> "refused, and yet there: " + stored);
            collect(missing, words[0], runs.get(words[0]), thread, due[thread], number);
            due[thread] = number + 1;
        }
        runs.forEach((run, notes) -> {
            for (int thread = 0; thread < Notes.THREADS; thread++) {
                collect(missing, run, notes, thread, next.getOrDefault(run, new int[Notes.THREADS])[thread],
                    Notes.EVENTS_MAX);
            }
        });
        return missing;
    }

    private static void collect(final List<String> missing, final String run, final Notes notes, final int thread,
        final int from, final int to) {
        for (int number = from; number < to; number++) {
            if (notes.get(thread, number) == Notes.RETURNED) {
                missing.add(run + ' ' + thread + ' ' + number);
            }
        }
    }
}

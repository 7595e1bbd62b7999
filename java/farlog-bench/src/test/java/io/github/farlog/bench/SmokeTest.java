package io.github.farlog.bench;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Every case starts, acknowledges and closes. No figure is looked at. */
class SmokeTest {
    private static final Path FOLDER = Path.of(System.getProperty("farlog.bench.dir", "target/smoke"));

    @AfterAll
    static void removeFiles() throws Exception {
        Bench.remove(FOLDER);
    }

    @ParameterizedTest
    @ValueSource(
        strings = {"farlog", "farlog.msync", "chronicle", "chronicle.sync", "aeron", "disruptor", "disruptor.force"})
    void shouldAcknowledgeWhenSystemIsRunAlone(final String name) throws Exception {
        Files.createDirectories(FOLDER);
        run(Fork.neighbour(name, FOLDER));
    }

    @Test
    void shouldAcknowledgeInEveryForm() throws Exception {
        for (final FarlogTarget.Form form : FarlogTarget.Form.values()) {
            run(FarlogTarget.inMemory("smoke", form, 192));
        }
    }

    @Test
    void shouldLogToAllThreeAppenders() throws Exception {
        Files.createDirectories(FOLDER);
        try (LogTarget.Context context = new LogTarget.Context(FOLDER)) {
            for (final Target target : List.of(context.farlog(), context.file(), context.forced())) {
                run(target);
            }
        }
        assertEquals(10, Files.readAllLines(FOLDER.resolve("log4j2.log")).size());
        assertEquals(10, Files.readAllLines(FOLDER.resolve("log4j2-forced.log")).size());
    }

    @Test
    void shouldReadOnlyMarkedLines() {
        final List<Sample> found = new ArrayList<>();
        for (final String line : List.of("some library: hello", Fork.MARK + " c 100 300 480 801 4071423 7856500 2")) {
            final Sample sample = Sample.parse(line);
            if (sample != null) {
                found.add(sample);
            }
        }
        assertEquals(List.of(new Sample("c", 100, 300, 480, 801, 4_071_423, 7_856_500, 2)), found);
    }

    private static void run(final Target target) throws Exception {
        final long[] samples = new long[10];
        target.block(samples, samples.length);
        target.rest(samples.length);
        target.close();
        for (final long sample : samples) {
            assertEquals(sample, Math.clamp(sample, 1, Long.MAX_VALUE), target.name());
        }
    }
}

package io.github.farlog.endtoend;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * From the logging call to the store: applications with Log4j and with Logback log into rings that a drain moves into
 * its store, and everything on the way is killed. Every event whose call returned is in the store, in the order of its
 * thread, and the store proves itself. Afterwards no byte of the rings is looked at: what is compared is what
 * {@code farlog dump} prints of the store.
 */
@Timeout(1800)
class StoreTest {
    /** Of each framework's applications. */
    private static final int KILLS = Integer.getInteger("farlog.kills", 6);
    private static final List<String> FRAMEWORKS = List.of("log4j2", "logback");
    private static final int LIFE_MILLIS = 600;
    /** More than a ring of 1 MiB takes. */
    private static final int ROOM_EVENTS = 8000;
    private static final Pattern GAP = Pattern.compile("farlog\\.gap dropped=(\\d+) unknown=(\\d+) .*");
    private static Fabric fabric;
    private static Applications applications;

    @BeforeAll
    static void start(@TempDir final Path folder) throws Exception {
        fabric = new Fabric(Path.of("/dev/shm"), "storage1");
        applications = new Applications(folder);
    }

    @AfterAll
    static void stop() throws IOException {
        if (fabric != null) {
            fabric.close();
        }
    }

    /** One stream, on which one application after another is killed. */
    private final class Lane {
        private final String framework;
        private final String stream;
        private final List<String> uris;
        private final Random random;
        private final Map<String, Notes> runs = new HashMap<>();

        /** By the ring's own URI, or by the agent: then once in memory, once from afar, as it comes. */
        Lane(final String framework, final boolean isByAgent, final Random random) throws Exception {
            this.framework = framework;
            this.random = random;
            stream = "desk7/" + framework + (isByAgent ? "-agent" : "-mem");
            final String agent = fabric.stream(stream, "128KiB");
            uris = isByAgent ? List.of(agent + "&transport=mem", agent + "&transport=ofi") : List.of(near());
        }

        String near() throws IOException {
            return fabric.near(stream);
        }

        Void killAgainAndAgain(final int kills) throws Exception {
            for (int i = 0; i < kills; i++) {
                final String run = stream.replace('/', '-') + '-' + i;
                final String uri = uris.get(random.nextInt(uris.size()));
                final Process process = applications.start(framework, uri, "block(60s)", "30s", run);
                runs.put(run, applications.notes(run));
                await(process, run, Notes.RETURNED, 1 + random.nextInt(200));
                Thread.sleep(random.nextInt(LIFE_MILLIS));
                killAlive(process, run);
                assertEquals(0, runs.get(run).count(Notes.REFUSED) + runs.get(run).count(Notes.UNKNOWN),
                    () -> run + ": a call threw, " + uri);
            }
            return null;
        }
    }

    @Test
    void shouldHoldEveryEventWhoseCallReturnedWhateverIsKilled() throws Exception {
        final long seed = Long.getLong("farlog.seed", System.nanoTime());
        System.out.println(
            "end to end: seed " + seed + " (-Dfarlog.seed; -Dfarlog.kills=N of each framework, now " + KILLS + ')');
        final Random random = new Random(seed);
        final List<Lane> lanes = new ArrayList<>();
        for (final String framework : FRAMEWORKS) {
            lanes.add(new Lane(framework, false, new Random(random.nextLong())));
            lanes.add(new Lane(framework, true, new Random(random.nextLong())));
        }
        final List<String> rings = new ArrayList<>();
        for (final Lane lane : lanes) {
            rings.add(lane.near());
        }
        final Misfortunes misfortunes = new Misfortunes(fabric, rings, random);
        misfortunes.start();
        try (ExecutorService executor = Executors.newFixedThreadPool(lanes.size())) {
            final List<Future<Void>> all = new ArrayList<>();
            for (final Lane lane : lanes) {
                all.add(executor
                    .submit(() -> lane.killAgainAndAgain(Math.ceilDiv(KILLS, lanes.size() / FRAMEWORKS.size()))));
            }
            for (final Future<Void> each : all) {
                each.get();
            }
        }
        final Map<String, Integer> happened = misfortunes.end();
        long events = 0;
        for (final Lane lane : lanes) {
            final List<Stored> stored = fabric.drained(lane.stream);
            assertEquals(List.of(), Stored.missing(stored, lane.runs), lane.stream);
            happened.merge("RECONFIGURED", lane.runs.values().stream().mapToInt(Notes::reconfigurations).sum(),
                Integer::sum);
            events += stored.size();
        }
        verify();
        System.out.println("end to end: " + KILLS + " applications of each framework killed, " + events
            + " events in the store, none missing; "
            + happened);
        assertTrue(happened.values().stream().allMatch(count -> count > 0),
            () -> "not everything has happened: " + happened);
        assertTrue(events > 100L * KILLS * FRAMEWORKS.size(), "too few events to tell anything: " + events);
    }

    /**
     * A target that stays away longer than the deadline: calls throw. What had returned is stored, and it goes on when
     * the target is back.
     */
    @ParameterizedTest
    @ValueSource(strings = {"log4j2", "logback"})
    void shouldThrowWhileTheTargetIsDownAndGoOnBehindIt(final String framework) throws Exception {
        final String stream = "desk8/" + framework;
        final String run = "down-" + framework;
        final Process process = applications.start(framework, fabric.stream(stream, "1MiB") + "&transport=ofi",
            "block(200ms)", "200ms", run);
        final Notes notes = applications.notes(run);
        await(process, run, Notes.RETURNED, 100);
        fabric.kill(Fabric.TARGET);
        await(process, run, Notes.UNKNOWN, 1);
        fabric.start(Fabric.TARGET);
        await(process, run, Notes.RETURNED, notes.count(Notes.RETURNED) + 100);
        killAlive(process, run);
        assertEquals(List.of(), Stored.missing(fabric.drained(stream), Map.of(run, notes)));
        verify();
    }

    /**
     * A full ring: what was refused is not in the store; and what a policy drops is missing there, one for one as the
     * gap records tell.
     */
    @ParameterizedTest
    @CsvSource({"log4j2,block(50ms)", "logback,block(50ms)", "log4j2,dropAndGap", "logback,dropAndGap"})
    void shouldTellOfEveryEventThatAFullRingDidNotTake(final String framework, final String policy) throws Exception {
        final String run = framework + '-' + policy.substring(0, 4);
        final String stream = "desk9/" + run;
        final Process process = applications.start(framework, fabric.stream(stream, "1MiB"), policy, "5s", run);
        final Notes notes = applications.notes(run);
        await(process, run, Notes.RETURNED, 100);
        fabric.pause(Fabric.DRAIN);
        final boolean isDropping = policy.equals("dropAndGap");
        await(process, run, isDropping ? Notes.RETURNED : Notes.REFUSED, isDropping ? ROOM_EVENTS : 3);
        fabric.proceed(Fabric.DRAIN);
        if (isDropping) {
            awaitGap(process, run, stream);
        }
        await(process, run, Notes.RETURNED, notes.count(Notes.RETURNED) + 100);
        killAlive(process, run);
        final List<Stored> all = fabric.drained(stream);
        final long dropped = all.stream().map(stored -> GAP.matcher(stored.text())).filter(Matcher::matches)
            .mapToLong(gap -> Long.parseLong(gap.group(1))).sum();
        final List<Stored> events = all.stream().filter(stored -> stored.classId() == 0).toList();
        assertEquals(dropped, Stored.missing(events, Map.of(run, notes)).size());
        assertEquals(isDropping, dropped > 0);
        verify();
    }

    /** The record that tells what was dropped stands before the next event that is not. */
    private static void awaitGap(final Process process, final String run, final String stream) throws Exception {
        final long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (Stored.of(fabric, stream).stream().noneMatch(stored -> GAP.matcher(stored.text()).matches())) {
            assertTrue(process.isAlive() && System.nanoTime() < end, () -> run + ": no gap record; " + read(run));
            Thread.sleep(50);
        }
    }

    private static void await(final Process process, final String run, final byte outcome, final int least)
        throws Exception {
        final Notes notes = applications.notes(run);
        final long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(120);
        while (notes.count(outcome) < least) {
            assertTrue(process.isAlive(), () -> run + " ended by itself: " + read(run));
            assertTrue(System.nanoTime() < end, () -> run + ": " + notes.count(outcome) + " of " + least
                + " calls with outcome " + outcome + ": " + read(run));
            Thread.sleep(5);
        }
    }

    private static void killAlive(final Process process, final String run) throws InterruptedException {
        assertTrue(process.isAlive(), () -> run + " ended by itself: " + read(run));
        process.destroyForcibly();
        assertEquals(128 + 9, process.waitFor());
    }

    private static String read(final String run) {
        try {
            return Files.readString(applications.output(run));
        } catch (final IOException e) {
            return e.toString();
        }
    }

    private static void verify() throws Exception {
        // Exits with 1 when anything is missing, altered or out of order.
        fabric.farlog("verify", fabric.store().toString());
    }
}

package io.github.farlog.client.gap;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.farlog.client.Result;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Every dropped event is told once, in one gap or another, whatever happens while a gap is being told. */
@Timeout(1800)
class GapLogTest {
    private final GapLog gaps = new GapLog();
    private final List<String> told = new ArrayList<>();

    private Result flush(final GapLog.Sink sink) {
        return gaps.flush(sink, System.nanoTime() + TimeUnit.SECONDS.toNanos(30));
    }

    private Result tell(final Gap gap) {
        told.add(gap.text());
        return Result.OK;
    }

    private static String text(final int dropped, final int unknown, final int from, final int to, final Result cause) {
        return "farlog.gap dropped=" + dropped + " unknown=" + unknown + " from=1970-01-01T00:00:0" + from
            + "Z to=1970-01-01T00:00:0" + to
            + "Z cause=" + cause;
    }

    @Test
    void shouldTellNothingWhenNothingWasDropped() {
        assertEquals(Result.OK, flush(this::tell));
        assertNull(gaps.takeUnreported());
        assertEquals(List.of(), told);
    }

    /**
     * The medium may take its whole deadline: who drops meanwhile must not wait for it, and its event is the next gap.
     */
    @Test
    void shouldNoteADropWhileAGapIsBeingTold() throws Exception {
        gaps.add(Instant.ofEpochSecond(3), Result.FULL);
        final CountDownLatch isTelling = new CountDownLatch(1);
        final CountDownLatch isNoted = new CountDownLatch(1);
        final Thread teller = Thread.ofPlatform().start(() -> flush(gap -> {
            isTelling.countDown();
            try {
                assertTrue(isNoted.await(30, TimeUnit.SECONDS), "a drop waits for the record of a gap");
            } catch (final InterruptedException e) {
                return Result.UNKNOWN;
            }
            return tell(gap);
        }));
        isTelling.await();
        gaps.add(Instant.ofEpochSecond(5), Result.FENCED);
        assertEquals(2, gaps.pendingEvents());
        assertEquals(Result.FULL, gaps.flush(this::tell, System.nanoTime() - 1), "somebody else is telling");
        isNoted.countDown();
        teller.join();
        assertTrue(gaps.isPending());
        assertEquals(Result.OK, flush(this::tell));
        assertFalse(gaps.isPending());
        assertEquals(List.of(text(1, 0, 3, 3, Result.FULL), text(1, 0, 5, 5, Result.FENCED)), told);
    }

    @Test
    void shouldNotTellAgainWhatMayBeInTheRing() {
        final List<Result> answers = new ArrayList<>(List.of(Result.UNKNOWN, Result.OK, Result.NOT_FOUND));
        final GapLog.Sink unsure = new GapLog.Sink() {
            @Override
            public Result write(final Gap gap) {
                tell(gap);
                return told.size() < 3 ? Result.UNKNOWN : Result.OK;
            }

            @Override
            public Result resolve() {
                return answers.removeFirst();
            }
        };
        gaps.add(Instant.ofEpochSecond(3), Result.FULL);
        assertEquals(Result.UNKNOWN, flush(unsure));
        gaps.add(Instant.ofEpochSecond(5), Result.FULL);
        assertEquals(Result.UNKNOWN, flush(unsure), "it is not known yet");
        assertEquals(List.of(text(1, 0, 3, 3, Result.FULL)), told);
        assertEquals(2, gaps.pendingEvents());
        assertEquals(Result.UNKNOWN, flush(unsure), "the first is there, the second may be");
        assertEquals(1, gaps.pendingEvents());
        gaps.add(Instant.ofEpochSecond(7), Result.FULL);
        assertEquals(Result.OK, flush(unsure), "the second is not there");
        assertEquals(
            List.of(text(1, 0, 3, 3, Result.FULL), text(1, 0, 5, 5, Result.FULL), text(2, 0, 5, 7, Result.FULL)), told);
        assertFalse(gaps.isPending());
    }

    @Test
    void shouldHandOverWhatMayBeInTheRingWhenItCanBeToldNoOtherWay() {
        gaps.add(Instant.ofEpochSecond(3), Result.FULL);
        assertEquals(Result.UNKNOWN, flush(gap -> Result.UNKNOWN));
        gaps.add(Instant.ofEpochSecond(5), Result.FULL);
        assertEquals(text(2, 0, 3, 5, Result.FULL), gaps.takeUnreported().text());
        assertNull(gaps.takeUnreported());
    }

    @Test
    void shouldKeepWhatCouldNotBeTold() {
        gaps.add(Instant.ofEpochSecond(3), Result.FULL);
        assertEquals(Result.FULL, flush(gap -> {
            gaps.add(Instant.ofEpochSecond(5), Result.UNKNOWN);
            gaps.add(Instant.ofEpochSecond(1), Result.FULL);
            return Result.FULL;
        }));
        assertThrows(IllegalStateException.class, () -> flush(gap -> {
            throw new IllegalStateException();
        }));
        assertTrue(gaps.isPending());
        assertEquals(text(2, 1, 1, 5, Result.FULL), gaps.takeUnreported().text());
        assertFalse(gaps.isPending());
    }
}

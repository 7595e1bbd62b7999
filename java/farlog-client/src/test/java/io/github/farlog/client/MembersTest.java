package io.github.farlog.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A stream with three rings, two of which an acknowledgement needs. */
class MembersTest {
    private static final int COUNT = 1000;
    private final List<TestRing> rings = new ArrayList<>();
    private String uri;

    @BeforeEach
    void format() throws Exception {
        for (int i = 0; i < 3; i++) {
            rings.add(TestRing
                .inMemory(RingOptions.defaults().withSizeBytes(1 << 20).withStreamName("desk7/orders").withSalt(7)));
        }
        uri = "members:2 " + String.join(" ", rings.stream().map(ring -> ring.uri).toList());
    }

    @AfterEach
    void remove() throws Exception {
        for (final TestRing ring : rings) {
            ring.close();
        }
    }

    private WriterOptions options() {
        // A member's thread may have to wait for a processor.
        return rings.getFirst().options().withDeadline(Duration.ofSeconds(30));
    }

    @Test
    void shouldHoldEveryRecordOnAsManyMembersAsItsPositionSays() throws Exception {
        final Position position = new Position();
        try (SharedWriter writer = SharedWriter.open(uri, options())) {
            for (int i = 0; i < COUNT; i++) {
                final byte[] data = TestRing.numbered(0, i, 100);
                assertEquals(Result.OK, writer.append(data, 0, data.length, 1, null, 0, 0, 0, position));
                assertTrue(position.copies() >= 2, position::toString);
            }
        }
        try (Reader reader = Reader.open(uri, ReaderOptions.defaults())) {
            assertEquals(COUNT, count(reader));
        }
        for (final TestRing ring : rings) {
            assertEquals(COUNT, ring.read().size(), ring.uri);
        }
    }

    /** The first ring is lost with all that is in it; what was acknowledged is on the others. */
    @Test
    void shouldHoldEveryRecordWhenAMemberIsLost() throws Exception {
        final Position position = new Position();
        try (Writer writer = Writer.open(uri, options())) {
            for (int i = 0; i < COUNT; i++) {
                assertEquals(Result.OK, writer.append(TestRing.numbered(0, i, 100), 0, 12, 1, null, 0, 0, 0, position));
            }
        }
        Files.delete(rings.getFirst().path);
        try (Writer writer = Writer.open(uri, options())) {
            assertEquals(Result.OK, writer.append(TestRing.numbered(0, COUNT, 100), 0, 12, 1, null, 0, 0, 0, position));
            assertEquals(2, position.copies());
        }
        try (Reader reader = Reader.open(uri, ReaderOptions.defaults())) {
            assertEquals(COUNT + 1, count(reader));
        }
    }

    /** C reads as many as there are members: fewer would be read beyond their end. */
    @Test
    void shouldTellOfEachMember(@TempDir final Path folder) throws Exception {
        Writer.open(uri, options()).close(); // the first opening takes all
        Files.delete(rings.get(1).path);
        try (Writer writer = Writer.open(uri, options().withCountersDir(folder.toString()))) {
            final long limit = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
            List<Long> states;
            do {
                states = writer.counters().members().stream().map(member -> member.value(MemberCounter.STATE)).toList();
            } while (!states.equals(List.of(1L, 3L, 1L)) && System.nanoTime() < limit);
            assertEquals(List.of(1L, 3L, 1L), states);
            assertEquals(0, writer.counters().members().getFirst().value(MemberCounter.EVICTION_COUNT));
        }
    }

    /** The second ring is lost for good, and a blank one takes its place while the writer goes on. */
    @Test
    void shouldTakeAnotherRingInThePlaceOfOne() throws Exception {
        Writer.open(uri, options()).close(); // the first opening takes all
        Files.delete(rings.get(1).path);
        try (
            TestRing blank = TestRing
                .inMemory(RingOptions.defaults().withSizeBytes(1 << 20).withStreamName("desk7/orders").withSalt(7));
            SharedWriter writer = SharedWriter.open(uri, options())) {
            final UUID uuid = Ring.inspect(blank.uri).ringUuid();
            assertEquals(3, writer.members().size());
            writer.replaceMember(1, blank.uri, uuid, null);
            final long limit = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
            while (writer.members().get(1).state() != MemberStatus.State.UP) {
                assertTrue(System.nanoTime() < limit, () -> writer.members().toString());
                assertEquals(Result.OK, writer.append(TestRing.numbered(0, 1, 100), 0, 12, 1, null, 0, 0, 0, null));
            }
            assertEquals(uuid, writer.members().get(1).ringUuid());
            assertEquals(writer.cursors().appendedLsn(), Ring.inspect(blank.uri).appendedLsn(),
                "it has all that is not stored");
            final var none = assertThrows(FarlogException.class, () -> writer.replaceMember(3, blank.uri, uuid, null));
            assertEquals(Result.INVALID, none.result(), none.getMessage());
            writer.closeWithResult();
            assertEquals(Result.CLOSED,
                assertThrows(FarlogException.class, () -> writer.replaceMember(1, blank.uri, uuid, null)).result());
        }
        try (Writer writer = rings.getFirst().writer()) {
            assertTrue(writer.members().isEmpty());
            final var one = assertThrows(FarlogException.class,
                () -> writer.replaceMember(0, "mem:/dev/shm/x", new UUID(1, 2), null));
            assertEquals(Result.UNSUPPORTED, one.result(), one.getMessage());
        }
    }

    @Test
    void shouldTakeAnIdentityAndATokenForEachMember() throws Exception {
        final List<UUID> uuids = new ArrayList<>();
        for (final TestRing ring : rings) {
            uuids.add(Ring.inspect(ring.uri).ringUuid());
        }
        Writer.open(uri, options().withRingUuids(uuids)).close();
        Writer.open(uri, options().withRingUuids(Arrays.asList(uuids.get(0), null, uuids.get(2)))).close();
        Writer.open(uri, options().withTokens(Arrays.asList(null, null, null))).close();
        shouldRefuse(Result.INVALID, "ring UUIDs: 1, expected 3", options().withRingUuid(uuids.getFirst()));
        final GrantToken token = GrantToken.ofHex("00112233445566778899aabbccddeeff");
        shouldRefuse(Result.INVALID, "tokens: 2, expected 3", options().withTokens(List.of(token, token)));
        final var reader = assertThrows(FarlogException.class,
            () -> Reader.open(uri, ReaderOptions.defaults().withRingUuid(uuids.getFirst())));
        assertEquals(Result.INVALID, reader.result());
    }

    private void shouldRefuse(final Result result, final String part, final WriterOptions options) {
        final var thrown = assertThrows(FarlogException.class, () -> Writer.open(uri, options));
        assertEquals(result, thrown.result());
        assertTrue(thrown.getMessage().contains(part), thrown.getMessage());
    }

    @Test
    void shouldSeeWhenTooFewMembersAreInPlace() throws Exception {
        final RingFile file = RingFile.of(uri);
        assertTrue(file.isInPlace());
        Files.delete(rings.get(1).path);
        assertTrue(file.isInPlace(), "two of them suffice");
        Files.delete(rings.get(2).path);
        assertFalse(file.isInPlace());
    }

    private static int count(final Reader reader) {
        final Batch batch = new Batch();
        int count = 0;
        while (reader.read(batch) == Result.OK) {
            while (batch.nextPayload()) {
                count++;
            }
        }
        return count;
    }
}

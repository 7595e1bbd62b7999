package io.github.farlog.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.TreeSet;
import org.junit.jupiter.api.Test;

/** The frozen bytes that C and Go are bound to, decoded in Java: same fields, same checksums. */
class GoldenTest {
    private static final Path GOLDEN = Programs.repository().resolve("rdma/test/golden");
    private static final int DATA_OFF = 0x3000;
    private static final int BLOCKS_DATA_OFF = 0x8000;

    private final Map<String, String> said = new HashMap<>();

    GoldenTest() throws Exception {
        for (final String line : Files.readAllLines(GOLDEN.resolve("golden.txt"))) {
            final String[] words = line.split(" ", 3);
            said.put(words[0] + " " + words[1], words[2]);
        }
    }

    private long number(final String file, final String field) {
        return Long.parseUnsignedLong(said.get(file + " " + field));
    }

    private static String hex(final MemorySegment bytes) {
        return bytes.byteSize() == 0 ? "-" : HexFormat.of().formatHex(NativeCalls.bytes(bytes));
    }

    private void assertRecord(final RecordView record, final String file, final String prefix) {
        assertEquals(number(file, prefix + "lsn"), record.lsn(), file);
        assertEquals(number(file, prefix + "flags"), record.flags(), file);
        assertEquals(number(file, prefix + "epoch"), record.epoch(), file);
        assertEquals(number(file, prefix + "payload_len"), Integer.toUnsignedLong(record.payloadLen()), file);
        assertEquals(number(file, prefix + "seq"), record.seq(), file);
        assertEquals(number(file, prefix + "ts_ns"), record.timestampNanos(), file);
        assertEquals(number(file, prefix + "clock_err_ns"), record.clockErrorNanos(), file);
        assertEquals(number(file, prefix + "class"), record.classId(), file);
        assertEquals(number(file, prefix + "key_len"), record.keyLen(), file);
        assertEquals(number(file, prefix + "stream_id"), Integer.toUnsignedLong(record.streamId()), file);
        assertEquals(number(file, prefix + "extent"), record.extent(), file);
        assertEquals(number(file, prefix + "stored_len"), record.storedLen(), file);
        assertEquals(said.getOrDefault(file + " " + prefix + "key", "-"), hex(record.key()), file);
        assertEquals(said.getOrDefault(file + " " + prefix + "payload", "-"), hex(record.payload()), file);
    }

    @Test
    void shouldDecodeEveryGoldenRecord() throws Exception {
        final TreeSet<String> files = new TreeSet<>();
        said.keySet().stream().map(key -> key.split(" ")[0]).filter(file -> file.startsWith("record_"))
            .forEach(files::add);
        assertTrue(files.size() >= 8, files.toString());
        for (final String file : files) {
            final byte[] raw = Files.readAllBytes(GOLDEN.resolve(file));
            final MemorySegment bytes = MemorySegment.ofArray(raw);
            final RecordView record = new RecordView().wrap(bytes, 0, (int) number(file, "align"));
            assertRecord(record, file, "");
            assertTrue(record.isValid(number(file, "salt"), record.lsn()), file);
            assertFalse(record.isValid(number(file, "salt") + 1, record.lsn()), file);
            assertFalse(record.isValid(number(file, "salt"), record.lsn() + 64), file);
            final int covered = RecordView.HEADER_LEN + record.keyLen() + (record.isPad() ? 0 : record.payloadLen());
            for (int at = 0; at < covered; at++) {
                raw[at] ^= 1;
                assertFalse(record.isValid(number(file, "salt"), number(file, "lsn")), file + " altered at " + at);
                raw[at] ^= 1;
            }
        }
    }

    @Test
    void shouldWalkTheGoldenRing() throws Exception {
        assertRing("ring_small.bin", DATA_OFF);
    }

    /** Records packed into LBAs, with PADs in the middle of the ring. */
    @Test
    void shouldWalkTheGoldenRingOnBlocks() throws Exception {
        assertRing("ring_blocks.bin", BLOCKS_DATA_OFF);
    }

    private void assertRing(final String file, final int dataOff) throws Exception {
        final MemorySegment bytes = MemorySegment.ofArray(Files.readAllBytes(GOLDEN.resolve(file)));
        final long capacity = bytes.byteSize() - dataOff;
        final long count = number(file, "record_count");
        assertTrue(count >= 8);
        long next = number(file, "head_lsn");
        for (int i = 0; i < count; i++) {
            final String prefix = "record." + i + ".";
            final long lsn = number(file, prefix + "lsn");
            assertEquals(next, lsn, prefix);
            final RecordView record = new RecordView().wrap(bytes, dataOff + lsn % capacity);
            next += record.extent();
            assertRecord(record, file, prefix);
            assertTrue(record.isValid(number(file, "salt"), lsn), prefix);
        }
    }

    @Test
    void shouldReadTheGoldenRingByTheLibrary() throws Exception {
        final String file = "ring_small.bin";
        final Path copy = Files.createTempFile("farlog-java-", ".ring");
        try {
            Files.write(copy, Files.readAllBytes(GOLDEN.resolve(file)));
            int seen = 0;
            try (Reader reader = Reader.open("mem:" + copy, ReaderOptions.defaults())) {
                final Batch batch = new Batch();
                while (reader.read(batch) == Result.OK) {
                    while (batch.next()) {
                        assertTrue(batch.record().isValid(number(file, "salt"), batch.lsn()));
                        seen++;
                    }
                }
            }
            assertTrue(seen > 0 && seen <= number(file, "record_count"), "read " + seen);
        } finally {
            Files.delete(copy);
        }
    }
}

package io.github.farlog.client;

import static io.github.farlog.client.Structs.BATCH;
import static io.github.farlog.client.Structs.off;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/**
 * Records that were read: whole, checked, copied out of the ring. Made once by the caller and filled by each read.
 * {@link #next} steps to the first and to each following record; then the record's fields are to be had. Views of key
 * and payload are good until the next read into this batch.
 *
 * <p>Belongs to one thread at a time; outlives its reader.
 */
public final class Batch {
    private static final long FIRST_LSN = off(BATCH, "first_lsn");
    private static final long NEXT_LSN = off(BATCH, "next_lsn");
    private static final long NEXT_SEQ = off(BATCH, "next_seq");
    private static final long RECORD_COUNT = off(BATCH, "record_count");
    private static final long LAST_EPOCH = off(BATCH, "last_epoch");
    private static final long IS_REWOUND = off(BATCH, "is_rewound");
    private static final long LEN = off(BATCH, "len");
    private static final int LEN_MIN = 1 << 20;

    private final MemorySegment head = Arena.ofAuto().allocate(BATCH);
    private final RecordView record = new RecordView();
    private MemorySegment records;
    private long used;
    private int align = 64;
    private long at; // of the record after the present one

    /** A batch of 1 MiB, which grows when a record does not fit. */
    public Batch() {
        this(LEN_MIN);
    }

    /**
     * A batch of a given size.
     *
     * @param bytes for the records of one read, at least 4096
     */
    public Batch(final int bytes) {
        records = Arena.ofAuto().allocate(Math.max(bytes, 4096), 64);
    }

    void clear() {
        used = 0;
        at = 0;
    }

    void begin(final boolean hasRecords, final int ringAlign) {
        align = ringAlign;
        used = hasRecords ? head.get(JAVA_LONG, LEN) : 0;
        at = 0;
    }

    void grow() {
        records = Arena.ofAuto().allocate(Math.max(head.get(JAVA_LONG, LEN), records.byteSize() * 2), 64);
    }

    long recordsAddress() {
        return records.address();
    }

    long capacity() {
        return records.byteSize();
    }

    long headAddress() {
        return head.address();
    }

    /**
     * Steps to the next record that the application wrote or that tells of the writer (epoch, heartbeat); the filling
     * of the ring's end is passed over.
     *
     * @return false when there is none left
     */
    public boolean next() {
        while (at < used) {
            record.wrap(records, at, align);
            at += record.storedLen();
            if (!record.isPad()) {
                return true;
            }
        }
        return false;
    }

    /**
     * As {@link #next}, passing over what the application did not write: epochs, heartbeats and the like. An encrypted
     * record of which the reader has no key is given as it is: {@link RecordView#FLAG_ENCRYPTED} is among its flags.
     *
     * @return false when there is none left
     */
    public boolean nextPayload() {
        while (next()) {
            if ((record.flags() & ~RecordView.FLAG_ENCRYPTED) == 0) {
                return true;
            }
        }
        return false;
    }

    /**
     * The record that {@link #next} stepped to.
     *
     * @return always the same object
     */
    public RecordView record() {
        return record;
    }

    /**
     * Where the record begins.
     *
     * @return byte position in the stream
     */
    public long lsn() {
        return record.lsn();
    }

    /**
     * The record's number in the stream.
     *
     * @return from 0
     */
    public long seq() {
        return record.seq();
    }

    /**
     * The epoch of the writer.
     *
     * @return from 1
     */
    public int epoch() {
        return record.epoch();
    }

    /**
     * When it was appended.
     *
     * @return UTC nanoseconds since 1970
     */
    public long timestampNanos() {
        return record.timestampNanos();
    }

    /**
     * The application's kind of record.
     *
     * @return 0 to 65535
     */
    public int classId() {
        return record.classId();
    }

    /**
     * The record's flags; 0 for what the application wrote.
     *
     * @return {@link RecordView#FLAG_EPOCH} and the like
     */
    public int flags() {
        return record.flags();
    }

    /**
     * The key.
     *
     * @return a view, good until the next read
     */
    public MemorySegment key() {
        return record.key();
    }

    /**
     * The payload.
     *
     * @return a view, good until the next read
     */
    public MemorySegment payload() {
        return record.payload();
    }

    /**
     * Where the batch begins; with CORRUPT the unreadable record.
     *
     * @return byte position in the stream
     */
    public long firstLsn() {
        return head.get(JAVA_LONG, FIRST_LSN);
    }

    /**
     * Behind the last record.
     *
     * @return byte position in the stream
     */
    public long nextLsn() {
        return head.get(JAVA_LONG, NEXT_LSN);
    }

    /**
     * The number of the record that will follow.
     *
     * @return from 0
     */
    public long nextSeq() {
        return head.get(JAVA_LONG, NEXT_SEQ);
    }

    /**
     * How many records there are.
     *
     * @return count, without the filling of the ring's end
     */
    public long recordCount() {
        return head.get(JAVA_LONG, RECORD_COUNT);
    }

    /**
     * The epoch of the last record.
     *
     * @return from 1
     */
    public int lastEpoch() {
        return head.get(JAVA_INT, LAST_EPOCH);
    }

    /**
     * The log went back: these records replace, with a higher epoch, ones read before that a crash of the region had
     * undone before they were acknowledged.
     *
     * @return almost never
     */
    public boolean isRewound() {
        return head.get(JAVA_INT, IS_REWOUND) != 0;
    }
}

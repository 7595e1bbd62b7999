package io.github.farlog.client;

/**
 * How a ring is formatted. Immutable: each {@code with} gives a changed copy.
 *
 * @param sizeBytes of the region, a multiple of 4096; 0 = the device's or file's own size
 * @param align of records; 0 = 64
 * @param recordLenMax bytes that one record may take; 0 = 1 MiB or a quarter of the ring, whichever is less
 * @param streamId number of the stream
 * @param streamName at most 63 bytes
 * @param salt 0 = random
 * @param forced format although a ring is there; never while somebody holds it
 */
public record RingOptions(long sizeBytes, int align, int recordLenMax, int streamId, String streamName, long salt,
    boolean forced) {
    private static final RingOptions DEFAULTS = new RingOptions(0, 0, 0, 0, "", 0, false);

    /**
     * The size of the file or device, no name.
     *
     * @return the defaults
     */
    public static RingOptions defaults() {
        return DEFAULTS;
    }

    /**
     * Sets the size.
     *
     * @param value bytes, a multiple of 4096
     * @return changed copy
     */
    public RingOptions withSizeBytes(final long value) {
        return new RingOptions(value, align, recordLenMax, streamId, streamName, salt, forced);
    }

    /**
     * Sets the alignment of records.
     *
     * @param value bytes, a power of two from 64 to 4096
     * @return changed copy
     */
    public RingOptions withAlign(final int value) {
        return new RingOptions(sizeBytes, value, recordLenMax, streamId, streamName, salt, forced);
    }

    /**
     * Sets the longest record.
     *
     * @param value bytes, with 64 of overhead
     * @return changed copy
     */
    public RingOptions withRecordLenMax(final int value) {
        return new RingOptions(sizeBytes, align, value, streamId, streamName, salt, forced);
    }

    /**
     * Sets the stream's number.
     *
     * @param value as in records
     * @return changed copy
     */
    public RingOptions withStreamId(final int value) {
        return new RingOptions(sizeBytes, align, recordLenMax, value, streamName, salt, forced);
    }

    /**
     * Sets the stream's name.
     *
     * @param value at most 63 bytes
     * @return changed copy
     */
    public RingOptions withStreamName(final String value) {
        return new RingOptions(sizeBytes, align, recordLenMax, streamId, value, salt, forced);
    }

    /**
     * Sets the salt of the checksums.
     *
     * @param value 0 = random
     * @return changed copy
     */
    public RingOptions withSalt(final long value) {
        return new RingOptions(sizeBytes, align, recordLenMax, streamId, streamName, value, forced);
    }

    /**
     * Formats although a ring is there.
     *
     * @param value true to lose what is in it
     * @return changed copy
     */
    public RingOptions withForce(final boolean value) {
        return new RingOptions(sizeBytes, align, recordLenMax, streamId, streamName, salt, value);
    }
}

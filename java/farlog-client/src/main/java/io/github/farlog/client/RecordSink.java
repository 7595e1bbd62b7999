package io.github.farlog.client;

import java.util.List;

/**
 * What takes records from many threads: a stream's {@link SharedWriter}, or a {@link Route}. For appenders of logging
 * frameworks, which are given a name of either and record each event in the same way. Threads, blocking, durability: as
 * that of which it is one.
 */
public sealed interface RecordSink extends AutoCloseable permits SharedWriter, RouteSink {
    /** What a URI begins with that names a route: {@code route:farlog://desk7/all}. */
    String ROUTE_SCHEME = "route:";

    /**
     * Opens what the URI names. Blocks as {@link SharedWriter#open} and {@link Route#open(String, RouteOptions)}.
     *
     * @param uri of a stream, such as {@code mem:/dev/shm/orders} or {@code farlog://desk7/orders}; of a route,
     * {@code route:farlog://desk7/all}
     * @param options of the writer. Of a route, whose legs are as they are declared, the name, the counters' folder and
     * the deadline count; this is that of an append that names none, zero = each leg's own
     * @param spillDir of a route: as in {@link RouteOptions}
     * @return the sink
     * @throws FarlogException as those do
     */
    static RecordSink open(final String uri, final WriterOptions options, final String spillDir)
        throws FarlogException {
        return isRoute(uri) ? RouteSink.open(uri.substring(ROUTE_SCHEME.length()), options, spillDir)
            : SharedWriter.open(uri, options);
    }

    /**
     * Whether a URI names a route.
     *
     * @param uri as {@link #open} takes it
     * @return false: a stream, or a ring
     */
    static boolean isRoute(final String uri) {
        return uri.startsWith(ROUTE_SCHEME);
    }

    /**
     * Appends one record that lies ready outside the heap and waits until it is at its level. The record stays as it
     * is.
     *
     * @param record its payload and key are the bytes up to their positions
     * @param classId the application's kind of record, 0 to 65535
     * @param criticality 0 or more, by which legs of a route choose; of a stream without meaning
     * @param deadlineNanos from now; 0 = the default
     * @param out is filled. Of a route: the place in the first required leg, and the lowest level that a required leg
     * reached, null = no required leg takes it
     * @return as {@link SharedWriter#append(RecordBuffer, int, long, Position)}; of a route also NOT_FOUND: no leg
     * takes it, and it is nowhere
     */
    Result append(RecordBuffer record, int classId, int criticality, long deadlineNanos, Position out);

    /**
     * The same for a part of an array.
     *
     * @param data holds the payload
     * @param off where it begins
     * @param len its length
     * @param classId the application's kind of record, 0 to 65535
     * @param key holds the key; null when keyLen is 0
     * @param keyOff where it begins
     * @param keyLen its length, at most 65535
     * @param criticality 0 or more, by which legs of a route choose
     * @param deadlineNanos from now; 0 = the default
     * @param out is filled
     * @return as {@link #append(RecordBuffer, int, int, long, Position)}
     */
    Result append(byte[] data, int off, int len, int classId, byte[] key, int keyOff, int keyLen, int criticality,
        long deadlineNanos, Position out);

    /**
     * After UNKNOWN: is this very record where it was to be?
     *
     * @param position that came with UNKNOWN, or a copy of it ({@link Position#set}); is renewed with OK, and may be
     * asked about again otherwise
     * @param deadlineNanos from now; 0 = the default
     * @return OK: it is, in all required legs of a route. NOT_FOUND: it is not and never will be, in at least one of
     * them. UNKNOWN: still not known. CLOSED
     */
    Result resolve(Position position, long deadlineNanos);

    /**
     * The highest level that can be asked for.
     *
     * @return as the region attests; null of a route, whose legs have levels of their own
     */
    Level levelMax();

    /**
     * The longest record, its header of 64 bytes included.
     *
     * @return bytes; of a route 16 MiB, and a leg's ring may take less
     */
    int recordLenMax();

    /**
     * The writer's numbers. Cold.
     *
     * @return now; null when closed, and of a route
     */
    Counters counters();

    /**
     * How the legs of a route stand. Cold.
     *
     * @return in their order; empty of a stream
     */
    List<LegStats> legs();

    /**
     * Waits for the calls under way and closes: {@link SharedWriter#close}, {@link Route#close()}. Twice is as once;
     * any thread.
     */
    @Override
    void close();
}

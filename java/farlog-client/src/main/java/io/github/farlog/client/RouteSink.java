package io.github.farlog.client;

import java.util.List;

/** A route, seen as a sink: positions are those of its first required leg, and carry all of the route's own. */
final class RouteSink implements RecordSink {
    private static final int RECORD_LEN_MAX = 16 << 20;

    private final Route route;
    private final long deadlineNanos;

    private RouteSink(final Route route, final long deadlineNanos) {
        this.route = route;
        this.deadlineNanos = deadlineNanos;
    }

    static RouteSink open(final String uri, final WriterOptions options, final String spillDir) throws FarlogException {
        final RouteOptions asked = RouteOptions.defaults().withSpillDir(spillDir).withName(options.name())
            .withCountersDir(options.countersDir()).withSpinning(options.spinning());
        return new RouteSink(Route.open(uri, asked), options.deadline().toNanos());
    }

    @Override
    public Result append(final RecordBuffer record, final int classId, final int criticality, final long deadline,
        final Position out) {
        final RoutePosition position = out == null ? null : out.inRoute();
        return tell(route.append(record, classId, criticality, orDefault(deadline), position), position, out);
    }

    @Override
    public Result append(final byte[] data, final int off, final int len, final int classId, final byte[] key,
        final int keyOff, final int keyLen,
        final int criticality, final long deadline, final Position out) {
        final RoutePosition position = out == null ? null : out.inRoute();
        return tell(
            route.append(data, off, len, classId, key, keyOff, keyLen, criticality, orDefault(deadline), position),
            position, out);
    }

    @Override
    public Result resolve(final Position position, final long deadline) {
        final RoutePosition asked = position.inRoute();
        return tell(route.resolve(asked, orDefault(deadline)), asked, position);
    }

    private long orDefault(final long deadline) {
        return deadline == 0 ? deadlineNanos : deadline;
    }

    private static Result tell(final Result result, final RoutePosition position, final Position out) {
        if (position != null) {
            position.firstRequired(out);
        }
        return result;
    }

    @Override
    public Level levelMax() {
        return null;
    }

    @Override
    public int recordLenMax() {
        return RECORD_LEN_MAX;
    }

    @Override
    public Counters counters() {
        return null;
    }

    @Override
    public List<LegStats> legs() {
        return route.stats();
    }

    @Override
    public void close() {
        route.close();
    }
}

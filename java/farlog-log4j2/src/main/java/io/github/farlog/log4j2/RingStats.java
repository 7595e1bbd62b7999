package io.github.farlog.log4j2;

import io.github.farlog.client.LegStats;
import io.github.farlog.client.Level;
import io.github.farlog.client.MemberStatus;
import io.github.farlog.client.RecordSink;
import java.lang.management.ManagementFactory;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.Consumer;
import java.util.function.Supplier;
import javax.management.JMException;
import javax.management.MBeanServerFactory;
import javax.management.ObjectName;
import org.apache.logging.log4j.status.StatusLogger;

/**
 * The counters of one ring. They outlive a reconfiguration: the same URI counts on. Threads: any; counting allocates
 * nothing but, once, what a contended {@link LongAdder} grows to.
 */
final class RingStats implements RingStatsMXBean {
    private static final String JMX_PROPERTY = "farlog.jmx";
    private static final double P99 = 0.99;
    private static final ConcurrentMap<String, RingStats> ALL = new ConcurrentHashMap<>();
    private static final List<Consumer<RingStats>> LISTENERS = new CopyOnWriteArrayList<>();

    final LongAdder bytes = new LongAdder();
    final LongAdder full = new LongAdder();
    final LongAdder unknown = new LongAdder();
    final LongAdder dropped = new LongAdder();
    final LongAdder gaps = new LongAdder();
    final LongAdder refused = new LongAdder();
    final LongAdder failedOver = new LongAdder();
    final LongAdder recursive = new LongAdder();
    final AtomicReference<Level> lastLevel = new AtomicReference<>();
    final LatencyHistogram latency = new LatencyHistogram();
    private final String uri;
    private volatile Supplier<RecordSink> writer;

    private RingStats(final String uri) {
        this.uri = uri;
    }

    /** The counters of a ring, made at the first call. */
    static RingStats of(final String uri) {
        return ALL.computeIfAbsent(uri, RingStats::new);
    }

    /** Calls for every ring there is and, later, for every one that is opened, again too. */
    static void forEach(final Consumer<RingStats> listener) {
        LISTENERS.add(listener);
        final Collection<RingStats> present = ALL.values();
        present.forEach(listener);
    }

    /** Takes a listener away. */
    static void remove(final Consumer<RingStats> listener) {
        LISTENERS.remove(listener);
    }

    /** Counts a recorded event. */
    void countAppended(final long byteCount, final long nanos, final Level level) {
        bytes.add(byteCount);
        latency.record(nanos);
        if (lastLevel.getPlain() != level) { // nearly never: threads read one line, and do not take it from one another
            lastLevel.setRelease(level);
        }
    }

    /**
     * The ring was opened: makes the counters visible over JMX and to the listeners.
     *
     * @param open what it is written by now
     */
    void opened(final Supplier<RecordSink> open) {
        writer = open;
        LISTENERS.forEach(listener -> listener.accept(this));
        register();
    }

    /** It is closed: takes the counters out of JMX. */
    void closed() {
        writer = null;
        unregister();
    }

    /** Not at all when it is not wanted: to make the MBean server is a quarter of a process's start. */
    private void register() {
        if ("false".equals(System.getProperty(JMX_PROPERTY))) {
            return;
        }
        try {
            final var server = ManagementFactory.getPlatformMBeanServer();
            if (!server.isRegistered(objectName())) {
                server.registerMBean(this, objectName());
            }
        } catch (final JMException e) {
            StatusLogger.getLogger().warn("counters of ring \"{}\" are not visible over JMX", uri, e);
        }
    }

    private void unregister() {
        if (MBeanServerFactory.findMBeanServer(null).isEmpty()) {
            return;
        }
        try {
            final var server = ManagementFactory.getPlatformMBeanServer();
            if (server.isRegistered(objectName())) {
                server.unregisterMBean(objectName());
            }
        } catch (final JMException e) {
            StatusLogger.getLogger().warn("counters of ring \"{}\" stay visible over JMX", uri, e);
        }
    }

    private ObjectName objectName() throws JMException {
        return new ObjectName("io.github.farlog:type=Log4j2,ring=" + ObjectName.quote(uri));
    }

    @Override
    public String getUri() {
        return uri;
    }

    @Override
    public long getAppended() {
        return latency.count();
    }

    @Override
    public long getBytes() {
        return bytes.sum();
    }

    @Override
    public long getFull() {
        return full.sum();
    }

    @Override
    public long getUnknown() {
        return unknown.sum();
    }

    @Override
    public long getDropped() {
        return dropped.sum();
    }

    @Override
    public long getGaps() {
        return gaps.sum();
    }

    @Override
    public long getRefused() {
        return refused.sum();
    }

    @Override
    public long getFailedOver() {
        return failedOver.sum();
    }

    @Override
    public long getRecursive() {
        return recursive.sum();
    }

    @Override
    public String getLastLevel() {
        final Level level = lastLevel.getAcquire();
        return level == null ? "" : level.name();
    }

    @Override
    public long getLatencyP99Nanos() {
        return latency.quantile(P99);
    }

    @Override
    public List<MemberStatus> getMembers() {
        final Supplier<RecordSink> source = writer;
        return source == null ? List.of() : MemberStatus.of(source.get().counters());
    }

    @Override
    public List<LegStats> getLegs() {
        final Supplier<RecordSink> source = writer;
        return source == null ? List.of() : source.get().legs();
    }
}

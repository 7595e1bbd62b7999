package io.github.farlog.bench;

import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Level;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;
import org.openjdk.jmh.annotations.Warmup;

/** Append under JMH: a batch of records an iteration, the drain between two. */
@State(Scope.Thread)
@BenchmarkMode(Mode.SingleShotTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Warmup(iterations = 40, batchSize = AppendJmh.BATCH_COUNT)
@Measurement(iterations = 60, batchSize = AppendJmh.BATCH_COUNT)
public class AppendJmh {
    /** Records of an iteration: a quarter of the ring. */
    static final int BATCH_COUNT = 48_000;

    /** How the payload is handed over. */
    @Param({"SEGMENT", "BYTES", "CLAIM"})
    public String form;

    private FarlogTarget target;
    private int next;

    /** Made by JMH. */
    public AppendJmh() {
        // Nothing to do.
    }

    /**
     * Makes the ring.
     *
     * @throws Exception when it cannot be
     */
    @Setup(Level.Trial)
    public void open() throws Exception {
        target = FarlogTarget.inMemory("jmh", FarlogTarget.Form.valueOf(form), 192);
    }

    /** Drains what the last iteration appended. */
    @Setup(Level.Iteration)
    public void rest() {
        for (int i = 0; i < BATCH_COUNT; i += target.blockCount()) {
            target.rest(target.blockCount());
        }
    }

    /**
     * Closes and removes the ring.
     *
     * @throws Exception when it cannot be
     */
    @TearDown(Level.Trial)
    public void close() throws Exception {
        target.close();
    }

    /** One record. */
    @Benchmark
    public void append() {
        target.append(next++);
    }
}

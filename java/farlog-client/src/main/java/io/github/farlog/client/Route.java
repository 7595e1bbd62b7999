package io.github.farlog.client;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;

/**
 * Appends one record to several streams, chosen by its class and criticality: docs/explanation/routes.md. Each stream
 * is a leg. Required legs are written side by side and waited for together; optional ones are never waited for: a
 * thread of the leg carries to its ring what was offered, and what it cannot carry is counted and told by a record with
 * the flag GAP in its stream.
 *
 * <p><b>Threads.</b> Any, platform or virtual. One at a time is inside an append, {@link #resolve} or {@link #catchUp};
 * the others wait for their turn, which counts towards their deadline. {@link #stats} waits for none of them. Between
 * two records of one route each leg that takes both has them in the order of the calls.
 *
 * <p><b>Blocking.</b> {@code deadlineNanos} counts from the call, for all required legs: 0 = each leg's own, negative =
 * has passed already. Where a required leg spills, also for the spill's medium. With 0 a call waits for its turn as
 * long as those before it take.
 *
 * <p><b>Durability.</b> {@link Result#OK} means that every required leg that takes the record has it at its level, or
 * in its spill at the spill's; {@link RoutePosition#level} is the lowest of them. When no required leg takes it, nobody
 * has acknowledged it. FULL, FENCED, TOO_LARGE, INVALID, CLOSED and NOT_FOUND (no leg takes it) mean that it is
 * nowhere, in no leg and in no spill. UNKNOWN means that a leg may have it and not all are known to: {@link #resolve}.
 *
 * <p><b>Allocation.</b> Appends allocate nothing once the buffer has grown to the longest record, unless they wait for
 * their turn, and throw nothing. {@code out} may be null.
 */
public final class Route implements AutoCloseable {
    /** How many legs a route may have. */
    public static final int LEGS_MAX = Structs.ROUTE_LEG_COUNT_MAX;
    /** The longest record in bytes, payload and key together; what a leg's ring takes is less. */
    public static final int RECORD_LEN_MAX = 256 << 20;
    private static final long CLOSE_NANOS = TimeUnit.SECONDS.toNanos(1);
    private static final long LATE = -1;
    private static final long ENDED = -2;

    private final ReentrantLock turn = new ReentrantLock();
    /** Held for reading by who looks at the handle without having the turn: closing must not free what it uses. */
    private final ReentrantReadWriteLock life = new ReentrantReadWriteLock();
    private final CallFrame frame = new CallFrame(RECORD_LEN_MAX); // of who has the turn
    private final RoutePosition unasked = new RoutePosition(); // of who has the turn
    private final long handle;
    private final int legCount;
    private volatile boolean isClosing;
    private List<LegStats> last; // guarded by life; null while the route is open
    private Result closeResult; // guarded by this

    private Route(final long handle) {
        this.handle = handle;
        int count = 0;
        try (Arena arena = Arena.ofConfined()) {
            final MemorySegment stats = arena.allocate(Structs.LEG_STATS);
            while ((int) Native.Routes.STATS.invokeExact(handle, count, stats.address()) == 0) {
                count++;
            }
        } catch (final Throwable thrown) {
            throw Native.unexpected(thrown);
        }
        legCount = count;
    }

    /**
     * Opens the route that a name stands for: the host agent says which legs it has and gets the grant of each. Each
     * leg opens its ring again by itself, and hears of rings that are replaced. The legs are those of now: a change of
     * the route's rules comes at the next opening. Blocks for the agent 15 s at most, and as {@link Writer#open} for
     * all required legs.
     *
     * @param uri as in {@code farlog://desk7/all[?agent=PATH&transport=mem|verbs|ofi]}
     * @param options where spills are, and how the writer is called
     * @return the route
     * @throws FarlogException NOT_FOUND (no such route, or no agent), INVALID (the URI; this user may not write one of
     * its streams; a leg spills and nothing says where), IO (agent or control plane do not answer), and as
     * {@link #open(String, List)}
     */
    public static Route open(final String uri, final RouteOptions options) throws FarlogException {
        try (Arena arena = Arena.ofConfined()) {
            return new Route(NativeCalls.open(arena, uri, Legs.options(arena, options), Native.Routes.OPEN_NAME));
        }
    }

    /**
     * Opens the route with these legs. Required ones without a spill have to open, else none is; a required one with a
     * spill is given one try, and spills until its ring can be opened; optional ones are opened by their threads.
     * Blocks as {@link Writer#open} for all required legs, one after the other.
     *
     * @param name of the route, for its errors
     * @param legs 1 to {@link #LEGS_MAX}
     * @return the route
     * @throws FarlogException INVALID (what contradicts itself), LEVEL (also a spill of a required leg that gives less
     * than the leg's level), NOT_A_RING (the spill is another leg's), and as {@link Writer#open}; the text names route
     * and leg
     */
    public static Route open(final String name, final List<RouteLeg> legs) throws FarlogException {
        try (Arena arena = Arena.ofConfined()) {
            final MemorySegment config = Legs.config(arena, legs);
            final MemorySegment opened = arena.allocate(Long.BYTES, Long.BYTES);
            NativeCalls.runOrThrow(arena, Objects.requireNonNull(name, "name"), (text, error) -> {
                Structs.setLong(config, Structs.ROUTE_CONFIG, "name", text);
                return (int) Native.Routes.OPEN.invokeExact(config.address(), opened.address(), error);
            });
            return new Route(opened.get(java.lang.foreign.ValueLayout.JAVA_LONG, 0));
        }
    }

    /**
     * Appends one record to every leg that takes its class and criticality, and waits until the required ones have it.
     *
     * @param data the payload; it may be on the heap or not, of any arena
     * @param classId the application's kind of record, 0 to 65535
     * @param key finds the record again, at most 65535 bytes; null = none
     * @param criticality 0 or more: legs take records from a criticality on
     * @param deadlineNanos from now; 0 = each leg's own
     * @param out is filled; may be null
     * @return OK, NOT_FOUND, FULL, FENCED, TOO_LARGE, CLOSED, INVALID or UNKNOWN, as told above. Of several failures
     * the first of CLOSED, FENCED, TOO_LARGE, INVALID, FULL
     */
    public Result append(final MemorySegment data, final int classId, final MemorySegment key, final int criticality,
        final long deadlineNanos,
        final RoutePosition out) {
        final long left = enter(deadlineNanos);
        if (left < 0) {
            return refuse(left, out);
        }
        try {
            if (data != null && data.byteSize() > RECORD_LEN_MAX) {
                return refuse(Result.TOO_LARGE, out);
            }
            return frame.put(data, classId, key) ? append(criticality, left, out) : refuse(Result.INVALID, out);
        } finally {
            turn.unlock();
        }
    }

    /**
     * The same for the bytes between a buffer's position and its limit, which stay as they are.
     *
     * @param data the payload, direct or not
     * @param classId the application's kind of record, 0 to 65535
     * @param key finds the record again; null = none
     * @param criticality 0 or more
     * @param deadlineNanos from now; 0 = each leg's own
     * @param out is filled; may be null
     * @return as {@link #append(MemorySegment, int, MemorySegment, int, long, RoutePosition)}
     */
    public Result append(final ByteBuffer data, final int classId, final ByteBuffer key, final int criticality,
        final long deadlineNanos,
        final RoutePosition out) {
        final long left = enter(deadlineNanos);
        if (left < 0) {
            return refuse(left, out);
        }
        try {
            if (data != null && data.remaining() > RECORD_LEN_MAX) {
                return refuse(Result.TOO_LARGE, out);
            }
            return frame.put(data, classId, key) ? append(criticality, left, out) : refuse(Result.INVALID, out);
        } finally {
            turn.unlock();
        }
    }

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
     * @param criticality 0 or more
     * @param deadlineNanos from now; 0 = each leg's own
     * @param out is filled; may be null
     * @return as {@link #append(MemorySegment, int, MemorySegment, int, long, RoutePosition)}
     */
    public Result append(final byte[] data, final int off, final int len, final int classId, final byte[] key,
        final int keyOff, final int keyLen,
        final int criticality, final long deadlineNanos, final RoutePosition out) {
        final long left = enter(deadlineNanos);
        if (left < 0) {
            return refuse(left, out);
        }
        try {
            if (len > RECORD_LEN_MAX) {
                return refuse(Result.TOO_LARGE, out);
            }
            return frame.put(data, off, len, classId, key, keyOff, keyLen) ? append(criticality, left, out)
                : refuse(Result.INVALID, out);
        } finally {
            turn.unlock();
        }
    }

    /**
     * The same for a record that lies ready outside the heap: nothing is copied in Java. The record stays as it is.
     *
     * @param record its payload and key are the bytes up to their positions
     * @param classId the application's kind of record, 0 to 65535
     * @param criticality 0 or more
     * @param deadlineNanos from now; 0 = each leg's own
     * @param out is filled; may be null
     * @return as {@link #append(MemorySegment, int, MemorySegment, int, long, RoutePosition)}
     */
    public Result append(final RecordBuffer record, final int classId, final int criticality, final long deadlineNanos,
        final RoutePosition out) {
        final long left = enter(deadlineNanos);
        if (left < 0) {
            return refuse(left, out);
        }
        try {
            return frame.putBorrowed(record, classId) ? append(criticality, left, out) : refuse(Result.INVALID, out);
        } finally {
            frame.releaseBorrowed();
            turn.unlock();
        }
    }

    /**
     * After UNKNOWN: looks again at the required legs of which it was not known, and renews the position.
     *
     * @param position that came with UNKNOWN, of this route
     * @param deadlineNanos from now; 0 = each leg's own
     * @return OK: all have it now. NOT_FOUND: a leg has it not and never will; others may, which
     * {@link RoutePosition#result} says: appended again it is twice there. UNKNOWN: still not known. INVALID: the
     * position is not of an append of this route. CLOSED
     */
    public Result resolve(final RoutePosition position, final long deadlineNanos) {
        if (position == null || !position.isOf(this)) {
            return Result.INVALID;
        }
        final long left = enter(deadlineNanos);
        if (left < 0) {
            return left == LATE ? Result.UNKNOWN : Result.CLOSED;
        }
        try {
            return Result.of((int) Native.Routes.RESOLVE.invokeExact(handle, position.address(), left));
        } catch (final Throwable thrown) {
            throw Native.unexpected(thrown);
        } finally {
            Reference.reachabilityFence(position);
            turn.unlock();
        }
    }

    /**
     * Waits until the rings of all legs have everything that was offered to them. Appends wait meanwhile.
     *
     * @param deadlineNanos from now
     * @return OK; UNKNOWN: not by the deadline; CLOSED
     */
    public Result catchUp(final long deadlineNanos) {
        final long left = enter(deadlineNanos);
        if (left < 0) {
            return left == LATE ? Result.UNKNOWN : Result.CLOSED;
        }
        try {
            return awaitLegs(left);
        } finally {
            turn.unlock();
        }
    }

    private Result awaitLegs(final long nanos) {
        try {
            return Result.of((int) Native.Routes.CATCH_UP.invokeExact(handle, nanos));
        } catch (final Throwable thrown) {
            throw Native.unexpected(thrown);
        }
    }

    /**
     * The counters of all legs. Cold; looks at nothing beyond this process. Of a route that is closed they are those of
     * its end, where what was left in memory of a leg that drops is among the dropped.
     *
     * @return in the order of the legs
     */
    public List<LegStats> stats() {
        life.readLock().lock();
        try {
            return last != null ? last : readStats();
        } finally {
            life.readLock().unlock();
        }
    }

    private List<LegStats> readStats() {
        final List<LegStats> all = new ArrayList<>();
        try (Arena arena = Arena.ofConfined()) {
            final MemorySegment stats = arena.allocate(Structs.LEG_STATS);
            for (int leg = 0; leg < legCount; leg++) {
                if ((int) Native.Routes.STATS.invokeExact(handle, leg, stats.address()) == 0) {
                    all.add(LegStats.of(stats));
                }
            }
        } catch (final Throwable thrown) {
            throw Native.unexpected(thrown);
        }
        return List.copyOf(all);
    }

    /** As {@link #close(long)} with a second. */
    @Override
    public void close() {
        close(CLOSE_NANOS);
    }

    /**
     * Takes no more, gives the legs until the deadline to catch up and closes them; one that is fenced is not waited
     * for. Waits for the call under way in another thread; calls after it give {@link Result#CLOSED}. May be called
     * twice and from any thread. Blocks for that, and as {@link Writer#close}.
     *
     * @param deadlineNanos from now; 0 = a second
     * @return OK. UNKNOWN: something was left in a spill, for the next route that has it, or in the memory of a leg
     * that drops, and is lost: {@link #stats} counts it as dropped
     */
    public synchronized Result close(final long deadlineNanos) {
        if (closeResult != null) {
            return closeResult;
        }
        isClosing = true;
        turn.lock();
        try {
            awaitLegs(deadlineNanos == 0 ? CLOSE_NANOS : NativeCalls.deadline(deadlineNanos)); // stats still works
            life.writeLock().lock();
            try {
                closeResult = end();
            } finally {
                life.writeLock().unlock();
            }
        } finally {
            turn.unlock();
        }
        return closeResult;
    }

    private Result end() {
        try {
            final int ended = (int) Native.Routes.END.invokeExact(handle, NativeCalls.AT_ONCE);
            last = readStats();
            final int closed = (int) Native.Routes.CLOSE.invokeExact(handle, NativeCalls.AT_ONCE);
            return Result.of(closed == 0 ? ended : closed);
        } catch (final Throwable thrown) {
            throw Native.unexpected(thrown);
        }
    }

    /**
     * Takes the turn: what is left of the deadline, which is never 0 unless that was; LATE or ENDED without the turn.
     */
    private long enter(final long deadlineNanos) {
        if (isClosing) {
            return ENDED;
        }
        long left = NativeCalls.deadline(deadlineNanos);
        if (!turn.tryLock()) {
            left = await(left);
        }
        if (left >= 0 && isClosing) {
            turn.unlock();
            return ENDED;
        }
        return left;
    }

    /** Another thread is inside. An interrupt, which is not for us, is kept for whoever it is for. */
    private long await(final long deadlineNanos) {
        if (deadlineNanos == 0) {
            turn.lock();
            return 0;
        }
        final long start = System.nanoTime();
        boolean isInterrupted = false;
        try {
            while (true) {
                final long left = deadlineNanos - (System.nanoTime() - start);
                try {
                    return turn.tryLock(left, TimeUnit.NANOSECONDS)
                        ? Math.max(NativeCalls.AT_ONCE, deadlineNanos - (System.nanoTime() - start)) : LATE;
                } catch (final InterruptedException e) {
                    isInterrupted = true;
                }
            }
        } finally {
            if (isInterrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    /** With the turn, and the entry filled. */
    private Result append(final int criticality, final long deadlineNanos, final RoutePosition out) {
        if (criticality < 0) {
            return refuse(Result.INVALID, out);
        }
        final RoutePosition position = out == null ? unasked : out;
        position.begin(this);
        try {
            return Result.of((int) Native.Routes.APPEND.invokeExact(handle, frame.entryAddress(), criticality,
                deadlineNanos, position.address()));
        } catch (final Throwable thrown) {
            throw Native.unexpected(thrown);
        } finally {
            Reference.reachabilityFence(position);
        }
    }

    private static Result refuse(final long why, final RoutePosition out) {
        return refuse(why == LATE ? Result.FULL : Result.CLOSED, out);
    }

    private static Result refuse(final Result why, final RoutePosition out) {
        if (out != null) {
            out.clear();
        }
        return why;
    }
}

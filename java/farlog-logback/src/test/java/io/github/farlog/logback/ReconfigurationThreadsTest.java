package io.github.farlog.logback;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.Appender;
import ch.qos.logback.core.UnsynchronizedAppenderBase;
import ch.qos.logback.core.spi.AppenderAttachableImpl;
import ch.qos.logback.core.spi.ConfigurationEvent.EventType;
import ch.qos.logback.core.util.COWArrayList;
import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * Threads that are at the worst place when Logback takes its appenders away. An appender of the test holds the thread
 * there: inside a logging call, on the way to the FarlogAppender at the root; another acts in the moment in which the
 * root has no appender.
 */
@Timeout(1800)
class ReconfigurationThreadsTest {
    private static final String EXTRA = """
        <appender name="SLOW" class="io.github.farlog.logback.ReconfigurationThreadsTest$Slow"/>
        <appender name="WINDOW" class="io.github.farlog.logback.ReconfigurationThreadsTest$Window"/>
        <logger name="a.b"><appender-ref ref="SLOW"/></logger>
        <logger name="z"><appender-ref ref="WINDOW"/></logger>
        """;
    private static volatile CountDownLatch entered;
    private static volatile CountDownLatch released;
    private static volatile Runnable onEvent;
    private static volatile Runnable inWindow;

    /** Holds who logs. */
    public static final class Slow extends UnsynchronizedAppenderBase<ILoggingEvent> {
        @Override
        protected void append(final ILoggingEvent event) {
            onEvent.run();
        }
    }

    /** Is stopped after the root has lost its appenders and before the gate is taken away. */
    public static final class Window extends UnsynchronizedAppenderBase<ILoggingEvent> {
        @Override
        protected void append(final ILoggingEvent event) {
        }

        @Override
        public void stop() {
            super.stop();
            inWindow.run();
        }
    }

    @BeforeEach
    void begin() {
        entered = new CountDownLatch(1);
        released = new CountDownLatch(1);
        onEvent = () -> {
            entered.countDown();
            await(released);
        };
        inWindow = () -> {
        };
    }

    @AfterEach
    void release() {
        released.countDown();
        inWindow = () -> {
        };
    }

    private static String xml(final TestRing ring, final String inside) {
        return TestContext.xml(ring, inside).replace("</configuration>", EXTRA + "</configuration>");
    }

    static void await(final CountDownLatch latch) {
        try {
            latch.await();
        } catch (final InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private static void join(final Thread thread) {
        try {
            thread.join();
        } catch (final InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private static Thread after(final long millis, final Runnable action) {
        return Thread.ofPlatform().start(() -> {
            try {
                TimeUnit.MILLISECONDS.sleep(millis);
            } catch (final InterruptedException e) {
                Thread.currentThread().interrupt();
            }
            action.run();
        });
    }

    @Test
    void shouldWaitForACallThatIsPastTheGate() {
        try (TestRing ring = new TestRing(1 << 20); TestContext test = TestContext.of(xml(ring, ""))) {
            final Thread slow = Thread.ofPlatform().start(() -> test.logger("a.b").info("slow"));
            await(entered);
            inWindow = () -> { // had the reset not waited, the call would go on here, to no appender
                released.countDown();
                join(slow);
            };
            final Thread later = after(300, released::countDown);
            test.reconfigure(xml(ring, ""));
            join(later);
            assertEquals(List.of("slow"), ring.texts());
            assertEquals(List.of(), test.errors());
        }
    }

    @Test
    void shouldNotWaitForACallThatIsInsideTheOnlyAppender() throws InterruptedException {
        try (TestRing ring = new TestRing(256 << 10);
            TestContext test = TestContext.of(TestContext.xml(ring, "<policy>block(20s)</policy>"))) {
            final AtomicBoolean isFull = new AtomicBoolean(true);
            final CountDownLatch filling = new CountDownLatch(1);
            final AtomicInteger logged = new AtomicInteger();
            final Thread blocked = Thread.ofPlatform().start(() -> {
                for (int i = 0; isFull.get(); i++) {
                    test.logger("x").info("{} {}", i, "x".repeat(1000));
                    logged.incrementAndGet();
                    if (i == 100) {
                        filling.countDown();
                    }
                }
            });
            await(filling);
            while (blocked.getState() != Thread.State.TIMED_WAITING) {
                Thread.sleep(1);
            }
            test.reconfigure(TestContext.xml(ring, "<policy>block(20s)</policy>"));
            isFull.set(false);
            final int drained = ring.drain().size(); // the one that waited may be among them
            blocked.join();
            assertEquals(List.of(), test.errors(), "had it waited for the call, it would have told so");
            assertEquals(logged.get(), drained + ring.texts().size());
        }
    }

    @Test
    void shouldTellOfACallThatIsNotDoneInTime() {
        try (TestRing ring = new TestRing(1 << 20); TestContext test = TestContext.of(xml(ring, ""))) {
            final Thread slow = Thread.ofPlatform().name("slow one").start(() -> test.logger("a.b").info("slow"));
            await(entered);
            test.reconfigure(xml(ring, ""));
            assertEquals(1, test.errors().size(), test.errors()::toString);
            assertTrue(test.errors().get(0).contains("1 threads are inside a logging call"), test.errors()::toString);
            assertTrue(test.errors().get(0).contains("may be lost: slow one"), test.errors()::toString);
            released.countDown();
            join(slow);
            assertEquals(List.of("slow"), ring.texts());
        }
    }

    @Test
    void shouldTellOfCallsThatItHoldsNoLonger() {
        try (TestRing ring = new TestRing(1 << 20); TestContext test = TestContext.of(xml(ring, ""))) {
            final Thread[] held = new Thread[1];
            inWindow = () -> {
                held[0] = Thread.ofPlatform().start(() -> test.logger("x").info("held"));
                join(held[0]);
            };
            test.reconfigure(xml(ring, ""));
            assertEquals(List.of(), ring.texts());
            assertEquals(2, test.errors().size(), test.errors()::toString);
            assertTrue(test.errors().get(0).contains("the appenders are not back after 5 s"), test.errors()::toString);
            assertTrue(test.errors().get(1).contains("1 logging calls were not held"), test.errors()::toString);
        }
    }

    /**
     * What Logback's list does when a thread copies it while it is changed: the copy from before counts as new from
     * then on. A thread that entered the call before the handover's end does so to the root's list after it.
     */
    @Test
    void shouldNotStayWithAListOfAppendersFromBeforeItsEnd() throws InterruptedException {
        try (TestRing ring = new TestRing(1 << 20);
            TestContext test = TestContext.of(xml(ring, "<classId>1</classId>"))) {
            test.logger("x").info("one");
            final Logger root = test.logger(Logger.ROOT_LOGGER_NAME);
            onEvent = () -> makeStale(root);
            final Thread[] late = new Thread[1];
            test.context.addConfigurationEventListener(event -> {
                if (event.getEventType() == EventType.CONFIGURATION_ENDED_SUCCESSFULLY && late[0] == null) {
                    late[0] = Thread.ofPlatform().start(() -> test.logger("a.b").info("late"));
                    await(entered);
                }
            });
            test.reconfigure(xml(ring, "<classId>2</classId>"));
            late[0].join();
            test.logger("x").info("two");
            assertEquals(List.of("1 one", "2 two"),
                ring.records().stream().filter(record -> !record.text().equals("late"))
                    .map(record -> record.classId() + " " + record.text()).toList());
            assertEquals(1, ring.texts().stream().filter("late"::equals).count());
        }
    }

    /**
     * A thread copies the root's list while the bridge is in it and is slow to put the copy in place. Another, which
     * logs as soon as the bridge is gone, must not find it again: the ring has changed, and its events would be in the
     * new one, the former one, the new one.
     */
    @Test
    void shouldNotGoBackToTheFormerRingAfterAnEventInTheNewOneAlone() throws InterruptedException {
        try (TestRing one = new TestRing(1 << 20); TestRing two = new TestRing(1 << 20);
            TestContext test = TestContext.of(xml(one, ""))) {
            final Logger root = test.logger(Logger.ROOT_LOGGER_NAME);
            final CountDownLatch first = new CountDownLatch(1);
            final CountDownLatch isStale = new CountDownLatch(1);
            onEvent = () -> {
                // Holds the copy until the list has changed, or until a second has shown that it does not change.
                makeStale(root, now -> {
                    final long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(1);
                    while (first.getCount() > 0 && System.nanoTime() - end < 0) {
                        Thread.onSpinWait();
                    }
                });
                isStale.countDown();
            };
            final List<Thread> threads = new ArrayList<>();
            test.context.addConfigurationEventListener(event -> {
                if (event.getEventType() == EventType.CONFIGURATION_ENDED_SUCCESSFULLY && threads.isEmpty()) {
                    threads.add(Thread.ofPlatform().start(() -> test.logger("a.b").info("late")));
                    await(entered);
                    threads.add(Thread.ofPlatform().start(() -> {
                        awaitOne(listOf(root));
                        test.logger("x").info("first");
                        first.countDown();
                        await(isStale);
                        test.logger("x").info("second");
                    }));
                }
            });
            test.reconfigure(xml(two, ""));
            threads.forEach(ReconfigurationThreadsTest::join);
            assertEquals(2, threads.size());
            assertEquals(List.of("first", "second"),
                two.texts().stream().filter(text -> !text.equals("late")).toList());
            assertEquals(List.of(), one.texts().stream().filter(text -> !text.equals("late")).toList());
            assertTrue(one.texts().contains("late") || two.texts().contains("late"));
            assertEquals(List.of(), test.errors());
        }
    }

    private static void makeStale(final Logger root) {
        makeStale(root, ReconfigurationThreadsTest::awaitOne);
    }

    private static void awaitOne(final List<?> appenders) {
        while (appenders.size() > 1) {
            LockSupport.parkNanos(10_000);
        }
    }

    private static List<?> listOf(final Logger root) {
        try {
            return (List<?>) field(COWArrayList.class, "underlyingList").get(cachedListOf(root));
        } catch (final ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    private static Object cachedListOf(final Logger root) throws ReflectiveOperationException {
        return field(AppenderAttachableImpl.class, "appenderList").get(field(Logger.class, "aai").get(root));
    }

    /** Copies the list, waits, and puts the copy in place as the newest. */
    private static void makeStale(final Logger root, final Consumer<List<?>> waiting) {
        try {
            final Object list = cachedListOf(root);
            final List<?> now = listOf(root);
            final Object[] copy = now.toArray(new Appender<?>[0]);
            assertEquals(2, copy.length, "the bridge and its successor");
            entered.countDown();
            waiting.accept(now);
            field(COWArrayList.class, "ourCopy").set(list, copy);
            ((AtomicBoolean) field(COWArrayList.class, "fresh").get(list)).set(true);
        } catch (final ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    private static Field field(final Class<?> type, final String name) throws NoSuchFieldException {
        final Field field = type.getDeclaredField(name);
        field.setAccessible(true);
        return field;
    }
}

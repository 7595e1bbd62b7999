package io.github.farlog.log4j2;

import io.github.farlog.client.RecordSink;
import io.github.farlog.client.Result;
import io.github.farlog.client.gap.FailureReports;
import io.github.farlog.log4j2.EventClasses.EventClass;
import java.util.concurrent.TimeUnit;
import org.apache.logging.log4j.core.Appender;
import org.apache.logging.log4j.core.Core;
import org.apache.logging.log4j.core.LifeCycle;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.logging.log4j.core.appender.AbstractAppender;
import org.apache.logging.log4j.core.appender.DefaultErrorHandler;
import org.apache.logging.log4j.core.config.AppenderControl;
import org.apache.logging.log4j.core.config.AppenderRef;
import org.apache.logging.log4j.core.config.Configuration;
import org.apache.logging.log4j.core.config.ConfigurationException;
import org.apache.logging.log4j.core.config.LoggerConfig;
import org.apache.logging.log4j.core.config.plugins.Plugin;
import org.apache.logging.log4j.core.config.plugins.PluginBuilderFactory;

/**
 * Records every event in a farlog ring:
 * {@code <Farlog name="farlog" uri="mem:/dev/shm/orders"><PatternLayout pattern="%m"/></Farlog>} in a
 * {@code Configuration} with {@code shutdownHook="disable"}. The logging call returns when the record is at the level
 * that was asked for; when it cannot be, the policy decides. All attributes are in the module's README.
 *
 * <p>A configuration that cannot work is refused when it is started: {@link #start} throws
 * {@link ConfigurationException}, which the first {@code LogManager.getLogger} passes on to the application; a
 * reconfiguration leaves the running configuration in force.
 *
 * <p>Threads: any, platform or virtual. Blocking: until the acknowledgement, the time to wait for room and the
 * deadline. Once a thread has logged its longest event, and Log4j itself is free of garbage, an event allocates
 * nothing.
 */
@Plugin(name = FarlogAppender.PLUGIN_NAME, category = Core.CATEGORY_NAME, elementType = Appender.ELEMENT_TYPE,
    printObject = true,
    deferChildren = true)
public final class FarlogAppender extends AbstractAppender {
    /** Name of the element. */
    public static final String PLUGIN_NAME = "Farlog";

    private final AppenderSettings settings;
    private final String error;
    private final FailureReports failures = new FailureReports();
    private final ThreadLocal<EventBuffer> buffers = ThreadLocal.withInitial(this::newBuffer);
    private volatile int payloadMax;
    private volatile FarlogManager manager;
    private volatile AppenderControl failover;

    /** Of a configuration that cannot work; refused at {@link #start}. */
    FarlogAppender(final AppenderSettings settings, final String error) {
        super(settings.name(), settings.filter(), settings.layout(), settings.isIgnoringExceptions(),
            settings.properties());
        this.settings = settings;
        this.error = error;
        setHandler(new OneLine());
    }

    /**
     * Called by Log4j.
     *
     * @return takes the attributes
     */
    @PluginBuilderFactory
    public static FarlogAppenderBuilder newBuilder() {
        return new FarlogAppenderBuilder();
    }

    /**
     * Opens the ring, or shares the writer that is open. Blocks for the scan of the ring's undrained part.
     *
     * @throws ConfigurationException when the configuration cannot work
     */
    @Override
    public void start() {
        if (isStarted()) {
            return;
        }
        try {
            if (error != null) {
                throw new ConfigurationException(error);
            }
            ShutdownHook.check(settings.configuration());
            refuseWrongReferences();
            failover = findFailover();
            final FarlogManager opened = FarlogManager.of(context(), settings.ring());
            payloadMax = opened.payloadMax();
            manager = opened;
        } catch (final ConfigurationException e) {
            throw refuse(e);
        } catch (final LinkageError e) {
            throw refuse(new ConfigurationException("libfarlog.so cannot be used: " + e.getMessage(), e));
        }
        super.start();
    }

    @Override
    public void append(final LogEvent event) {
        final FarlogManager target = manager;
        if (target == null) {
            throw new FarlogLoggingException(Result.CLOSED, describe(Result.CLOSED));
        }
        final EventBuffer buffer = buffers.get();
        if (!buffer.enter()) {
            target.stats().recursive.increment();
            throw new FarlogLoggingException(Result.INVALID, "appender \"" + getName()
                + "\": an event was logged while this thread was logging to the same appender, and is not recorded");
        }
        try {
            final String keyMdc = settings.keyMdc();
            buffer.encode(getLayout(), event, keyMdc == null ? null : event.getContextData().getValue(keyMdc));
            final EventClass eventClass = settings.classes().of(event);
            final long waitNanos = eventClass.criticality() == Criticality.DROPPABLE ? 0
                : settings.policy().waitNanos();
            final Result result = target.append(buffer, eventClass.id(), eventClass.criticality(), waitNanos);
            if (result != Result.OK) {
                tell(result);
                giveUp(target, event, eventClass, result);
            } else if (failures.hasReported()) {
                tellTheEnd();
            }
        } finally {
            buffer.leave();
        }
    }

    @Override
    public boolean stop(final long timeout, final TimeUnit timeUnit) {
        if (isStarted()) {
            UncountedCalls.await(settings.configuration());
        }
        setStopping();
        boolean isStopped = super.stop(timeout, timeUnit, false);
        final FarlogManager target = manager;
        if (target != null) {
            manager = null;
            isStopped &= target.stop(timeout, timeUnit);
        }
        setStopped();
        return isStopped;
    }

    private void giveUp(final FarlogManager target, final LogEvent event, final EventClass eventClass,
        final Result result) {
        final boolean mayDrop = eventClass.criticality() == Criticality.DROPPABLE
            || eventClass.criticality() == Criticality.NORMAL
                && settings.policy().kind() == FullPolicy.Kind.DROP_AND_GAP;
        if (mayDrop) {
            target.drop(event, result);
        } else if (failover != null && eventClass.criticality() != Criticality.CRITICAL) {
            target.stats().failedOver.increment();
            failover.callAppender(event);
        } else {
            target.stats().refused.increment();
            throw new FarlogLoggingException(result, describe(result));
        }
    }

    private void tell(final Result result) {
        final long more = failures.recordFailure();
        if (more >= 0) {
            LOGGER.error("{}{}", describe(result), FailureReports.more(more));
        }
    }

    private void tellTheEnd() {
        final long more = failures.recordSuccess();
        if (more >= 0) {
            LOGGER.error("appender \"{}\", ring \"{}\": takes events again{}", getName(), settings.ring().uri(),
                FailureReports.more(more));
        }
    }

    /**
     * What this appender throws it has told in its own one line, which comes once a second at most; of anything else,
     * such as a layout that throws, Log4j tells.
     */
    private final class OneLine extends DefaultErrorHandler {
        private OneLine() {
            super(FarlogAppender.this);
        }

        @Override
        public void error(final String message, final LogEvent event, final Throwable cause) {
            if (!(cause instanceof FarlogLoggingException)) {
                super.error(message, event, cause);
            }
        }
    }

    private String describe(final Result result) {
        return "appender \"" + getName() + "\", ring \"" + settings.ring().uri() + "\": " + result + ": "
            + switch (result) {
                case NOT_FOUND -> isOfRoute() ? "no leg of the route takes its class and criticality"
                    : "the ring's file was removed or replaced";
                case TOO_LARGE -> isOfRoute() ? result.text() : "the event and its key take more than the " + payloadMax
                    + " bytes that a record of this ring may have";
                case INVALID ->
                    "the key, thread context value \"" + settings.keyMdc() + "\", takes more than 65535 bytes";
                default -> result.text();
            };
    }

    private boolean isOfRoute() {
        return RecordSink.isRoute(settings.ring().uri());
    }

    private EventBuffer newBuffer() {
        return new EventBuffer(payloadMax);
    }

    private LoggerContext context() {
        final Configuration configuration = settings.configuration();
        return configuration == null ? null : configuration.getLoggerContext();
    }

    /** Log4j tells of a reference to no appender and goes on: a logger that was to log here would log nowhere. */
    private void refuseWrongReferences() {
        final Configuration configuration = settings.configuration();
        if (configuration == null || configuration.getState() != LifeCycle.State.STARTING) {
            return;
        }
        for (final LoggerConfig logger : configuration.getLoggers().values()) {
            for (final AppenderRef ref : logger.getAppenderRefs()) {
                if (configuration.getAppender(ref.getRef()) == null) {
                    throw new ConfigurationException(
                        "logger \"" + (logger.getName().isEmpty() ? "root" : logger.getName())
                            + "\" refers to appender \"" + ref.getRef()
                            + "\", and there is none of that name: expected one of "
                            + String.join(", ", configuration.getAppenders().keySet()));
                }
            }
        }
    }

    private AppenderControl findFailover() {
        final String ref = settings.failoverRef();
        if (ref == null) {
            return null;
        }
        final Appender target = settings.configuration() == null ? null : settings.configuration().getAppender(ref);
        if (target == null || target == this) {
            throw new ConfigurationException("failoverRef=\"" + ref + "\": expected the name of another appender");
        }
        if (target.ignoreExceptions()) {
            throw new ConfigurationException(
                "failoverRef=\"" + ref + "\": that appender hides its failures, and an event that it loses "
                    + "would be lost without a word: set ignoreExceptions=\"false\" on it");
        }
        return new AppenderControl(target, null, null);
    }

    /**
     * A configuration that is being started is stopped, so that nothing of it stays open, and not put in force.
     * Appenders that Routing makes later belong to a configuration that goes on.
     */
    private ConfigurationException refuse(final ConfigurationException cause) {
        final String text = "appender \"" + getName() + "\": " + cause.getMessage();
        LOGGER.error("farlog refuses the configuration: {}", text);
        final Configuration configuration = settings.configuration();
        if (configuration != null && configuration.getState() == LifeCycle.State.STARTING) {
            configuration.stop();
        }
        return new ConfigurationException("farlog refuses the configuration: " + text, cause);
    }
}

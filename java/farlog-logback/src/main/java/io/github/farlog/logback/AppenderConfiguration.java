package io.github.farlog.logback;

import ch.qos.logback.core.Appender;
import ch.qos.logback.core.Context;
import ch.qos.logback.core.joran.util.PropertySetter;
import ch.qos.logback.core.model.processor.ImplicitModelHandler;
import ch.qos.logback.core.status.Status;
import io.github.farlog.client.FarlogException;
import io.github.farlog.client.Level;
import io.github.farlog.client.RecordSink;
import io.github.farlog.client.Result;
import io.github.farlog.client.WriterOptions;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/**
 * The configuration of an appender: the texts that Logback sets, and what they mean after {@link #parse}. The thread
 * that configures Logback writes it; other threads read it once the appender has started.
 */
final class AppenderConfiguration {
    String uri;
    String level;
    String spillDir;
    String policyText = "block(1s)";
    String deadlineText = "1s";
    String classText = "0";
    String gapClassText = "65535";
    String keyMdc;
    String keyPair;
    String writerName;
    String epochText = "0";
    final List<String> classRules = new ArrayList<>();
    /** The last status of the context before Logback read this appender's element; null when there was none. */
    private Status lastBefore;

    private AppenderPolicy policy;
    private long waitNanos;
    private long deadlineNanos;
    private int gapClass;
    private Classifier classifier;
    private KeySource keySource;

    /** Logback reads the appender's element from now on. */
    void begin(final Context context) {
        final List<Status> all = context == null ? List.of() : context.getStatusManager().getCopyOfStatusList();
        lastBefore = all.isEmpty() ? null : all.getLast();
    }

    /**
     * Parses the texts.
     *
     * @throws IllegalArgumentException a text is missing or wrong; it names the property, its value and what was
     * expected
     */
    void parse(final Context context) {
        rejectIgnoredErrors(context);
        policy = AppenderPolicy.parse(policyText);
        final Classifier rules = new Classifier(Classifier.parse("classId", classText));
        classRules.forEach(rules::add);
        classifier = rules;
        waitNanos = policy.patience().toNanos();
        deadlineNanos = AppenderPolicy.parseDuration("deadline", deadlineText).toNanos();
        gapClass = Classifier.parse("gapClass", gapClassText);
        if (uri == null || uri.isEmpty()) {
            throw new IllegalArgumentException("uri is missing: expected one as in mem:/dev/shm/orders.ring");
        }
        keySource = new KeySource(keyMdc, keyPair);
    }

    /**
     * Logback only warns of properties inside this element that it does not know or cannot set. A misspelt policy would
     * be another policy, a filter without its level another filter, and an encoder without its pattern would write
     * events of no bytes.
     */
    private void rejectIgnoredErrors(final Context context) {
        if (context == null) {
            return;
        }
        final List<Status> all = context.getStatusManager().getCopyOfStatusList();
        for (final Status status : all.subList(all.indexOf(lastBefore) + 1, all.size())) {
            final String text = status.getMessage();
            if (text != null && !(status.getOrigin() instanceof Appender) && (status.getLevel() == Status.ERROR
                || status.getOrigin() instanceof PropertySetter
                || text.startsWith(ImplicitModelHandler.IGNORING_UNKNOWN_PROP))) {
                throw new IllegalArgumentException(
                    text.replace(ImplicitModelHandler.IGNORING_UNKNOWN_PROP, "unknown property"));
            }
        }
    }

    /** Opens the ring or route, after {@link #parse}. Blocks as {@link RecordSink#open}. */
    Target open() throws FarlogException {
        checkRoute();
        final Level wanted;
        final int epoch;
        try {
            wanted = isRoute() ? null : Level.valueOf(level == null ? "PERSISTENT" : level.toUpperCase(Locale.ROOT));
            epoch = Integer.parseInt(epochText);
        } catch (final NumberFormatException e) {
            throw new IllegalArgumentException("epoch \"" + epochText + "\": expected a number", e);
        } catch (final IllegalArgumentException e) {
            throw new IllegalArgumentException("level \"" + level + "\": expected posted, visible or persistent", e);
        }
        final WriterOptions options = WriterOptions.defaults().withLevel(wanted).withName(writerName).withEpoch(epoch)
            .withDeadline(Duration.ofNanos(deadlineNanos));
        try {
            return Target.acquire(uri, options, spillDir);
        } catch (final LinkageError e) {
            throw new IllegalArgumentException("no native library: " + e.getMessage(), e);
        }
    }

    /** The legs of a route have levels and grants of their own; only they spill. */
    private void checkRoute() {
        if (isRoute() && (level != null || !"0".equals(epochText))) {
            throw new IllegalArgumentException("uri \"" + uri
                + "\" names a route, whose legs have levels and grants of their own: expected no level and no epoch");
        }
        if (!isRoute() && spillDir != null) {
            throw new IllegalArgumentException(
                "spillDir \"" + spillDir + "\" is for a route: expected uri route:farlog://NAME");
        }
    }

    boolean isRoute() {
        return RecordSink.isRoute(uri);
    }

    /** The text of a failed append. */
    String describe(final Result result) {
        final String notFound = isRoute() ? "no leg of the route takes its class and criticality"
            : "the ring's file was removed or replaced";
        return result.name() + ": " + (result == Result.NOT_FOUND ? notFound : result.text());
    }

    /** The policy of an appender whose configuration is wrong: as parsed, or failStop. */
    void setPolicyOfWrongConfiguration() {
        policy = policy == null ? AppenderPolicy.parse("failStop") : policy;
    }

    AppenderPolicy.Kind policyKind() {
        return policy.kind();
    }

    long waitNanos() {
        return waitNanos;
    }

    long deadlineNanos() {
        return deadlineNanos;
    }

    int gapClass() {
        return gapClass;
    }

    /** Null when the class rules are wrong. */
    Classifier classifier() {
        return classifier;
    }

    KeySource keySource() {
        return keySource;
    }
}

package io.github.farlog.logback;

import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.LoggerContext;
import ch.qos.logback.classic.joran.JoranConfigurator;
import ch.qos.logback.classic.util.LogbackMDCAdapter;
import ch.qos.logback.core.joran.spi.JoranException;
import ch.qos.logback.core.status.Status;
import java.io.ByteArrayInputStream;
import java.nio.charset.StandardCharsets;
import java.util.List;

/** A logger context of its own, configured by Logback's own configurator. */
final class TestContext implements AutoCloseable {
    final LoggerContext context = new LoggerContext();
    final LogbackMDCAdapter mdc = new LogbackMDCAdapter();

    TestContext() {
        context.setName("test");
        context.setMDCAdapter(mdc);
    }

    static TestContext of(final String xml) {
        final TestContext made = new TestContext();
        made.configure(xml);
        return made;
    }

    /** One FarlogAppender at the root; what is inside its element. */
    static String xml(final TestRing ring, final String inside) {
        return """
            <configuration>
              <appender name="FARLOG" class="io.github.farlog.logback.FarlogAppender">
                <uri>%s</uri>
                <level>visible</level>
                %s
                <encoder><pattern>%%msg</pattern></encoder>
              </appender>
              <root level="info"><appender-ref ref="FARLOG"/></root>
            </configuration>
            """.formatted(ring.uri, inside);
    }

    void configure(final String xml) {
        final JoranConfigurator configurator = new JoranConfigurator();
        configurator.setContext(context);
        try {
            configurator.doConfigure(new ByteArrayInputStream(xml.getBytes(StandardCharsets.UTF_8)));
        } catch (final JoranException e) {
            throw new IllegalStateException(e);
        }
    }

    void reconfigure(final String xml) {
        context.reset();
        configure(xml);
    }

    Logger logger(final String name) {
        return context.getLogger(name);
    }

    List<String> errors() {
        return context.getStatusManager().getCopyOfStatusList().stream()
            .filter(status -> status.getLevel() == Status.ERROR)
            .map(Status::getMessage).toList();
    }

    /** Of every level. */
    List<String> all() {
        return context.getStatusManager().getCopyOfStatusList().stream().map(Status::getMessage).toList();
    }

    @Override
    public void close() {
        context.stop();
    }
}

package io.github.farlog.log4j2;

import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;

/**
 * A fresh ring for each test, before Log4j's test kit starts the context: configurations name it
 * {@code ${sys:farlog.test.uri}}.
 */
final class RingExtension implements BeforeEachCallback, AfterEachCallback, ParameterResolver {
    private static final long SIZE_BYTES = 32 << 20;
    private TestRing ring;

    @Override
    public void beforeEach(final ExtensionContext context) {
        ring = TestRing.onTmpfs(SIZE_BYTES);
        System.setProperty("farlog.test.uri", ring.uri);
    }

    @Override
    public void afterEach(final ExtensionContext context) {
        ring.close();
    }

    @Override
    public boolean supportsParameter(final ParameterContext parameter, final ExtensionContext context) {
        return parameter.getParameter().getType() == TestRing.class;
    }

    @Override
    public Object resolveParameter(final ParameterContext parameter, final ExtensionContext context) {
        return ring;
    }
}

/**
 * Logback appender on a farlog ring.
 *
 * <p>{@link io.github.farlog.logback.FarlogAppender} is named in {@code logback.xml}; no code changes. When a logging
 * call returns, its event is in the ring at the level that was asked for, whatever thread made it; what happens when
 * that cannot be had is the appender's {@link io.github.farlog.logback.AppenderPolicy policy}.
 */
package io.github.farlog.logback;

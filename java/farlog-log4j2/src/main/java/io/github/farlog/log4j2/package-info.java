/**
 * Log4j 2 appender that records every event in a farlog ring before the logging call returns.
 *
 * <p>Used by configuration alone: see {@link io.github.farlog.log4j2.FarlogAppender}. The counters are
 * {@link io.github.farlog.log4j2.RingStats} (JMX) and {@link io.github.farlog.log4j2.FarlogMetrics} (Micrometer).
 */
package io.github.farlog.log4j2;

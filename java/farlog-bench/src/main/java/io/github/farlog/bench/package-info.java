/** Benchmarks of the Java client and the Log4j appender, run by {@code make bench-java}. Not published. */
package io.github.farlog.bench;

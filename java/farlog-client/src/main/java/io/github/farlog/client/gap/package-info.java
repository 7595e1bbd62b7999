/**
 * What the logging appenders share: gap records, which say in the ring which events were dropped before them, and an
 * orderly end.
 */
package io.github.farlog.client.gap;

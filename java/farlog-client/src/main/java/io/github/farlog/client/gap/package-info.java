/**
 * What the logging appenders share: telling in the ring itself which events were dropped before it, and leaving in
 * order.
 */
package io.github.farlog.client.gap;

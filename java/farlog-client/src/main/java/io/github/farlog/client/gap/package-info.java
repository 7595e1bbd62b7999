/** What the logging appenders share: telling in the ring itself which events were dropped before it. */
package io.github.farlog.client.gap;

package io.github.farlog.orderpath.record;

/**
 * Where orders and reports are recorded before they go on. {@link #record} returns when the message is as safe as the
 * recorder promises, or throws; there is nothing in between. One thread, unless a recorder says otherwise.
 */
public interface Recorder extends AutoCloseable {
    /** @throws NotRecordedException when the message is not known to be recorded: the order path must stop */
    void record(OrderMessages message);

    @Override
    void close();

    /** Records nothing: what the order path costs by itself. */
    static Recorder off() {
        return new Recorder() {
            @Override
            public void record(final OrderMessages message) {
                // Logging is off.
            }

            @Override
            public void close() {
                // Nothing was opened.
            }
        };
    }
}

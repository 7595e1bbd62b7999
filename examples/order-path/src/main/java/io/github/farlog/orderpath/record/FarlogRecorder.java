package io.github.farlog.orderpath.record;

import io.github.farlog.client.SharedWriter;
import io.github.farlog.client.Writer;

/** Records in a farlog stream: class by the message's type, key the ClOrdID, payload the message. One thread. */
public final class FarlogRecorder implements Recorder {
    private final Acknowledged stream;
    private final Runnable whenClosed;

    /** Takes the writer over and closes it. */
    public FarlogRecorder(final Writer writer) {
        stream = new Acknowledged(writer);
        whenClosed = writer::close;
    }

    /** One of several recorders on one stream. Closing any of them closes the writer: none records after that. */
    public FarlogRecorder(final SharedWriter writer) {
        stream = new Acknowledged(writer);
        whenClosed = writer::close;
    }

    @Override
    public void record(final OrderMessages message) {
        stream.append(message.bytes(), 0, message.length(), message.recordClass(), message.bytes(), message.keyOffset(),
            message.keyLength());
    }

    @Override
    public void close() {
        whenClosed.run();
    }
}

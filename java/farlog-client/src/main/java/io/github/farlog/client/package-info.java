/**
 * Client of farlog: append records to a ring, read them back, make and look at rings.
 *
 * <p><b>Units.</b> An LSN is a byte position in the stream that never wraps; names that end in {@code Nanos} are
 * nanoseconds, lengths and offsets are bytes.
 *
 * <p><b>Hot calls</b> (append, submit, poll, claim, commit, read and the like) return a
 * {@link io.github.farlog.client.Result}. They throw nothing, and allocate nothing once the buffers have grown to the
 * longest record. <b>Cold calls</b> (open, format, inspect) throw a {@link io.github.farlog.client.FarlogException}
 * whose message is one line.
 *
 * <p><b>Native code.</b> The client calls libfarlog by {@code java.lang.foreign}; start the JVM with
 * {@code --enable-native-access=io.github.farlog.client} (or {@code ALL-UNNAMED} on the class path). Where the library
 * is looked for: {@link io.github.farlog.client.NativeLibrary}.
 */
package io.github.farlog.client;

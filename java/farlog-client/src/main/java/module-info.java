/** Client of farlog, a log in far memory: writer, shared writer and reader of a ring. */
module io.github.farlog.client {
    exports io.github.farlog.client;
}

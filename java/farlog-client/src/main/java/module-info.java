/** Client of farlog, a log in far memory: writer, shared writer and reader of a ring. */
@SuppressWarnings("module") // the appenders' modules are not there when this one is compiled
module io.github.farlog.client {
    exports io.github.farlog.client;
    exports io.github.farlog.client.gap to io.github.farlog.log4j2, io.github.farlog.logback;
}

/** Log4j 2 appender of farlog. */
@SuppressWarnings("module") // the digit is Log4j's own name
module io.github.farlog.log4j2 {
    requires transitive org.apache.logging.log4j.core;
    requires org.apache.logging.log4j;
    requires transitive io.github.farlog.client;
    requires java.management;
    requires static transitive micrometer.core;

    exports io.github.farlog.log4j2;
    // Log4j fills the fields of a plugin's builder by reflection.
    opens io.github.farlog.log4j2 to org.apache.logging.log4j.core;
}

package io.github.farlog.log4j2;

import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/** An application as most are: its logger is a constant. */
final class StartMain {
    private static final Logger LOGGER = LogManager.getLogger(StartMain.class);

    private StartMain() {
    }

    public static void main(final String[] args) {
        System.out.println("main is reached");
        LOGGER.info("the first trade");
    }
}

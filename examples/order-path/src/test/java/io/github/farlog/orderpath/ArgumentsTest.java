package io.github.farlog.orderpath;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class ArgumentsTest {
    private static Arguments parse(final String... words) {
        return new Arguments("run it").ring("ring", "it.ring", "URI of its ring").option("size", "64MiB", "size")
            .parse(words);
    }

    @Test
    void shouldMakeRingsWhereTheyAreWanted() {
        assertEquals("mem:/dev/shm/it.ring", parse().uri("ring"));
        assertEquals("mem:/mnt/pmem/it.ring", parse("--rings", "/mnt/pmem/").uri("ring"));
        assertEquals("mem:/dev/dax0.0", parse("--rings", "/mnt/pmem", "--ring", "mem:/dev/dax0.0").uri("ring"));
    }

    @Test
    void shouldPrintAllOptionsWhenAskedForHelp() {
        for (final String word : new String[] {"--help", "-h", "help"}) {
            final String text = assertThrows(Arguments.HelpException.class, () -> parse("--size", "1MiB", word))
                .getMessage();
            assertTrue(text.startsWith("usage: run it") && text.contains("--rings")
                && text.contains("mem:RINGS/it.ring") && text.contains("--size"), text);
        }
    }

    @Test
    void shouldNameAWrongOption() {
        final var wrong = assertThrows(Arguments.UsageException.class, () -> parse("--sise", "1MiB"));
        assertTrue(wrong.getMessage().startsWith("--sise: expected --NAME VALUE"), wrong.getMessage());
        assertFalse(wrong instanceof Arguments.HelpException);
        assertInstanceOf(Arguments.UsageException.class, assertThrows(RuntimeException.class, () -> parse("--size")));
    }
}

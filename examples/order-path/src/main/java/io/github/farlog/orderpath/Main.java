package io.github.farlog.orderpath;

import io.github.farlog.orderpath.fix.FixProgram;
import io.github.farlog.orderpath.journal.JournalProgram;
import java.util.Arrays;

/**
 * Starts one of the programs: {@code order-book}, {@code journal} or {@code fix}. Exit codes: 0, 1 failure, 2 usage.
 */
public final class Main {
    private static final String USAGE = """
        usage: run order-book|journal|fix [--NAME VALUE ...]

          order-book   generator, order book and matching engine under rising load, with a table of latencies
          journal      the engine behind a journaller; its book made again from the journal
          fix          two QuickFIX/J engines whose message store and log are farlog

        Each program's own options: run PROGRAM --help. README.md beside it tells what they show.""";

    private Main() {
    }

    public static void main(final String[] words) {
        try {
            System.exit(run(words));
        } catch (final Arguments.HelpException e) {
            System.out.println(e.getMessage().stripTrailing());
            System.exit(0);
        } catch (final Arguments.UsageException e) {
            System.err.println(e.getMessage());
            System.exit(2);
        } catch (final Exception e) {
            for (Throwable cause = e; cause != null; cause = cause.getCause()) {
                System.err.println(cause == e ? cause : "  because " + cause);
            }
            System.exit(1);
        }
    }

    private static int run(final String[] words) throws Exception {
        final String[] rest = words.length == 0 ? words : Arrays.copyOfRange(words, 1, words.length);
        return switch (words.length == 0 ? "" : words[0]) {
            case "order-book" -> OrderBookProgram.run(rest);
            case "journal" -> JournalProgram.run(rest);
            case "fix" -> FixProgram.run(rest);
            case "--help", "-h", "help" -> throw new Arguments.HelpException(USAGE);
            default ->
                throw new Arguments.UsageException((words.length == 0 ? "" : words[0] + ": no such program\n") + USAGE);
        };
    }
}

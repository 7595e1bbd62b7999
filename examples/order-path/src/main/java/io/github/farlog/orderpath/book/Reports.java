package io.github.farlog.orderpath.book;

/** Takes the reports of a book, in their order. */
@FunctionalInterface
public interface Reports {
    /** @param report valid only during the call */
    void onReport(Report report);
}

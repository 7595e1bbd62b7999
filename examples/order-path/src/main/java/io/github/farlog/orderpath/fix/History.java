package io.github.farlog.orderpath.fix;

/** What a stream held before its ring's head: records that were drained into the store. */
@FunctionalInterface
public interface History {
    /** Gets the application's records in the order of the stream. */
    @FunctionalInterface
    interface Records {
        void onRecord(int recordClass, String key, String payload);
    }

    /**
     * Gives every record from the stream's first.
     *
     * @return the number of the record after the last one; 0 = there is none
     */
    long replay(Records to);

    /** Of a ring that nobody drains. */
    static History none() {
        return to -> 0;
    }
}

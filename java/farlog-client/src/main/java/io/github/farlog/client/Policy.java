package io.github.farlog.client;

/** What an append does when the ring is full. */
public enum Policy {
    /** Wait for the drain until the deadline, then {@link Result#FULL}. */
    BLOCK,
    /** {@link Result#FULL} at once. */
    REJECT
}

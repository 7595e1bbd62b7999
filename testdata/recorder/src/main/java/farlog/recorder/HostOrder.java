package farlog.recorder;

import java.util.Random;
import quickfix.SessionID;

/** One order as the trading host sees it, with what the trader means to do about it. */
final class HostOrder {
    /** What the trader does once the order has seen so many trades. */
    enum Intent { NOTHING, CANCEL, REPLACE, REPLACE_THEN_CANCEL, CANCEL_TWICE, ASK_STATUS }

    final SessionID session;
    final String firstClOrdId;
    final Random random;
    String clOrdId;
    String symbol;
    String account;
    char side;
    char type;
    char timeInForce;
    long quantity;
    long priceCents;
    Intent intent;
    int tradesBeforeIntent;
    int trades;
    int requests;
    boolean isRequestPending;
    boolean isOver;

    HostOrder(final SessionID session, final String clOrdId, final Random random) {
        this.session = session;
        this.firstClOrdId = clOrdId;
        this.clOrdId = clOrdId;
        this.random = random;
    }

    /** The id of the next request on this order: the first id with a letter for each request. */
    String nextRequestId() {
        requests++;
        return firstClOrdId + (char) ('A' + requests - 1);
    }
}

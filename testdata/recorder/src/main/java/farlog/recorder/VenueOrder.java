package farlog.recorder;

import java.math.BigDecimal;
import java.util.Random;
import quickfix.SessionID;

/** One order as the venue sees it. Its quantities and its status are computed here and nowhere else. */
final class VenueOrder {
    final SessionID session;
    final String orderId;
    final Random random;
    String clOrdId;
    String account;
    String symbol;
    String listId;
    char side;
    char type;
    char timeInForce;
    long quantity;
    long priceCents;

    long cumQty;
    BigDecimal notional = BigDecimal.ZERO;
    int execCount;
    int fillsLeft;
    boolean isResting;

    String pendingCancelId;
    PendingReplace pendingReplace;
    boolean isBidding;
    boolean isPendingNew;
    boolean isStopped;
    boolean isSuspended;
    boolean isDoneForDay;
    boolean isCalculated;
    boolean isCanceled;
    boolean isExpired;
    boolean isRejected;

    /** What a cancel/replace request asks for while the venue has not decided on it. */
    record PendingReplace(String clOrdId, long quantity, long priceCents) {
    }

    VenueOrder(final SessionID session, final String orderId, final Random random) {
        this.session = session;
        this.orderId = orderId;
        this.random = random;
    }

    boolean isFilled() {
        return cumQty == quantity;
    }

    boolean isLive() {
        return !isFilled() && !isClosed();
    }

    boolean hasPendingRequest() {
        return pendingCancelId != null || pendingReplace != null;
    }

    long leavesQty() {
        return isClosed() ? 0 : quantity - cumQty;
    }

    String nextExecId() {
        execCount++;
        return orderId + "-" + execCount;
    }

    void fill(final long fillQty, final long fillCents) {
        cumQty += fillQty;
        notional = notional.add(amount(fillQty, fillCents));
    }

    void unfill(final long fillQty, final long fillCents) {
        cumQty -= fillQty;
        notional = notional.subtract(amount(fillQty, fillCents));
    }

    String averagePrice() {
        return Fix.averagePrice(notional, cumQty);
    }

    /** OrdStatus by the precedence of the FIX specification: of all that hold, the most telling one. */
    char status() {
        if (pendingCancelId != null) {
            return '6';
        }
        if (pendingReplace != null) {
            return 'E';
        }
        if (isCalculated) {
            return 'B';
        }
        if (isDoneForDay) {
            return '3';
        }
        return isFilled() ? '2' : statusOfUnfilled();
    }

    private char statusOfUnfilled() {
        final boolean[] holds = {isRejected, isCanceled, isExpired, isStopped, isSuspended, cumQty > 0, isBidding, isPendingNew};
        final String codes = "84C791DA";
        for (int i = 0; i < holds.length; i++) {
            if (holds[i]) {
                return codes.charAt(i);
            }
        }
        return '0';
    }

    private boolean isClosed() {
        return isCanceled || isExpired || isRejected || isDoneForDay || isCalculated;
    }

    private static BigDecimal amount(final long fillQty, final long fillCents) {
        return BigDecimal.valueOf(fillCents, 2).multiply(BigDecimal.valueOf(fillQty));
    }
}

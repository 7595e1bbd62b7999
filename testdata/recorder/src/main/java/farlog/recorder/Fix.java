package farlog.recorder;

import java.math.BigDecimal;
import java.math.RoundingMode;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import quickfix.Message;
import quickfix.Session;
import quickfix.SessionID;
import quickfix.SessionNotFound;

/** The FIX words that both sides of the session use: tags, message types, time and number formats. */
final class Fix {
    static final String BEGIN_42 = "FIX.4.2";
    static final String BEGIN_44 = "FIX.4.4";

    static final int ACCOUNT = 1;
    static final int AVG_PX = 6;
    static final int CL_ORD_ID = 11;
    static final int COMMISSION = 12;
    static final int COMM_TYPE = 13;
    static final int CUM_QTY = 14;
    static final int CURRENCY = 15;
    static final int EXEC_ID = 17;
    static final int EXEC_REF_ID = 19;
    static final int EXEC_TRANS_TYPE = 20;
    static final int HANDL_INST = 21;
    static final int LAST_PX = 31;
    static final int LAST_QTY = 32;
    static final int ORDER_ID = 37;
    static final int ORDER_QTY = 38;
    static final int ORD_STATUS = 39;
    static final int ORD_TYPE = 40;
    static final int ORIG_CL_ORD_ID = 41;
    static final int PRICE = 44;
    static final int SIDE = 54;
    static final int SYMBOL = 55;
    static final int TEXT = 58;
    static final int TIME_IN_FORCE = 59;
    static final int TRANSACT_TIME = 60;
    static final int LIST_ID = 66;
    static final int LIST_SEQ_NO = 67;
    static final int TOT_NO_ORDERS = 68;
    static final int NO_RPTS = 82;
    static final int RPT_SEQ = 83;
    static final int CXL_QTY = 84;
    static final int NO_ORDERS = 73;
    static final int EX_DESTINATION = 100;
    static final int CXL_REJ_REASON = 102;
    static final int ORD_REJ_REASON = 103;
    static final int CLIENT_ID = 109;
    static final int EXEC_TYPE = 150;
    static final int LEAVES_QTY = 151;
    static final int EXEC_RESTATEMENT_REASON = 378;
    static final int BID_TYPE = 394;
    static final int LIST_STATUS_TYPE = 429;
    static final int LIST_ORDER_STATUS = 431;
    static final int CXL_REJ_RESPONSE_TO = 434;
    static final int PARTY_ID_SOURCE = 447;
    static final int PARTY_ID = 448;
    static final int PARTY_ROLE = 452;
    static final int NO_PARTY_IDS = 453;

    private static final DateTimeFormatter TIMESTAMP =
            DateTimeFormatter.ofPattern("yyyyMMdd-HH:mm:ss.SSSSSS").withZone(ZoneOffset.UTC);

    private Fix() {
    }

    /** A message of a type in the version that the session speaks. */
    static Message message(final SessionID session, final String type) {
        final Message message = new Message();
        message.getHeader().setString(8, session.getBeginString());
        message.getHeader().setString(35, type);
        return message;
    }

    static String now() {
        return TIMESTAMP.format(Instant.now());
    }

    static boolean is42(final SessionID session) {
        return BEGIN_42.equals(session.getBeginString());
    }

    static void send(final Message message, final SessionID session) {
        try {
            Session.sendToTarget(message, session);
        } catch (final SessionNotFound e) {
            throw new IllegalStateException("send on session " + session + ": no such session", e);
        }
    }

    /** Sum of quantity times price over quantity, to six decimals, without the zeros that say nothing. */
    static String averagePrice(final BigDecimal notional, final long quantity) {
        if (quantity == 0) {
            return "0";
        }
        final BigDecimal average = notional.divide(BigDecimal.valueOf(quantity), 6, RoundingMode.HALF_UP);
        return average.stripTrailingZeros().toPlainString();
    }
}

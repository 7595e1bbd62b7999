package io.github.farlog.orderpath.record;

/**
 * The record classes of the order path: those that farlog gives to FIX messages, so that its tools and routes know
 * them.
 */
public final class RecordClass {
    public static final int SESSION = 1;
    public static final int ORDER = 2;
    public static final int REQUEST = 3;
    public static final int EXECUTION = 4;
    public static final int REJECT = 5;
    public static final int OTHER = 6;

    private RecordClass() {
    }

    /** The class of a MsgType (tag 35). */
    public static int ofMsgType(final String msgType) {
        return switch (msgType) {
            case "0", "1", "2", "3", "4", "5", "A" -> SESSION;
            case "D", "E" -> ORDER;
            case "F", "G", "H", "K", "L", "M" -> REQUEST;
            case "8", "N" -> EXECUTION;
            case "9", "j" -> REJECT;
            default -> OTHER;
        };
    }
}

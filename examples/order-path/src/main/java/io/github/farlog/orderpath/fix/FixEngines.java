package io.github.farlog.orderpath.fix;

import quickfix.Acceptor;
import quickfix.Application;
import quickfix.ConfigError;
import quickfix.DefaultMessageFactory;
import quickfix.Initiator;
import quickfix.SessionID;
import quickfix.SessionSettings;
import quickfix.SocketAcceptor;
import quickfix.SocketInitiator;

/** The two ends of a session on loopback, each with its stream as message store and log. */
final class FixEngines {
    static final SessionID DESK = Wire.session("DESK7", "XVEN");
    static final SessionID VENUE = Wire.session("XVEN", "DESK7");

    private FixEngines() {
    }

    static Initiator desk(final Application application, final FixStream stream, final int port) throws ConfigError {
        final SessionSettings settings = settings("initiator", DESK);
        settings.setString(DESK, "SocketConnectHost", "127.0.0.1");
        settings.setLong(DESK, "SocketConnectPort", port);
        return new SocketInitiator(application, stream, settings, stream.logs(), new DefaultMessageFactory());
    }

    static Acceptor venue(final Application application, final FixStream stream, final int port) throws ConfigError {
        final SessionSettings settings = settings("acceptor", VENUE);
        settings.setString(VENUE, "SocketAcceptAddress", "127.0.0.1");
        settings.setLong(VENUE, "SocketAcceptPort", port);
        return new SocketAcceptor(application, stream, settings, stream.logs(), new DefaultMessageFactory());
    }

    /** Sequence numbers go on for ever: neither a logon nor a new day resets them, only the store remembers them. */
    private static SessionSettings settings(final String connectionType, final SessionID session) {
        final SessionSettings settings = new SessionSettings();
        settings.setString("ConnectionType", connectionType);
        settings.setString("NonStopSession", "Y");
        settings.setString("PersistMessages", "Y");
        settings.setString("ResetOnLogon", "N");
        settings.setString("HeartBtInt", "10");
        settings.setString("ReconnectInterval", "1");
        settings.setString("SocketTcpNoDelay", "Y");
        settings.setString("TimeStampPrecision", "MICROS");
        settings.setString("UseDataDictionary", "Y");
        settings.setString(session, "BeginString", session.getBeginString());
        settings.setString(session, "SenderCompID", session.getSenderCompID());
        settings.setString(session, "TargetCompID", session.getTargetCompID());
        settings.setString(session, "DataDictionary", "FIX44.xml");
        return settings;
    }
}

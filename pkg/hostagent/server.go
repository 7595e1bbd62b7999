package hostagent

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/farlog/farlog/pkg/loglimit"
)

const (
	askTimeout   = 5 * time.Second  // for the one packet that a client sends
	grantTimeout = 14 * time.Second // a second less than the C library waits
	clientsMax   = 256              // at a time, of all users
	userMax      = 32               // at a time, of one user; as many more are told so
	lingerMost   = time.Second      // for the packet of one who was told so before it was read
)

// Request is what a program asks for. A reader has no epoch.
type Request struct {
	IsReader                bool
	Stream, Name, Transport string
	EpochSeen               uint32
	IsTakeover              bool // a writer on another host that lives is fenced
	PID                     int32
	UID                     uint32
}

// Grant is what it gets. A reader's has the rings alone.
type Grant struct {
	URI       string // of a stream with several rings: all of them
	Epoch     uint32
	RingUUIDs [][16]byte // one a ring
	Tokens    [][]byte   // one a ring; empty: it is on this host
	Terms
}

// Refused is an error of Config.Acquire for a program that asked for something that is not, or that it may not have:
// the program is told, and nothing is logged as a failure of the agent.
type Refused struct {
	Result string // of the C library: NOT_FOUND, INVALID
	Err    error
}

// Error implements error.
func (r *Refused) Error() string { return r.Err.Error() }

// Unwrap implements the errors package's.
func (r *Refused) Unwrap() error { return r.Err }

// Config is what an agent needs.
type Config struct {
	Socket    string
	Rules     []Rule // who may write
	Readers   []Rule // who may read
	Devices   []DeviceRule
	Acquire   func(context.Context, Request) (Grant, error)
	Questions // of running writers
	Route     func(context.Context, string) ([]RouteLeg, error)
	Logger    *slog.Logger
}

// Server answers programs of this host.
type Server struct {
	config   Config
	listener *net.UnixListener
	slots    chan struct{}
	running  sync.WaitGroup
	writers  *Writers

	mutex sync.Mutex
	users map[uint32]int

	granted, refused, failed atomic.Uint64
	limit                    loglimit.Limiter // by user: what one does fills no disk
}

// Counts are what was answered.
type Counts struct{ Granted, Refused, Failed uint64 }

// Listen makes the socket. All users may connect; who may have what is decided when they ask.
func Listen(config Config) (*Server, error) {
	//lint:ignore G301 programs of all users reach the socket
	if err := os.MkdirAll(filepath.Dir(config.Socket), 0o755); err != nil {
		return nil, fmt.Errorf("host.socket %q: its directory cannot be made: %w", config.Socket, errors.Unwrap(err))
	}
	if err := removeStale(config.Socket); err != nil {
		return nil, err
	}
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: config.Socket, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("host.socket %q: cannot listen: %w", config.Socket, errors.Unwrap(err))
	}
	//lint:ignore G302 every user may ask; the kernel says who asks, and rules what is given
	if err := os.Chmod(config.Socket, 0o666); err != nil {
		return nil, errors.Join(fmt.Errorf("host.socket %q: %w", config.Socket, err), listener.Close())
	}
	return &Server{
		config: config, listener: listener, slots: make(chan struct{}, clientsMax),
		users:   make(map[uint32]int),
		writers: NewWriters(config.Questions, config.Logger),
	}, nil
}

// removeStale takes the socket of a dead agent away. That of a living one answers.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("host.socket %q: %w", path, errors.Unwrap(err))
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("host.socket %q: there is something else: expected a path where nothing is, or the socket "+
			"of an agent that has died", path)
	}
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err == nil {
		_ = conn.Close()
		return fmt.Errorf("host.socket %q: another host agent answers there: stop it first, or give --host-socket "+
			"another path", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("host.socket %q: %w", path, err)
	}
	return os.Remove(path)
}

// Run answers until ctx is done.
func (s *Server) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = s.listener.Close() })
	defer stop()
	defer s.running.Wait()
	s.running.Go(func() { s.writers.Run(ctx) })
	for {
		conn, err := s.listener.AcceptUnix()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			s.log(slog.LevelWarn, "accept", "a program could not be answered", "error", err)
			time.Sleep(10 * time.Millisecond) // out of descriptors, say
			continue
		}
		select {
		case s.slots <- struct{}{}:
		default:
			s.refused.Add(1)
			_ = conn.Close()
			continue
		}
		s.running.Go(func() {
			defer func() { <-s.slots }()
			defer conn.Close()
			s.serve(ctx, conn)
		})
	}
}

// Close takes the socket away.
func (s *Server) Close() error {
	if err := s.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Counts gives what was answered so far.
func (s *Server) Counts() Counts {
	return Counts{Granted: s.granted.Load(), Refused: s.refused.Load(), Failed: s.failed.Load()}
}

// serve answers one request.
func (s *Server) serve(ctx context.Context, conn *net.UnixConn) {
	p, err := peerOf(conn)
	if err != nil {
		s.log(slog.LevelWarn, "accept", "the credentials of a program could not be read", "error", err)
		return
	}
	under := s.enter(p)
	defer s.leave(p)
	if under >= 2*userMax {
		s.refused.Add(1)
		return
	}
	if under >= userMax {
		s.answer(conn, p, nil, refuse("IO", "%s has %d requests under way: try again later", p, userMax))
		_ = conn.SetDeadline(time.Now().Add(lingerMost))
		// whoever writes to a socket that is closed does not look whether there was an answer
		_, _ = conn.Read(make([]byte, 1))
		return
	}
	packet := make([]byte, packetLenMax+1)
	_ = conn.SetDeadline(time.Now().Add(askTimeout))
	length, err := conn.Read(packet)
	if err != nil || length == 0 {
		return // it came to look whether we are there
	}
	if length > packetLenMax {
		s.answer(conn, p, nil, refuse("INVALID", "request of more than %d bytes", packetLenMax))
		return
	}
	asking, cancel := context.WithTimeout(ctx, grantTimeout)
	defer cancel()
	made, err := s.handle(asking, p, string(packet[:length]))
	if err != nil && ctx.Err() != nil {
		return // the agent is stopped: whoever asked hears that nobody answers, and asks the next one
	}
	s.answer(conn, p, made, err)
}

func (s *Server) answer(conn *net.UnixConn, p peer, made *reply, err error) {
	text := ""
	var refused *refusal
	switch {
	case err == nil && made.isUnread:
		return
	case err == nil:
		if !made.isQuestion {
			s.granted.Add(1)
		}
		text = made.String()
	case errors.As(err, &refused):
		s.refused.Add(1)
		s.logOf(p, slog.LevelInfo, "refused", "error", err)
		text = refusalReply(refused)
	default:
		s.failed.Add(1)
		s.logOf(p, slog.LevelWarn, "no grant", "error", err)
		text = refusalReply(&refusal{result: "IO", text: err.Error()})
	}
	_ = conn.SetDeadline(time.Now().Add(askTimeout))
	var rights []byte
	if made != nil && made.file != nil {
		defer made.file.Close()
		rights = syscall.UnixRights(int(made.file.Fd()))
	}
	if _, _, err := conn.WriteMsgUnix([]byte(text), rights, nil); err != nil {
		s.logOf(p, slog.LevelWarn, "a program did not read its answer", "error", err)
	}
}

// logOf logs what a program did, unless its user has caused many lines already. not_logged is how many were left out.
func (s *Server) logOf(p peer, level slog.Level, text string, pairs ...any) {
	s.log(level, strconv.FormatUint(uint64(p.uid), 10)+" "+text, text, append(pairs, "uid", p.uid, "pid", p.pid)...)
}

func (s *Server) log(level slog.Level, party, text string, pairs ...any) {
	suppressed, isAllowed := s.limit.Allow(party, time.Now())
	if !isAllowed {
		return
	}
	if suppressed > 0 {
		pairs = append(pairs, "not_logged", suppressed)
	}
	s.config.Logger.Log(context.Background(), level, text, pairs...)
}

func (s *Server) handle(ctx context.Context, p peer, packet string) (*reply, error) {
	asked, err := parseRequest(packet)
	if err != nil {
		return nil, err
	}
	switch asked.verb {
	case verbDevice:
		return s.openDevice(p, asked)
	case verbMembers:
		return s.extend(ctx, p, asked)
	case verbRoute:
		return s.route(ctx, p, asked)
	}
	return s.grant(ctx, p, asked)
}

func (s *Server) grant(ctx context.Context, p peer, asked request) (*reply, error) {
	stream, isReader := asked.values["stream"], asked.verb == verbReader
	if err := s.may(p, stream, isReader); err != nil {
		return nil, err
	}
	seen, err := asked.number("epoch-seen")
	if err != nil {
		return nil, err
	}
	grant, err := s.config.Acquire(ctx, Request{
		IsReader: isReader, Stream: stream, Name: asked.values["name"], Transport: asked.values["transport"],
		EpochSeen: seen, PID: p.pid, UID: p.uid,
		IsTakeover: asked.values["takeover"] == takeoverYes,
	})
	if err := asRefusal(err); err != nil {
		return nil, err
	}
	s.logOf(p, slog.LevelInfo, "granted", "stream", stream, "reader", isReader, "epoch", grant.Epoch, "remote",
		grant.isFar())
	return replyOf(grant, isReader), nil
}

// asRefusal is an error of the control plane's as the program is told.
func asRefusal(err error) error {
	var refused *Refused
	if errors.As(err, &refused) {
		return refuse(refused.Result, "%s", refused.Err)
	}
	return err
}

// isFar reports whether one of the rings is on another host.
func (g Grant) isFar() bool {
	return slices.ContainsFunc(g.Tokens, func(token []byte) bool { return len(token) > 0 })
}

func replyOf(grant Grant, isReader bool) *reply {
	made := newReply()
	made.add("uri", grant.URI)
	if !isReader {
		made.add("epoch", grant.Epoch)
	}
	uuids, tokens := "", ""
	for i, uuid := range grant.RingUUIDs {
		token := [16]byte{} // none
		copy(token[:], grant.Tokens[i])
		uuids, tokens = uuids+hex.EncodeToString(uuid[:]), tokens+hex.EncodeToString(token[:])
	}
	made.add("uuid", uuids)
	if grant.isFar() {
		made.add("token", tokens)
	}
	if isReader {
		return made
	}
	made.addTerms(grant.Terms)
	return made
}

func (r *reply) addTerms(terms Terms) {
	r.add("level", terms.Level)
	r.add("policy", terms.Policy)
	r.add("deadline-ns", terms.Deadline.Nanoseconds())
}

// enter gives how many requests of the user are under way already: one user does not take all places.
func (s *Server) enter(p peer) int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.users[p.uid]++
	return s.users[p.uid] - 1
}

func (s *Server) leave(p peer) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.users[p.uid]--; s.users[p.uid] == 0 {
		delete(s.users, p.uid)
	}
}

// peerOf asks the kernel.
func peerOf(conn *net.UnixConn) (peer, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return peer{}, err
	}
	var found *syscall.Ucred
	var failure error
	if err := raw.Control(func(fd uintptr) {
		found, failure = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil {
		return peer{}, err
	}
	if failure != nil {
		return peer{}, os.NewSyscallError("SO_PEERCRED", failure)
	}
	return peer{pid: found.Pid, uid: found.Uid, gid: found.Gid}, nil
}

package hostagent

import (
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"math"
	"time"
)

const ringsMax = 9 // FARLOG_MEMBER_COUNT_MAX

// ExtendRequest is what the library asks for a writer that runs: which of its rings are others by now.
type ExtendRequest struct {
	Stream, Transport string
	Epoch             uint32
	RingUUIDs         [][]byte // that it has, in order
	PID               int32    // of who asks, whose the grant has to be
	Running           *Terms   // that it has taken in; nil: it does not say
	IsClosed          bool     // it has ended by itself, with nothing under way
}

// Terms are how a writer acknowledges, as the C library numbers them. No deadline: the region's own.
type Terms struct {
	Level, Policy uint32
	Deadline      time.Duration
}

// Extension is a ring that is another one than the writer has.
type Extension struct {
	Member   uint32
	URI      string
	RingUUID [16]byte
	Token    []byte // empty: it is on this host
}

// extend answers whoever may write the stream. Whether the grant is this process's the control plane knows.
func (s *Server) extend(ctx context.Context, p peer, asked request) (*reply, error) {
	stream := asked.values["stream"]
	if err := s.may(p, stream, false); err != nil {
		return nil, err
	}
	epoch, err := asked.number("epoch")
	if err != nil {
		return nil, err
	}
	raw, err := hex.DecodeString(asked.values["rings"])
	if err != nil || len(raw)%16 != 0 || len(raw) > 16*ringsMax {
		return nil, refuse("INVALID", "rings %.40q: expected 32 hexadecimal digits for each of at most %d rings",
			asked.values["rings"], ringsMax)
	}
	running, err := runningOf(asked)
	if err != nil {
		return nil, err
	}
	closed, err := asked.numberTo("closed", 1)
	if err != nil {
		return nil, err
	}
	request := ExtendRequest{
		Running: running, IsClosed: closed == 1, Stream: stream,
		Transport: asked.values["transport"], Epoch: epoch, PID: p.pid,
	}
	for ; len(raw) > 0; raw = raw[16:] {
		request.RingUUIDs = append(request.RingUUIDs, raw[:16])
	}
	if request.IsClosed {
		s.close(ctx, p, request)
		return &reply{isUnread: true}, nil
	}
	extensions, declared, err := s.writers.Extend(ctx, request)
	if err := asRefusal(err); err != nil {
		return nil, err
	}
	made := newReply()
	made.isQuestion = len(extensions) == 0
	for _, one := range extensions {
		s.logOf(p, slog.LevelInfo, "extended", "stream", stream, "epoch", epoch, "member", one.Member)
		made.add(fmt.Sprint("uri-", one.Member), one.URI)
		made.add(fmt.Sprint("uuid-", one.Member), hex.EncodeToString(one.RingUUID[:]))
		if len(one.Token) > 0 {
			made.add(fmt.Sprint("token-", one.Member), hex.EncodeToString(one.Token))
		}
	}
	made.addTerms(declared)
	return made, nil
}

// close passes on that a writer has ended. One that is not told of is taken for one that vanished, until the stream has
// another.
func (s *Server) close(ctx context.Context, p peer, request ExtendRequest) {
	if _, _, err := s.writers.Extend(ctx, request); err != nil {
		s.logOf(p, slog.LevelInfo, "a writer has ended, and the control plane could not be informed", "stream",
			request.Stream, "epoch", request.Epoch, "error", err)
		return
	}
	s.logOf(p, slog.LevelInfo, "ended", "stream", request.Stream, "epoch", request.Epoch)
}

// runningOf is what a request says of its writer.
func runningOf(asked request) (*Terms, error) {
	level, err := asked.number("level")
	if err != nil || level == 0 {
		return nil, err
	}
	policy, err := asked.number("policy")
	if err != nil {
		return nil, err
	}
	deadline, err := asked.numberTo("deadline-ns", math.MaxInt64)
	return &Terms{Level: level, Policy: policy, Deadline: time.Duration(deadline)}, err
}

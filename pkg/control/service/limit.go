package service

import (
	"context"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/refusal"
	"github.com/farlog/farlog/pkg/identity"
)

// What one client may ask for. It is one identity at one address: nobody takes another one's share, and a program that
// asks without end is told to ask less. Agents, which may be many with one certificate on one host, have more.
const (
	// CallRateDefault is how many calls a second a client may make in the long run; four times as many in a burst.
	CallRateDefault = 500

	callBursts         = 4    // seconds' worth of calls at once
	agentShare         = 8    // times as many calls for reports and watches of agents
	watchesMax         = 1024 // open at the same time, of one client
	callsAtOnceMax     = 256  // on one connection
	connectionsMax     = 1024 // of one address, whose ends are known
	unauthenticatedMax = 256  // of one address, whose ends are not known yet
	limitedIdleMax     = time.Minute
	limitedSweepMin    = 256 // clients known before idle ones are forgotten

	// messageReadMax is what is read of a message so that one that is too large can be told what, how much and how much
	// at most. gRPC itself refuses those beyond it, before it calls anything of ours and with nothing but a text.
	messageReadMax = 2 * api.RequestLenMax
)

// How much a client may send that has not been taken. Left to itself gRPC measures each connection, with a ping and its
// answer beside what is sent, and widens these up to 16 MiB; here the report of a large target fits in without a word
// between.
const (
	callWindow       = 256 << 10
	connectionWindow = 1 << 20
)

// lengths notes in a call's context how long the message is that came last: to measure one that has been decoded is
// half as dear as to decode it. Used by one goroutine a call.
type lengths struct{}

type lengthKey struct{}

// TagRPC implements stats.Handler.
func (lengths) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, lengthKey{}, new(int))
}

// HandleRPC implements stats.Handler.
func (lengths) HandleRPC(ctx context.Context, event stats.RPCStats) {
	if message, ok := event.(*stats.InPayload); ok {
		if length, ok := ctx.Value(lengthKey{}).(*int); ok {
			*length = message.Length
		}
	}
}

// TagConn implements stats.Handler.
func (lengths) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (lengths) HandleConn(context.Context, stats.ConnStats) {}

// lengthOf is that of the message that came last in a call. One that did not come by gRPC is measured.
func lengthOf(ctx context.Context, message any) int {
	if length, ok := ctx.Value(lengthKey{}).(*int); ok {
		return *length
	}
	if request, ok := message.(proto.Message); ok {
		return proto.Size(request)
	}
	return 0
}

// checkLength refuses a message that is larger than one may be.
func checkLength(ctx context.Context, message any) error {
	length := lengthOf(ctx, message)
	if length <= api.RequestLenMax {
		return nil
	}
	return refusal.Exhausted(refusal.ReasonMessageLen, "message", strconv.Itoa(length), "expected at most %d bytes",
		api.RequestLenMax).
		Errorf("the message is too large, %d bytes: expected at most %d", length, api.RequestLenMax)
}

// limiter keeps count of clients.
type limiter struct {
	rate float64

	mutex   sync.Mutex
	clients map[client]*limited
}

type client struct {
	id      identity.ID
	address string
	isAgent bool
}

type limited struct {
	calls   *rate.Limiter
	watches int
	seen    time.Time
}

func newLimiter(callRate float64) *limiter {
	return &limiter{rate: callRate, clients: map[client]*limited{}}
}

// clientOf tells whose share a call is.
func clientOf(ctx context.Context, id identity.ID, method string) client {
	c := client{id: id, isAgent: !strings.HasPrefix(method, "/farlog.v1.ControlService/") &&
		!strings.HasPrefix(method, "/farlog.v1.FabricService/")}
	if from, ok := peer.FromContext(ctx); ok && from.Addr != nil {
		c.address, _, _ = net.SplitHostPort(from.Addr.String())
	}
	return c
}

// of finds a client's share; the caller holds the mutex.
func (l *limiter) of(c client, now time.Time) *limited {
	found := l.clients[c]
	if found == nil {
		if len(l.clients) >= limitedSweepMin {
			l.forgetIdle(now)
		}
		each := l.rate
		if c.isAgent {
			each *= agentShare
		}
		found = &limited{calls: rate.NewLimiter(rate.Limit(each), int(each*callBursts))}
		l.clients[c] = found
	}
	found.seen = now
	return found
}

func (l *limiter) forgetIdle(now time.Time) {
	for c, one := range l.clients {
		if one.watches == 0 && now.Sub(one.seen) > limitedIdleMax {
			delete(l.clients, c)
		}
	}
}

// call takes one call out of the client's share.
func (l *limiter) call(c client) error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	now := time.Now()
	if one := l.of(c, now); one.calls.AllowN(now, 1) {
		return nil
	}
	return refusal.Exhausted(refusal.ReasonCalls, "client", refusal.Quote(string(c.id)),
		"expected at most %.0f calls a second", l.rate).
		Errorf("%s at %s asks too often: expected at most %.0f calls a second; wait and ask again", c.id, c.address,
			l.rate)
}

// watch takes a place among the client's watches; end gives it back.
func (l *limiter) watch(c client) (end func(), err error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	one := l.of(c, time.Now())
	if one.watches >= watchesMax {
		return nil, refusal.Exhausted(refusal.ReasonWatches, "client", refusal.Quote(string(c.id)),
			"expected at most %d watches at a time", watchesMax).
			Errorf("%s at %s has %d watches open: expected at most so many", c.id, c.address, watchesMax)
	}
	one.watches++
	return func() {
		l.mutex.Lock()
		defer l.mutex.Unlock()
		one.watches--
	}, nil
}

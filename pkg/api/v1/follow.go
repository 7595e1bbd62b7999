package apiv1

import (
	"context"
	"strings"
	"time"

	"github.com/farlog/farlog/pkg/retry"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// How fast an agent that has lost the control plane tries again. The longest delay is well below an agent's lease, so
// that a restart of the control plane costs nobody an assignment.
const (
	retryDelayLeast   = 100 * time.Millisecond
	retryDelayMost    = time.Second
	retryDelayUnknown = 30 * time.Second // with a control plane that is too old to know the call
	dialTimeout       = 2 * time.Second
)

// RequestLenMax bounds what the control plane reads of one message: a fabric of about 100,000 streams. An answer may be
// longer, as it tells of each.
const (
	RequestLenMax = 16 << 20
	AnswerLenMax  = 4 * RequestLenMax
)

// Dial makes a connection to a control plane, or to the first of several that takes it: host:port, or a list of those
// with commas. When that one is gone, or has lost its etcd, the next is tried. It does not wait: calls fail with
// Unavailable while there is none.
func Dial(address string, credentials credentials.TransportCredentials) (*grpc.ClientConn, error) {
	var several []grpc.DialOption
	if list := strings.Split(address, ","); len(list) > 1 {
		among := newAmong(list)
		address, several = "farlog:///control", []grpc.DialOption{
			grpc.WithResolvers(among.resolver), grpc.WithChainUnaryInterceptor(among.unary),
			grpc.WithChainStreamInterceptor(among.stream),
		}
	}
	return grpc.NewClient(address, append(several,
		grpc.WithStatsHandler(otelgrpc.NewClientHandler(otelgrpc.WithFilter(IsTraced))),
		grpc.WithTransportCredentials(credentials),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: retryDelayLeast, Multiplier: 1.6, Jitter: 0.2,
				MaxDelay: retryDelayMost,
			},
			MinConnectTimeout: dialTimeout,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(AnswerLenMax)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: 5 * time.Second, Timeout: 3 * time.Second,
			PermitWithoutStream: true,
		}))...)
}

// IsTraced tells the calls that become spans, where spans are collected: not those that agents make every second, and
// not watches, which never end.
func IsTraced(info *stats.RPCTagInfo) bool {
	name := info.FullMethodName[strings.LastIndexByte(info.FullMethodName, '/')+1:]
	return strings.HasPrefix(info.FullMethodName, "/farlog.v1.") && !strings.HasPrefix(name, "Report") &&
		!strings.HasPrefix(name, "Watch")
}

// Follow keeps a watch open until ctx is done: it opens it, hands every message to onMessage in order, and opens it
// again, with backoff that differs from client to client, whenever it breaks. onDown learns of the first failure after
// each message. Both are called from this goroutine.
func Follow[M any](ctx context.Context, open func(context.Context) (grpc.ServerStreamingClient[M], error),
	onMessage func(*M), onDown func(error),
) {
	delays, isDown := retry.New(retryDelayLeast, retryDelayMost), false // all lose a control plane at the same moment
	for {
		err := followOnce(ctx, open, func(message *M) {
			delays.Reset()
			isDown = false
			onMessage(message)
		})
		if ctx.Err() != nil {
			return
		}
		if !isDown {
			isDown = true
			onDown(err)
		}
		pause := delays.NextBackOff()
		if status.Code(err) == codes.Unimplemented {
			pause = retryDelayUnknown
		}
		if retry.Sleep(ctx, pause) != nil {
			return
		}
	}
}

func followOnce[M any](ctx context.Context, open func(context.Context) (grpc.ServerStreamingClient[M], error),
	onMessage func(*M),
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch, err := open(ctx)
	if err != nil {
		return err
	}
	for {
		message, err := watch.Recv()
		if err != nil {
			return err
		}
		onMessage(message)
	}
}

package apiv1_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// granter is a control plane that grants, once it has said so often that it cannot.
type granter struct {
	api.UnimplementedControlServiceServer
	refusals int
	code     codes.Code
	asked    int
}

func (g *granter) AcquireWriter(context.Context, *api.AcquireWriterRequest) (*api.AcquireWriterResponse, error) {
	if g.asked++; g.asked <= g.refusals {
		return nil, status.Error(g.code, "not now")
	}
	return &api.AcquireWriterResponse{Grant: &api.Grant{Epoch: 7}}, nil
}

func acquire(ctx context.Context, client api.ControlServiceClient, asked chan<- error) (*api.AcquireWriterResponse,
	error,
) {
	return api.Retry(ctx, func() (*api.AcquireWriterResponse, error) {
		answer, err := client.AcquireWriter(ctx, &api.AcquireWriterRequest{})
		select {
		case asked <- err:
		default:
		}
		return answer, err
	})
}

// A control plane that refuses the connection, and then one that says that it cannot, is asked again until it answers.
func TestRetry_UntilTheControlPlaneIsThere(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "control")
	conn, err := api.Dial("unix:"+socket, insecure.NewCredentials())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	asked, answered := make(chan error, 100), make(chan error, 1)
	go func() {
		answer, err := acquire(t.Context(), api.NewControlServiceClient(conn), asked)
		if err == nil && answer.GetGrant().GetEpoch() != 7 {
			err = errors.New("another grant")
		}
		answered <- err
	}()
	for range 2 { // it was refused twice
		select {
		case err := <-asked:
			if status.Code(err) != codes.Unavailable {
				t.Fatalf("nobody listens, and the answer is %v", err)
			}
		case err := <-answered:
			t.Fatalf("given up: %v", err)
		}
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	defer server.Stop()
	api.RegisterControlServiceServer(server, &granter{refusals: 2, code: codes.Unavailable})
	go server.Serve(listener)
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

// Any other answer is one, and when the time is over the error says what the last call did.
func TestRetry_Ends(t *testing.T) {
	calls := 0
	refuse := func(code codes.Code) func() (int, error) {
		calls = 0
		return func() (int, error) { calls++; return 0, status.Error(code, "why") }
	}
	if _, err := api.Retry(t.Context(),
		refuse(codes.FailedPrecondition)); status.Code(err) != codes.FailedPrecondition || calls != 1 {
		t.Errorf("a refusal, after %d calls: %v", calls, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := api.Retry(ctx, refuse(codes.Unavailable)); status.Code(err) != codes.Unavailable || ctx.Err() == nil ||
		calls < 2 {
		t.Errorf("the time over, after %d calls: %v", calls, err)
	}
}

package apiv1

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// brokenWatch answers one message a call and then ends it, as a control plane does that is restarted all the time.
type brokenWatch struct {
	UnimplementedDrainServiceServer
	calls int
}

func (b *brokenWatch) WatchAssignments(_ *WatchAssignmentsRequest, stream DrainService_WatchAssignmentsServer) error {
	b.calls++
	if b.calls%2 == 0 {
		return status.Error(codes.Unavailable, "stopping")
	}
	return errors.Join(stream.Send(&WatchAssignmentsResponse{}), status.Error(codes.Unavailable, "stopping"))
}

func TestFollow_ComesBackAfterEachBreakAndTellsItOnce(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	RegisterDrainServiceServer(server, &brokenWatch{})
	go server.Serve(listener)
	defer server.Stop()
	conn, err := Dial(listener.Addr().String(), insecure.NewCredentials())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	messages, downs := 0, 0
	Follow(ctx, func(ctx context.Context) (grpc.ServerStreamingClient[WatchAssignmentsResponse], error) {
		return NewDrainServiceClient(conn).WatchAssignments(ctx, &WatchAssignmentsRequest{})
	}, func(*WatchAssignmentsResponse) {
		if messages++; messages == 4 {
			cancel()
		}
	}, func(error) { downs++ })
	if messages != 4 || downs != 3 {
		t.Errorf("%d messages, %d breaks told, want 4 and 3", messages, downs)
	}
}

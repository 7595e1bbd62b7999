package service

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
	"github.com/farlog/farlog/pkg/identity"
)

// A client of several control planes leaves one that answers and has lost its etcd: by the next call, which is not told
// of it, and by what it watches. The two have an etcd each here, so that it shows who answers.
func TestDial_LeavesWhoHasLostItsEtcd(t *testing.T) {
	t.Parallel()
	lost := etcdtest.Open(t, t.TempDir())
	first, second := startInstance(t, lost, true), startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	first.create("first")
	second.create("second")
	conn, err := api.Dial(first.conn.Target()+","+second.conn.Target(), identity.Insecure())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := api.NewControlServiceClient(conn)
	received := make(chan string, 16)
	watching, stop := context.WithCancel(t.Context())
	defer stop()
	go api.Follow(watching, func(ctx context.Context) (grpc.ServerStreamingClient[api.WatchStreamsResponse], error) {
		return client.WatchStreams(ctx, &api.WatchStreamsRequest{})
	}, func(message *api.WatchStreamsResponse) {
		for _, stream := range message.Streams {
			received <- stream.Spec.Name
		}
	}, func(error) {})
	receive := func(want string) {
		t.Helper()
		for deadline := time.After(stepTimeout); ; {
			select {
			case got := <-received:
				if got == want {
					return
				}
			case <-deadline:
				t.Fatalf("never learned of %s", want)
			}
		}
	}
	receive("first")
	if err := lost.Close(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(stepTimeout); ; time.Sleep(20 * time.Millisecond) {
		list, err := client.ListStreams(first.context(), &api.ListStreamsRequest{})
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("got %v, %v", list, err)
		}
		if list.Streams[0].Stream.Spec.Name == "second" {
			break
		}
	}
	receive("second")
	_, err = first.control.ListStreams(t.Context(), &api.ListStreamsRequest{})
	if !api.IsBlind(err) {
		t.Errorf("the first says %v", err)
	}
	if _, err := first.control.ExtendWriter(t.Context(),
		&api.ExtendWriterRequest{Stream: "first", Epoch: 1}); !api.IsBlind(err) {
		t.Errorf("to a writer that asks for other rings the first says %v", err)
	}
}

package service

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/identity"
)

// refusedMany is often enough for each way in which a call's end and the sending of its request can fall together.
const refusedMany = 1000

// TestInProcess_RequestOfAnEndedCall sends the request of a call with many answers when it is refused already. As of
// gRPC itself that is no error: the refusal comes with the answer.
func TestInProcess_RequestOfAnEndedCall(t *testing.T) {
	t.Parallel()
	server := New(Config{Logger: slog.New(slog.DiscardHandler)})
	for range refusedMany {
		stream, err := inProcess{server}.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true},
			api.ControlService_Backup_FullMethodName)
		if err != nil {
			t.Fatal(err)
		}
		<-stream.(*pipe).ended
		if err := errors.Join(stream.SendMsg(new(api.BackupRequest)), stream.CloseSend()); err != nil {
			t.Fatalf("send: %v", err)
		}
		if err := stream.RecvMsg(new(api.BackupEntry)); status.Code(err) != codes.Unavailable { // it has no etcd
			t.Fatalf("got %v, expected what the call was refused for", err)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	stream, err := inProcess{server}.NewStream(gone, &grpc.StreamDesc{ServerStreams: true},
		api.ControlService_Backup_FullMethodName)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.SendMsg(new(api.BackupRequest)); err != nil {
		t.Errorf("send for whom nobody waits: %v", err)
	}
}

// TestHTTP_RefusedStreamsSayWhy asks again and again for what is refused before its request is taken: each answer is
// the refusal.
func TestHTTP_RefusedStreamsSayWhy(t *testing.T) {
	t.Parallel()
	const rules = "rules:\n- {identities: [spiffe://farlog/farlog/host/none], roles: []}\n"
	many, few := startGuardedAt(t, rules, 1e6), startGuardedAt(t, rules, 1e-6)
	for _, test := range []struct {
		name, caller, path string
		from               *guarded
		code               int
	}{
		{"Backup without the role", "reader", "/v1/backup", many, http.StatusForbidden},
		{"WatchStreams without a role", "none", "/v1/watch/streams", many, http.StatusForbidden},
		{"WatchStreams too often", "reader", "/v1/watch/streams", few, http.StatusTooManyRequests},
		{"WatchStreams without a role, and too often", "none", "/v1/watch/streams", few, http.StatusTooManyRequests},
	} {
		client := test.from.web(test.from.keeper(identity.KindHost, test.caller, time.Hour))
		for i := range refusedMany / 2 {
			if code, body := test.from.ask(client, http.MethodGet, test.path, ""); code != test.code {
				t.Errorf("%s, call %d: %d %s, expected %d", test.name, i, code, body, test.code)
				break
			}
		}
	}
}

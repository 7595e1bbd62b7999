package service

import (
	"net/http"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/identity"
)

// refusedMany is often enough for each way in which a call's end and the reading of its request can fall together.
const refusedMany = 1000

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

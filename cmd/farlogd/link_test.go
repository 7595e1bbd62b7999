//go:build cgo

package main

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A role is ready once the control plane has taken it, goes on without one, and is not while its identity is refused.
func TestControlLink_Health(t *testing.T) {
	const (
		away    = "connection refused"
		refused = "role target on host h is not given"
	)
	for _, test := range []struct {
		name    string
		reports []error
		want    string
	}{
		{"nothing yet", nil, "has not been reached"},
		{"taken", []error{nil}, ""},
		{"away from the start", []error{status.Error(codes.Unavailable, away)}, away},
		{"taken, and away since", []error{nil, status.Error(codes.Unavailable, away)}, ""},
		{"refused", []error{status.Error(codes.PermissionDenied, refused)}, "refuses its identity: " + refused},
		{"taken, and refused since", []error{nil, status.Error(codes.Unauthenticated, refused)}, refused},
		{"refused by TLS since", []error{nil, status.Error(codes.Unavailable,
			"connection error: remote error: tls: bad certificate")}, "tls: bad"},
		{"refused, and taken since", []error{status.Error(codes.PermissionDenied, refused), nil}, ""},
		{"taken, and a report that was not stored", []error{nil, status.Error(codes.Internal, "no space")}, ""},
	} {
		link := newControlLink(roleTarget)
		for _, one := range test.reports {
			link.note(one)
		}
		got := ""
		if err := link.healthy(); err != nil {
			got = err.Error()
		}
		if test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, expected %q", test.name, got, test.want)
		}
		select {
		case <-link.first:
		default:
			if len(test.reports) > 0 {
				t.Errorf("%s: the first answer is still waited for", test.name)
			}
		}
	}
}

package main

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// controlLink is how a role of this daemon stands with the control plane, by its reports. A role that was taken once
// goes on without a control plane, and is ready then; one that has never reached it, or whose identity is refused, is
// not. Any goroutine may use it.
type controlLink struct {
	role     string
	progress *progress     // each report is a round of the role's loop
	first    chan struct{} // closed when the first report has had its answer, whatever that is

	mutex     sync.Mutex
	isAsked   bool
	isReached bool
	failure   error // of the last report
}

func newControlLink(role string) *controlLink {
	return &controlLink{role: role, progress: &progress{role: role}, first: make(chan struct{})}
}

// note takes in what came of a report.
func (l *controlLink) note(err error) {
	l.progress.note()
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if !l.isAsked {
		l.isAsked = true
		close(l.first)
	}
	l.isReached, l.failure = l.isReached || err == nil, err
}

// healthy says why the role is not ready.
func (l *controlLink) healthy() error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	switch {
	case l.failure != nil && isIdentityRefused(l.failure):
		return fmt.Errorf("%s: the control plane refuses its identity: %s", l.role, status.Convert(l.failure).Message())
	case l.isReached:
		return nil
	case l.failure != nil:
		return fmt.Errorf("%s: the control plane has not been reached yet: %s", l.role,
			status.Convert(l.failure).Message())
	}
	return errors.New(l.role + ": the control plane has not been reached yet")
}

// isIdentityRefused tells an answer to who asks from one to what is asked: also that of a TLS handshake.
func isIdentityRefused(err error) bool {
	answer := status.Convert(err)
	switch answer.Code() {
	case codes.PermissionDenied, codes.Unauthenticated:
		return true
	case codes.Unavailable:
		return strings.Contains(answer.Message(), "tls: ") ||
			strings.Contains(answer.Message(), "authentication handshake failed")
	}
	return false
}

package service

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/refusal"
)

const (
	bodyPaceMax   = 10 * time.Second // for the next bodyPaceBytes of a body, or its end
	bodyPaceBytes = 64 << 10
)

// limitPace keeps a request from never ending, also one that is answered before it is read. The request is a copy of
// net/http's, which has to find its own body in its own when it decides what to do with the rest of it.
func limitPace(response http.ResponseWriter, request *http.Request) {
	if request.Body == http.NoBody {
		return
	}
	deadline := http.NewResponseController(response).SetReadDeadline
	_ = deadline(time.Now().Add(bodyPaceMax)) // where it cannot be set, reading says so
	request.Body = &paced{ReadCloser: request.Body, deadline: deadline, limit: bodyPaceMax}
}

// errBodySlow is in the error of a body that comes too slowly.
var errBodySlow = fmt.Errorf("the body comes too slowly: expected its end, or %d bytes more of it, within %s",
	bodyPaceBytes, bodyPaceMax)

// paced is a body that has to get on: a byte now and then does not keep a connection open.
type paced struct {
	io.ReadCloser
	deadline func(time.Time) error // of the connection's reads
	limit    time.Duration
	left     int // bytes until there is more time
}

// Read implements io.Reader.
func (p *paced) Read(into []byte) (int, error) {
	if p.left <= 0 {
		p.left = bodyPaceBytes
		if err := p.deadline(time.Now().Add(p.limit)); err != nil {
			return 0, err
		}
	}
	count, err := p.ReadCloser.Read(into)
	p.left -= count
	switch {
	case errors.Is(err, io.EOF): // what follows is the answer, or the next request with a time of its own
		_ = p.deadline(time.Time{})
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = errBodySlow
	}
	return count, err
}

// bodyError is what a body is told that was not read to its end.
func bodyError(err error) error {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge) || errors.Is(err, bufio.ErrTooLong):
		return codedError{
			http.StatusRequestEntityTooLarge,
			refusal.Exhausted(refusal.ReasonBodyLen, "body", "", "expected at most %d bytes", api.RequestLenMax).
				Errorf("the body, or a line of several, is too large: expected at most %d bytes", api.RequestLenMax),
		}
	case errors.Is(err, errBodySlow):
		return codedError{http.StatusRequestTimeout, status.Error(codes.DeadlineExceeded, errBodySlow.Error())}
	}
	return status.Errorf(codes.Canceled, "the body ended early: %v", err)
}

package service

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/refusal"
)

const (
	bodyPaceMax   = 10 * time.Second // for the next bodyPaceBytes of a body, or its end
	bodyPaceBytes = 64 << 10
)

// restorePath is the one call whose body has many messages; each of them has the limit that others have as a whole.
const restorePath = "/v1/restore"

// limitBody keeps a request from filling the memory, and from never ending.
func limitBody(response http.ResponseWriter, request *http.Request) io.ReadCloser {
	if request.Body != http.NoBody {
		request.Body = &paced{
			ReadCloser: request.Body, deadline: http.NewResponseController(response).SetReadDeadline,
			limit: bodyPaceMax,
		}
	}
	if request.URL.Path == restorePath {
		return &lines{Closer: request.Body, from: bufio.NewReader(request.Body)}
	}
	return http.MaxBytesReader(response, request.Body, api.RequestLenMax)
}

// lines is a body that has no line longer than a request may be.
type lines struct {
	io.Closer
	from *bufio.Reader
	long int // of the line so far
}

// Read implements io.Reader.
func (l *lines) Read(into []byte) (int, error) {
	read, err := l.from.Read(into)
	for _, one := range into[:read] {
		if l.long++; one == '\n' {
			l.long = 0
		}
		if l.long > api.RequestLenMax {
			return 0, fmt.Errorf("a line of more than %d bytes: expected one entry a line", api.RequestLenMax)
		}
	}
	return read, err
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

// bodyAnswer is what a body is told that was not read to its end; nil: that is not what is wrong.
func bodyAnswer(err error) error {
	var tooLarge *http.MaxBytesError
	switch text := err.Error(); {
	case errors.As(err, &tooLarge) || strings.Contains(text, "request body too large"):
		// the gateway keeps the text alone
		return &runtime.HTTPStatusError{
			HTTPStatus: http.StatusRequestEntityTooLarge,
			Err: refusal.Exhausted(refusal.ReasonBodyLen, "body", "", "expected at most %d bytes", api.RequestLenMax).
				Errorf("the body is too large: expected at most %d bytes", api.RequestLenMax),
		}
	case strings.Contains(text, errBodySlow.Error()):
		return &runtime.HTTPStatusError{
			HTTPStatus: http.StatusRequestTimeout,
			Err:        status.Error(codes.DeadlineExceeded, errBodySlow.Error()),
		}
	}
	return nil
}

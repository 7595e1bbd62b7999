package apiv1

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/farlog/farlog/pkg/retry"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Retry makes a call of a client until the control plane has answered it: again while none can be reached, or the one
// asked says UNAVAILABLE, with a growing delay that differs from client to client, until ctx is done. The call is for
// something that may be asked for twice, as a grant is: its epoch is above that of the one before. When ctx is done the
// error is that of the last call that had time to find out why: one that was begun just before the end has not.
func Retry[M any](ctx context.Context, call func() (M, error)) (M, error) {
	var last error
	var longest time.Duration
	answer, err := backoff.Retry(ctx, func() (M, error) {
		began := time.Now()
		answer, err := call()
		lasted := time.Since(began)
		if code := status.Code(err); err != nil && code != codes.Unavailable {
			if code != codes.DeadlineExceeded || last == nil || ctx.Err() == nil {
				last = err
			}
			return answer, backoff.Permanent(last)
		}
		if lasted >= longest/2 {
			last = err
		}
		longest = max(longest, lasted)
		return answer, err
	}, backoff.WithBackOff(retry.New(retryDelayLeast, retryDelayMost)), backoff.WithMaxElapsedTime(0))
	if err != nil && last != nil && !errors.Is(ctx.Err(), context.Canceled) {
		err = last
	}
	return answer, err
}

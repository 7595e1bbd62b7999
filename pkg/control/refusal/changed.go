package refusal

import (
	"fmt"

	"google.golang.org/grpc/codes"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// StaleRevision is the answer to a change of something that is no longer as its caller has seen it.
func StaleRevision(what string, have, asked int64) error {
	return WithProblems(codes.Aborted, fmt.Sprintf("%s has been changed: it is at revision %d, what is asked is of "+
		"%d: look at it again", what, have, asked),
		[]*api.Problem{{
			Field: "revision", Value: fmt.Sprint(asked),
			Rule: fmt.Sprintf("expected %d, which it is at: look at it again", have),
		}})
}

// ChangedMeanwhile is the answer to a change that somebody else was faster than.
func ChangedMeanwhile(what string) error {
	return WithProblems(codes.Aborted, what+" has been changed since it was read: look at it again",
		[]*api.Problem{{Field: "revision", Rule: "expected nobody else to change it meanwhile: look at it again"}})
}

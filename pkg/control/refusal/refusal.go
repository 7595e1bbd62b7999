// Package refusal makes the errors with which the API says no: a gRPC code, a reason for programs, and the fields that
// are wrong.
package refusal

import (
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/check"
)

// Domain is ErrorInfo's, of all refusals of this API.
const Domain = "farlog.v1"

// Reasons of refusals, for programs; they do not change.
const (
	ReasonSpec           = "SPEC_NOT_TAKEN"
	ReasonSelected       = "SELECTED_BY_ROUTE"
	ReasonDeleting       = "BEING_DELETED"
	ReasonNotDeletable   = "NOT_DELETABLE"
	ReasonNotReplaceable = "MEMBER_NOT_REPLACEABLE"
	ReasonNoTarget       = "NO_TARGET"
	ReasonWriterHeld     = "WRITER_HELD"
	ReasonNothingLost    = "NOTHING_LOST"
	ReasonOneRing        = "ONE_RING"
	ReasonNoRing         = "NO_RING"
	ReasonNoTransport    = "NO_TRANSPORT"
	ReasonNoReach        = "NO_REACH"
	ReasonLaterEpoch     = "LATER_EPOCH"
	ReasonOtherHolder    = "OTHER_HOLDER"
	ReasonStoreLives     = "STORE_NOT_LOST"
	ReasonNoDrain        = "NO_DRAIN"
	reasonNotSeen        = "TARGET_DOES_NOT_REPORT"
	ReasonNotEmpty       = "CONTROL_PLANE_NOT_EMPTY"
	ReasonNotInBackup    = "NOT_IN_BACKUP"
	ReasonCalls          = "CALLS_PER_SECOND"
	ReasonWatches        = "WATCHES_OPEN"
	ReasonWriterLives    = api.ReasonWriterLives
	ReasonReaders        = "READERS_LET_IN"
	ReasonConsumers      = "SLOW_CONSUMERS_KNOWN"
	ReasonAuditEvents    = "ACTS_WAITING"
	ReasonBodyLen        = "BODY_LEN"
	ReasonMessageLen     = "MESSAGE_LEN"
	ReasonCapacity       = "RING_OVER_CAPACITY"
)

// Refusal is why something is not done now: the same may be done later, or after something else. It names the field of
// the request whose value stands in the way, and what is expected instead.
type Refusal struct {
	code   codes.Code // FailedPrecondition or ResourceExhausted
	reason string
	field  string
	value  string
	rule   string
}

// Precondition is a refusal because of how things are.
func Precondition(reason, field, value, rule string, args ...any) Refusal {
	return Refusal{codes.FailedPrecondition, reason, field, value, fmt.Sprintf(rule, args...)}
}

// Exhausted is a refusal because of how much there is already.
func Exhausted(reason, field, value, rule string, args ...any) Refusal {
	return Refusal{codes.ResourceExhausted, reason, field, value, fmt.Sprintf(rule, args...)}
}

// Errorf makes the error, with a text for people.
func (r Refusal) Errorf(format string, args ...any) error {
	return WithReason(r.code, r.reason, fmt.Sprintf(format, args...),
		[]*api.Problem{{Field: r.field, Value: r.value, Rule: r.rule}})
}

// ProblemsMax is how many problems an error tells of: an answer has a limit, and so has whoever reads it. The others
// are counted.
const ProblemsMax = 100

// first are the problems that are told, and how many are not.
func first(problems []*api.Problem) ([]*api.Problem, int) {
	told := problems[:min(len(problems), ProblemsMax)]
	return told, len(problems) - len(told)
}

// WithReason makes an error with its problems, and what programs of any language know of Google's APIs: BadRequest,
// PreconditionFailure or QuotaFailure, and ErrorInfo.
func WithReason(code codes.Code, reason, text string, problems []*api.Problem) error {
	problems, more := first(problems)
	details := []protoadapt.MessageV1{&api.Problems{Problems: problems, More: uint32(more)}}
	switch code {
	case codes.InvalidArgument:
		bad := new(errdetails.BadRequest)
		for _, one := range problems {
			bad.FieldViolations = append(bad.FieldViolations,
				&errdetails.BadRequest_FieldViolation{
					Field:       one.Field,
					Description: strings.TrimPrefix(one.Value+": "+one.Rule, ": "),
				})
		}
		details = append(details, bad)
	case codes.FailedPrecondition:
		failure := new(errdetails.PreconditionFailure)
		for _, one := range problems {
			failure.Violations = append(failure.Violations,
				&errdetails.PreconditionFailure_Violation{
					Type: reason, Subject: one.Field + " " + one.Value,
					Description: one.Rule,
				})
		}
		details = append(details, failure)
	case codes.ResourceExhausted:
		failure := new(errdetails.QuotaFailure)
		for _, one := range problems {
			failure.Violations = append(failure.Violations,
				&errdetails.QuotaFailure_Violation{Subject: one.Field + " " + one.Value, Description: one.Rule})
		}
		details = append(details, failure)
	}
	if reason != "" {
		info := &errdetails.ErrorInfo{Reason: reason, Domain: Domain}
		if len(problems) > 0 {
			info.Metadata = map[string]string{
				"field": problems[0].Field, "value": problems[0].Value,
				"rule": problems[0].Rule,
			}
		}
		details = append(details, info)
	}
	answer := status.New(code, text)
	if detailed, err := answer.WithDetails(details...); err == nil {
		return detailed.Err()
	}
	return answer.Err()
}

// Quote is a value as refusals give it: quoted and cut.
func Quote(text string) string { return fmt.Sprintf("%.80q", text) }

// InvalidArgument makes the error of a request: a text of what is wrong, and the same field by field, so far as
// ProblemsMax. subject, such as a stream, stands before it.
func InvalidArgument(subject string, problems []*api.Problem) error {
	var texts []string
	told, more := first(problems)
	for _, problem := range told {
		texts = append(texts, check.Text(problem))
	}
	if more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return WithProblems(codes.InvalidArgument, subject+strings.Join(texts, "; "), problems)
}

// WithProblems makes an error with a code, a text and the fields that are wrong.
func WithProblems(code codes.Code, text string, problems []*api.Problem) error {
	return WithReason(code, "", text, problems)
}

package control

import (
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// errorDomain is ErrorInfo's, of all refusals of this API.
const errorDomain = "farlog.v1"

// Reasons of refusals, for programs; they do not change.
const (
	reasonSpec           = "SPEC_NOT_TAKEN"
	reasonSelected       = "SELECTED_BY_ROUTE"
	reasonDeleting       = "BEING_DELETED"
	reasonNotDeletable   = "NOT_DELETABLE"
	reasonNotReplaceable = "MEMBER_NOT_REPLACEABLE"
	reasonNoTarget       = "NO_TARGET"
	reasonWriterHeld     = "WRITER_HELD"
	reasonNothingLost    = "NOTHING_LOST"
	reasonOneRing        = "ONE_RING"
	reasonNoRing         = "NO_RING"
	reasonNoTransport    = "NO_TRANSPORT"
	reasonNoReach        = "NO_REACH"
	reasonLaterEpoch     = "LATER_EPOCH"
	reasonOtherHolder    = "OTHER_HOLDER"
	reasonStoreLives     = "STORE_NOT_LOST"
	reasonNoDrain        = "NO_DRAIN"
	reasonNotSeen        = "TARGET_DOES_NOT_REPORT"
	reasonNotEmpty       = "CONTROL_PLANE_NOT_EMPTY"
	reasonNotInBackup    = "NOT_IN_BACKUP"
	reasonCalls          = "CALLS_PER_SECOND"
	reasonWatches        = "WATCHES_OPEN"
	reasonWriterLives    = api.ReasonWriterLives
	reasonReaders        = "READERS_LET_IN"
	reasonConsumers      = "SLOW_CONSUMERS_KNOWN"
	reasonActs           = "ACTS_WAITING"
	reasonBodyLen        = "BODY_LEN"
	reasonMessageLen     = "MESSAGE_LEN"
	reasonCapacity       = "RING_OVER_CAPACITY"
)

// refusal is why something is not done now: the same may be done later, or after something else. It names the field of the request whose value stands in the
// way, and what is expected instead.
type refusal struct {
	code   codes.Code // FailedPrecondition or ResourceExhausted
	reason string
	field  string
	value  string
	rule   string
}

// unmet is a refusal because of how things are.
func unmet(reason, field, value, rule string, args ...any) refusal {
	return refusal{codes.FailedPrecondition, reason, field, value, fmt.Sprintf(rule, args...)}
}

// overQuota is a refusal because of how much there is already.
func overQuota(reason, field, value, rule string, args ...any) refusal {
	return refusal{codes.ResourceExhausted, reason, field, value, fmt.Sprintf(rule, args...)}
}

// errorf makes the error, with a text for people.
func (r refusal) errorf(format string, args ...any) error {
	return withReason(r.code, r.reason, fmt.Sprintf(format, args...), []*api.Problem{{Field: r.field, Value: r.value, Rule: r.rule}})
}

// problemsTold is how many problems an error tells of: an answer has a limit, and so has whoever reads it. The others are counted.
const problemsTold = 100

// first are the problems that are told, and how many are not.
func first(problems []*api.Problem) ([]*api.Problem, int) {
	told := problems[:min(len(problems), problemsTold)]
	return told, len(problems) - len(told)
}

// withReason makes an error with its problems, and what programs of any language know of Google's APIs: BadRequest, PreconditionFailure or QuotaFailure, and ErrorInfo.
func withReason(code codes.Code, reason, text string, problems []*api.Problem) error {
	problems, more := first(problems)
	details := []protoadapt.MessageV1{&api.Problems{Problems: problems, More: uint32(more)}}
	switch code {
	case codes.InvalidArgument:
		bad := new(errdetails.BadRequest)
		for _, one := range problems {
			bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{Field: one.Field, Description: strings.TrimPrefix(one.Value+": "+one.Rule, ": ")})
		}
		details = append(details, bad)
	case codes.FailedPrecondition:
		failure := new(errdetails.PreconditionFailure)
		for _, one := range problems {
			failure.Violations = append(failure.Violations, &errdetails.PreconditionFailure_Violation{Type: reason, Subject: one.Field + " " + one.Value, Description: one.Rule})
		}
		details = append(details, failure)
	case codes.ResourceExhausted:
		failure := new(errdetails.QuotaFailure)
		for _, one := range problems {
			failure.Violations = append(failure.Violations, &errdetails.QuotaFailure_Violation{Subject: one.Field + " " + one.Value, Description: one.Rule})
		}
		details = append(details, failure)
	}
	if reason != "" {
		info := &errdetails.ErrorInfo{Reason: reason, Domain: errorDomain}
		if len(problems) > 0 {
			info.Metadata = map[string]string{"field": problems[0].Field, "value": problems[0].Value, "rule": problems[0].Rule}
		}
		details = append(details, info)
	}
	answer := status.New(code, text)
	if detailed, err := answer.WithDetails(details...); err == nil {
		return detailed.Err()
	}
	return answer.Err()
}

func quoted(text string) string { return fmt.Sprintf("%.80q", text) }

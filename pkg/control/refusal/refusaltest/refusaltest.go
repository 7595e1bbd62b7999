// Package refusaltest looks at refusals in tests.
package refusaltest

import (
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/refusal"
)

// Check wants of a refusal that it names a field, a value and a rule, for people and for programs; other errors are
// none of its business.
func Check(t *testing.T, err error) (reason, field string) {
	t.Helper()
	answer := status.Convert(err)
	if answer.Code() != codes.FailedPrecondition && answer.Code() != codes.ResourceExhausted {
		return "", ""
	}
	hasProblem, hasFailure := false, false
	for _, detail := range answer.Details() {
		switch detail := detail.(type) {
		case *api.Problems:
			hasProblem = len(detail.Problems) > 0 && detail.Problems[0].Field != "" &&
				strings.HasPrefix(detail.Problems[0].Rule, "expected ")
		case *errdetails.PreconditionFailure:
			hasFailure = answer.Code() == codes.FailedPrecondition && len(detail.Violations) > 0 &&
				detail.Violations[0].Type != "" && detail.Violations[0].Description != ""
		case *errdetails.QuotaFailure:
			hasFailure = answer.Code() == codes.ResourceExhausted && len(detail.Violations) > 0 &&
				detail.Violations[0].Description != ""
		case *errdetails.ErrorInfo:
			reason, field = detail.Reason, detail.Metadata["field"]
			hasFailure = hasFailure && detail.Domain == refusal.Domain
		}
	}
	if !hasProblem || !hasFailure || reason == "" || field == "" {
		t.Errorf("%s: %q says no field, value and rule in its details: %v", answer.Code(), answer.Message(),
			answer.Details())
	}
	return reason, field
}

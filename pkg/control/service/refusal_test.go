package service

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
	"github.com/farlog/farlog/pkg/control/refusal"
	"github.com/farlog/farlog/pkg/control/refusal/refusaltest"
)

// What is refused because of how things are says which field, value and rule, over gRPC and over HTTP.
func TestRefusals_CarryDetails(t *testing.T) {
	t.Parallel()
	one := startRefusing(t)
	for _, test := range refusedCalls {
		code, body := one.overHTTP(test.method, test.path, test.body)
		for _, want := range []string{
			`google.rpc.PreconditionFailure"`, `google.rpc.ErrorInfo"`,
			`"reason":"` + test.reason + `"`, `"field":"` + test.field + `"`, `"rule":"expected `,
		} {
			if code != http.StatusBadRequest || !strings.Contains(body, want) {
				t.Errorf("%s: no %s in %d %s", test.name, want, code, body)
			}
		}
	}
	_, err := one.control.UpdateStream(one.context(),
		&api.UpdateStreamRequest{Spec: &api.StreamSpec{Name: "desk7/orders", Align: 128}})
	if reason, field := refusaltest.Check(t, err); reason != refusal.ReasonSpec || field != "spec.align" {
		t.Errorf("over gRPC: %q %q, %v", reason, field, err)
	}
}

// refusedCalls are calls that break no rule of their fields, and what of the state refuses them.
var refusedCalls = []struct {
	name               string
	method, path, body string
	reason, field      string
}{
	{
		"change what stays", "PATCH", "/v1/streams", `{"spec": {"name": "desk7/orders", "align": 128}}`,
		refusal.ReasonSpec, "spec.align",
	},
	{
		"over a quota", "POST", "/v1/streams", `{"spec": {"name": "desk8/a"}}`, refusal.ReasonSpec,
		"spec.ring_size_bytes",
	},
	{"delete a route's stream", "DELETE", "/v1/streams/desk7/far", "", refusal.ReasonSelected, "name"},
	{"delete a route's route", "DELETE", "/v1/routes/r", "", refusal.ReasonSelected, "name"},
	{"delete what is written", "DELETE", "/v1/streams/desk7/orders", "", refusal.ReasonNotDeletable, "name"},
	{
		"change what goes", "PATCH", "/v1/streams", `{"spec": {"name": "desk7/going"}}`, refusal.ReasonDeleting,
		"name",
	},
	{
		"write without a ring", "POST", "/v1/writers",
		`{"stream": "desk7/bare", "holder": {"host": "h", "pid": 1, "name": "n"}}`, refusal.ReasonNoRing, "stream",
	},
	{
		"write by a transport that its ring lacks", "POST", "/v1/writers",
		`{"stream": "desk7/orders", "transport": "verbs", "holder": {"host": "h", "pid": 1, "name": "n"}}`,
		refusal.ReasonNoTransport, "transport",
	},
	{
		"extend another epoch", "POST", "/v1/writers/extensions",
		`{"stream": "desk7/orders", "epoch": 9, "holder": {"host": "h", "pid": 1, "name": "n"}}`,
		refusal.ReasonLaterEpoch, "epoch",
	},
	{
		"extend somebody else's", "POST", "/v1/writers/extensions",
		`{"stream": "desk7/orders", "epoch": 2, "holder": {"host": "h", "pid": 2, "name": "n"}}`,
		refusal.ReasonOtherHolder, "holder",
	},
	{
		"replace the only ring", "POST", "/v1/members/replacements",
		`{"stream": "desk7/orders", "member": "t1", "reason": "r"}`, refusal.ReasonOneRing, "stream",
	},
	{
		"restore where streams are", "POST", "/v1/restore", `{"key": "spec/stream_id", "value": "1"}`,
		refusal.ReasonNotEmpty, "entry",
	},
}

// startRefusing starts a control plane with streams, routes, a quota and a writer that refusedCalls are refused for.
func startRefusing(t *testing.T) *instance {
	t.Helper()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	stream := one.create("desk7/orders")
	one.create("desk7/far")
	one.create("desk7/bare")
	one.create("desk7/going")
	members := &api.StreamSpec{Name: "desk7/members", Members: 2, Needed: 1}
	if _, err := one.control.CreateStream(one.context(), &api.CreateStreamRequest{Spec: members}); err != nil {
		t.Fatal(err)
	}
	for _, spec := range []*api.RouteSpec{
		{Name: "r", Rules: []*api.RouteRule{{Legs: []*api.RouteLeg{{Stream: "desk7/far"}}}}},
		{Name: "q", Rules: []*api.RouteRule{{Route: "r"}}},
	} {
		if _, err := one.control.CreateRoute(one.context(), &api.CreateRouteRequest{Spec: spec}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := one.control.ApplyFabric(one.context(),
		&api.ApplyFabricRequest{Fabric: &api.Fabric{Tenants: []*api.TenantSpec{{
			Name:         "desk8",
			RingBytesMax: 1 << 20,
		}}}}); err != nil {
		t.Fatal(err)
	}
	held := shown(stream, func(r *api.RingState) { r.WriterHeld, r.WriterId, r.WriterEpoch = true, "trading1/77", 1 })
	one.reportTarget("t1", held, ring("desk7/going", "t1"),
		&api.RingState{Stream: "desk7/bare", Target: "t1", Error: "disk on fire"})
	one.until("it is bound", func() bool {
		return len(one.status("desk7/orders").RingSpecs) > 0 &&
			len(one.status("desk7/orders").RingSpecs[0].RingUuid) > 0
	})
	grant, err := one.acquire("desk7/orders")
	if err != nil || grant.Epoch != 2 {
		t.Fatal(grant, err)
	}
	if err := one.delete("desk7/going"); err != nil {
		t.Fatal(err)
	}
	return one
}

// overHTTP makes a request of the gateway on the same port, and gives the code and the body without blanks behind
// colons, which vary.
func (i *instance) overHTTP(method, path, body string) (int, string) {
	i.t.Helper()
	request, err := http.NewRequestWithContext(i.context(), method, "http://"+i.conn.Target()+path,
		strings.NewReader(body))
	if err != nil {
		i.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		i.t.Fatal(err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		i.t.Fatal(err)
	}
	return response.StatusCode, strings.ReplaceAll(string(raw), ": ", ":")
}

// What is wrong with a request is named field by field, in our own details and in those that programs of any language
// know.
func TestInvalid_HasBadRequest(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	_, err := one.control.CreateStream(one.context(), &api.CreateStreamRequest{Spec: &api.StreamSpec{
		Name:  "../etc",
		Align: 96,
	}})
	var bad *errdetails.BadRequest
	for _, detail := range status.Convert(err).Details() {
		if found, ok := detail.(*errdetails.BadRequest); ok {
			bad = found
		}
	}
	problems := problemsIn(err)
	if status.Code(err) != codes.InvalidArgument || len(problems) < 2 ||
		len(bad.GetFieldViolations()) != len(problems) {
		t.Fatalf("%v: %v, %v", err, problems, bad)
	}
	for i, problem := range problems {
		if got := bad.FieldViolations[i]; got.Field+"="+got.Description != problem {
			t.Errorf("%q is told as %v", problem, got)
		}
	}
	_, body := one.overHTTP("POST", "/v1/streams", `{"spec": {"name": "a", "align": 96}}`)
	for _, want := range []string{
		`google.rpc.BadRequest"`, `"field_violations":`,
		`"description":"96:expected a power of two from 64 to 4096"`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s over HTTP: %s", want, body)
		}
	}
	_, body = one.overHTTP("POST", "/v1/streams", `{"spec": {"nime": "a"}}`)
	if !strings.Contains(body, `google.rpc.BadRequest"`) {
		t.Errorf("what cannot be read: %s", body)
	}
}

// There is one way to refuse: an error of these codes that is made by hand has no details.
func TestRefusals_AreMadeInOnePlace(t *testing.T) {
	byHand := regexp.MustCompile(
		`status\.(New|Newf|Error|Errorf)\(codes\.(FailedPrecondition|ResourceExhausted|InvalidArgument)`,
	)
	paths, err := filepath.Glob("*.go")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if found := byHand.Find(raw); found != nil && !strings.HasSuffix(path, "_test.go") {
			t.Errorf("%s: %s: make it with unmet, overQuota or withProblems of refusal.go, which name field, value "+
				"and rule", path, found)
		}
	}
}

// Of thousands of problems the first are told, in the text as well, and the rest is counted: the answer has a limit,
// and whoever asked learns no more from the others.
func TestInvalid_MoreThanAnybodyReads(t *testing.T) {
	for count, more := range map[int]uint32{refusal.ProblemsMax: 0, 10_000: 10_000 - refusal.ProblemsMax} {
		var problems []*api.Problem
		for i := range count {
			problems = append(problems, &api.Problem{
				Field: fmt.Sprintf("fabric.streams[%d].name", i), Value: `"a"`,
				Rule: "expected each name once",
			})
		}
		answer := status.Convert(refusal.InvalidArgument("", problems))
		told, has := 0, uint32(0)
		for _, detail := range answer.Details() {
			switch detail := detail.(type) {
			case *api.Problems:
				told, has = len(detail.Problems), detail.More
			case *errdetails.BadRequest:
				if len(detail.FieldViolations) != refusal.ProblemsMax {
					t.Errorf("%d violations", len(detail.FieldViolations))
				}
			}
		}
		if told != refusal.ProblemsMax || has != more || proto.Size(answer.Proto()) > 64<<10 {
			t.Errorf("of %d problems %d are told, %d counted, %d bytes", count, told, has, proto.Size(answer.Proto()))
		}
		if isCounted := strings.HasSuffix(answer.Message(), "; and 9900 more"); isCounted != (more > 0) ||
			strings.Count(answer.Message(), "expected each") != refusal.ProblemsMax {
			t.Errorf("of %d problems: %d bytes of text, %v", count, len(answer.Message()), isCounted)
		}
	}
}

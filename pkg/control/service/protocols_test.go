package service

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/auditlog"
	"github.com/farlog/farlog/pkg/control/refusal"
	"github.com/farlog/farlog/pkg/identity"
)

func streamOf(name string) *api.CreateStreamRequest {
	return &api.CreateStreamRequest{Spec: &api.StreamSpec{Name: name}}
}

// By whichever protocol somebody calls: his certificate says who he is, the rules what he may do, what he does and what
// he is refused is recorded, and what is wrong with a request is told field by field.
func TestProtocols_SameRules(t *testing.T) {
	t.Parallel()
	events := &sink{}
	g := startGuardedWith(t, "rules: []\n", Config{Audit: events.record})
	admin, host := g.keeper(identity.KindAdmin, "ada", time.Hour), g.keeper(identity.KindHost, "trading1", time.Hour)
	for i, one := range protocols {
		name := "s" + string(rune('0'+i))
		if err := one.create(t.Context(), g, host, streamOf(name)); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s, without the role: %v", one.name, err)
		}
		if err := one.create(t.Context(), g, admin, streamOf(name)); err != nil {
			t.Errorf("%s: %v", one.name, err)
		}
		wrong := streamOf("bad")
		wrong.Spec.Align = 96
		err := one.create(t.Context(), g, admin, wrong)
		if problems := problemsIn(err); status.Code(err) != codes.InvalidArgument || len(problems) != 1 ||
			!strings.HasPrefix(problems[0], "spec.align=96: expected a power of two") {
			t.Errorf("%s, a bad field: %v %q", one.name, err, problems)
		}
		for _, want := range []struct{ who, outcome string }{
			{"host/trading1", "PERMISSIONDENIED"}, {"admin/ada", "OK"},
		} {
			g.until(one.name+": recorded as "+want.outcome, func() bool {
				return slices.ContainsFunc(events.all(), func(e auditlog.Event) bool {
					return e.What == "CreateStream" && e.Stream == name && e.Outcome == want.outcome &&
						strings.HasSuffix(e.Who, want.who) && strings.HasPrefix(e.From, "127.0.0.1")
				})
			})
		}
	}
}

// until waits until something is so.
func (g *guarded) until(what string, isSo func() bool) {
	g.t.Helper()
	for deadline := time.Now().Add(stepTimeout); !isSo(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			g.t.Fatalf("%s: not within %s", what, stepTimeout)
		}
	}
}

// By whichever protocol somebody calls: a message that is too large and a call too many are refused with the limit.
func TestProtocols_SameLimits(t *testing.T) {
	t.Parallel()
	g, slow := startGuarded(t, "rules: []\n"), startGuardedAt(t, "rules: []\n", 1e-6)
	admin := g.keeper(identity.KindAdmin, "ada", time.Hour)
	large := streamOf(strings.Repeat("a", api.RequestLenMax))
	for _, one := range protocols {
		want := refusal.ReasonMessageLen
		if one.name == "JSON" {
			want = refusal.ReasonBodyLen
		}
		err := one.create(t.Context(), g, admin, large)
		if reason, _ := checkExhausted(err); reason != want {
			t.Errorf("%s, too large: %v, reason %q, expected %s", one.name, err, reason, want)
		}
		caller := slow.keeper(identity.KindAdmin, "ada", time.Hour)
		_ = one.create(t.Context(), slow, caller, streamOf("a"))
		err = one.create(t.Context(), slow, caller, streamOf("a"))
		if reason, _ := checkExhausted(err); reason != refusal.ReasonCalls {
			t.Errorf("%s, too often: %v, reason %q", one.name, err, reason)
		}
	}
}

// checkExhausted gives the reason of a refusal for a limit.
func checkExhausted(err error) (reason string, isOne bool) {
	for _, one := range status.Convert(err).Details() {
		if info, ok := one.(*errdetails.ErrorInfo); ok {
			reason = info.Reason
		}
	}
	return reason, status.Code(err) == codes.ResourceExhausted
}

// By whichever protocol somebody watches: he learns of changes as they come, and no more when his certificate is
// revoked.
func TestProtocols_Watch(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, "rules: []\n")
	admin := g.keeper(identity.KindAdmin, "ada", time.Hour)
	watcher := g.keeper(identity.KindHost, "watcher", time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), stepTimeout)
	defer cancel()
	watches := map[string]func() ([]string, error){}
	for _, one := range protocols {
		next := one.watch(ctx, g, watcher)
		if names, err := next(); err != nil || len(names) != 0 {
			t.Fatalf("%s, at first: %v, %v", one.name, names, err)
		}
		watches[one.name] = next
	}
	if err := createOverGRPC(ctx, g, admin, streamOf("a")); err != nil {
		t.Fatal(err)
	}
	for name, next := range watches {
		if names, err := next(); err != nil || !slices.Equal(names, []string{"a"}) {
			t.Errorf("%s: %v, %v", name, names, err)
		}
	}
	if _, err := g.authority.Revoke([]string{watcher.Files().Cert}, time.Now()); err != nil {
		t.Fatal(err)
	}
	for name, next := range watches {
		var err error
		for err == nil { // a stream's condition may change meanwhile
			_, err = next()
		}
		if status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s, revoked: %v", name, err)
		}
	}
}

// By whichever protocol somebody calls: the call is a span of the caller's trace.
func TestProtocols_Traced(t *testing.T) {
	seen := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(seen))
	otel.SetTracerProvider(provider)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	g := startGuarded(t, "rules: []\n")
	admin := g.keeper(identity.KindAdmin, "ada", time.Hour)
	for i, one := range protocols {
		caller := trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{1, byte(i)}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled,
		})
		wrong := streamOf("../bad")
		if err := one.create(trace.ContextWithRemoteSpanContext(t.Context(), caller), g, admin, wrong); err == nil {
			t.Errorf("%s: %v was taken", one.name, wrong)
		}
		g.until(one.name+": a span of the caller's trace", func() bool {
			return slices.ContainsFunc(seen.GetSpans(), func(span tracetest.SpanStub) bool {
				return span.Name == "farlog.v1.ControlService/CreateStream" && span.SpanKind == trace.SpanKindServer &&
					span.SpanContext.TraceID() == caller.TraceID() && span.Parent.IsRemote()
			})
		})
	}
}

// A field that there is not is refused with its path by Connect's JSON as well.
func TestConnect_UnknownField(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, "rules: []\n")
	code, body := g.connectJSON([]byte(`{"spec": {"name": "a", "aling": 96}, "x": 1}`), "")
	var told struct {
		Code    string
		Details []struct{ Type, Value string }
	}
	if err := json.Unmarshal([]byte(body), &told); err != nil || code != 400 || told.Code != "invalid_argument" ||
		len(told.Details) == 0 || told.Details[0].Type != "farlog.v1.Problems" {
		t.Fatalf("got %d %s, %v", code, body, err)
	}
	raw, err := base64.RawStdEncoding.DecodeString(told.Details[0].Value)
	problems := new(api.Problems)
	if err := errors.Join(err, proto.Unmarshal(raw, problems)); err != nil {
		t.Fatal(err)
	}
	if got := problems.Problems; len(got) != 2 || got[0].Field != "spec.aling" || got[0].Value != "96" ||
		got[1].Field != "x" {
		t.Errorf("got %v", got)
	}
}

// connectJSON posts a body to CreateStream.
func (g *guarded) connectJSON(body []byte, encoding string) (int, string) {
	g.t.Helper()
	request, err := http.NewRequestWithContext(g.t.Context(), http.MethodPost, "https://"+g.address+
		api.ControlService_CreateStream_FullMethodName, bytes.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Connect-Protocol-Version", "1")
	if encoding != "" {
		request.Header.Set("Content-Encoding", encoding)
	}
	response, err := g.web(g.keeper(identity.KindAdmin, "ada", time.Hour)).Do(request)
	if err != nil {
		g.t.Fatal(err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return response.StatusCode, string(raw)
}

// What is small when packed is not unpacked without end.
func TestConnect_PackedBomb(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, "rules: []\n")
	var packed bytes.Buffer
	packer := gzip.NewWriter(&packed)
	for range 2 * messageReadMax >> 20 {
		if _, err := packer.Write(bytes.Repeat([]byte(" "), 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := packer.Close(); err != nil {
		t.Fatal(err)
	}
	if code, body := g.connectJSON(packed.Bytes(), "gzip"); code != 429 ||
		!strings.Contains(body, "too large when it is unpacked") {
		t.Errorf("got %d %s", code, body)
	}
}

// A body that says that it is longer than any message is refused before it is read.
func TestConnect_BodyTooLong(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, "rules: []\n")
	config, err := g.keeper(identity.KindAdmin, "ada", time.Hour).ClientConfig("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	config.NextProtos = []string{"http/1.1"}
	conn := tls.Client(g.from("127.0.0.1"), config)
	if err := conn.SetDeadline(time.Now().Add(stepTimeout)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"+
		"Connect-Protocol-Version: 1\r\n\r\n", api.ControlService_CreateStream_FullMethodName, api.AnswerLenMax+1)
	answer := make([]byte, 4096)
	if count, err := conn.Read(answer); !strings.HasPrefix(string(answer[:count]), "HTTP/1.1 429") {
		t.Errorf("got %q, %v", answer[:count], err)
	}
}

// Each message of a call with many has the limit that others have as a whole.
func TestConnect_MessageOfSeveral(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, "rules: []\n")
	admin := g.keeper(identity.KindAdmin, "ada", time.Hour)
	for name, options := range map[string][]connect.ClientOption{
		"Connect": nil, "gRPC-Web": {connect.WithGRPCWeb()}, "JSON": {connect.WithProtoJSON()},
	} {
		stream := connectClient[api.BackupEntry, api.RestoreResponse](
			g,
			admin,
			api.ControlService_Restore_FullMethodName,
			options...).CallClientStream(t.Context())
		entry := &api.BackupEntry{Key: "spec/streams/a", Value: strings.Repeat("a", api.RequestLenMax)}
		if err := stream.Send(entry); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		_, err := stream.CloseAndReceive()
		if reason, isOne := checkExhausted(ofConnect(err)); !isOne || reason != refusal.ReasonMessageLen {
			t.Errorf("%s: %v, reason %q", name, err, reason)
		}
	}
}

// As JSON each message of several is a line, which has the same limit: of more no memory is taken.
func TestHTTP_LineOfSeveral(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, "rules: []\n")
	admin := g.keeper(identity.KindAdmin, "ada", time.Hour)
	for name, test := range map[string]struct {
		body string
		code codes.Code
	}{
		"too long":        {`{"key": "` + strings.Repeat("a", api.RequestLenMax), codes.ResourceExhausted},
		"over many lines": {"{\n\"key\": \"spec/streams/a\"}", codes.InvalidArgument},
		"behind a line":   {"\n{\"key\": \"a\"}", codes.InvalidArgument},
	} {
		_, err := doOverJSON(t.Context(), g, admin, http.MethodPost, "/v1/restore", []byte(test.body))
		if status.Code(err) != test.code {
			t.Errorf("%s: %v, expected %s", name, err, test.code)
		}
	}
}

// Behind the ? of a call whose request is its body nothing would be read: it is refused, as "dry run" there would be
// done for real.
func TestHTTP_NoParametersBesideABody(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, "rules: []\n")
	admin := g.web(g.keeper(identity.KindAdmin, "ada", time.Hour))
	code, body := g.ask(admin, "POST", "/v1/streams?is_dry_run=true", `{"spec": {"name": "a"}}`)
	if code != 400 || !strings.Contains(strings.ReplaceAll(body, ": ", ":"), `"field":"is_dry_run"`) {
		t.Errorf("got %d %s", code, body)
	}
	if code, body := g.ask(admin, "GET", "/v1/streams/a", ""); code != 404 {
		t.Errorf("got %d %s, expected that nothing was created", code, body)
	}
}

// A path's field that stands behind the ? as well, and other methods than a path has.
func TestHTTP_PathsAndMethods(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, "rules: []\n")
	admin := g.web(g.keeper(identity.KindAdmin, "ada", time.Hour))
	for _, test := range []struct {
		method, path string
		code         int
		want         string
	}{
		{"GET", "/v1/targets/a?host=b", 400, `"rule":"expected the parameter once"`},
		{"GET", "/v1/streams?page_size=1&page_size=2", 400, `"rule":"expected the parameter once"`},
		{"GET", "/v1/streams/desk7%2Forders", 404, `desk7/orders`},
		{"HEAD", "/v1/watch/streams", 405, ""},
		{"GET", "/v1/restore", 405, "expected another method"},
		{"POST", "/v1/targets/a", 405, "expected another method"},
		{"GET", "/farlog.v1.ControlService/None", 404, "Not Found"},
	} {
		code, body := g.ask(admin, test.method, test.path, "")
		if code != test.code || !strings.Contains(strings.ReplaceAll(body, ": ", ":"), test.want) {
			t.Errorf("%s %s: got %d %s, want %d %s", test.method, test.path, code, body, test.code, test.want)
		}
	}
}

// Each service of the protocol is reached over HTTP: a new one has to be among them.
func TestHTTP_HasEveryService(t *testing.T) {
	t.Parallel()
	var want, got []string
	for _, file := range []protoreflect.FileDescriptor{api.File_farlog_proto, api.File_fabric_proto} {
		for i := range file.Services().Len() {
			want = append(want, string(file.Services().Get(i).FullName()))
		}
	}
	for _, one := range overHTTP {
		got = append(got, one.ServiceName)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got %v, expected %v: add them to overHTTP", got, want)
	}
}

package e2e

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/identity"
	"github.com/farlog/farlog/pkg/internal/testenv"
)

// spanCollector takes in spans as any OpenTelemetry collector does.
type spanCollector struct {
	collector.UnimplementedTraceServiceServer
	mutex sync.Mutex
	seen  []*spans.Span
	from  map[string]bool // services
}

// Export implements the collector's one call.
func (s *spanCollector) Export(_ context.Context,
	request *collector.ExportTraceServiceRequest,
) (*collector.ExportTraceServiceResponse, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, resource := range request.ResourceSpans {
		for _, attribute := range resource.Resource.GetAttributes() {
			if attribute.Key == "service.name" {
				s.from[attribute.Value.GetStringValue()] = true
			}
		}
		for _, scope := range resource.ScopeSpans {
			s.seen = append(s.seen, scope.Spans...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func (s *spanCollector) named(name string) *spans.Span {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, span := range s.seen {
		if span.Name == name {
			return span
		}
	}
	return nil
}

// A grant of a far ring is one trace: the call, the wait for the ring, the wait for the target; what the reconciler did
// before are spans with the stream's name. What agents say every second is none, and no token is in any of them.
func TestTrace_OfTheControlPath(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, server := &spanCollector{from: map[string]bool{}}, grpc.NewServer()
	collector.RegisterTraceServiceServer(server, s)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	cluster := testenv.PrepareRemoteCluster(t, testenv.MemoryDir(t), farHost, nil)
	cluster.TraceEndpoint = "http://" + listener.Addr().String()
	cluster.Start()
	cluster.CreateStream(streamName, "--size", "1MiB", "--level", "visible")
	grant, err := as(t, cluster, identity.KindHost).AcquireWriter(t.Context(),
		&api.AcquireWriterRequest{Stream: streamName, Holder: &api.Holder{Host: "elsewhere"}})
	if err != nil {
		t.Fatal(err)
	}
	names := []string{
		"farlog.v1.ControlService/CreateStream", "reconcile place", "reconcile bind", "reconcile assign",
		"farlog.v1.ControlService/AcquireWriter", "wait for the ring",
		"wait for the target to fence and admit",
	}
	for _, name := range names {
		testenv.Until(t, "the span "+name+" is there", func() (bool, error) { return s.named(name) != nil, nil })
	}
	call := s.named("farlog.v1.ControlService/AcquireWriter")
	for _, name := range names[5:] {
		if part := s.named(name); string(part.TraceId) != string(call.TraceId) ||
			string(part.ParentSpanId) != string(call.SpanId) {
			t.Errorf("%q is no part of the call", name)
		}
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if !s.from["farlogd-control"] {
		t.Errorf("spans are of %v", s.from)
	}
	for _, span := range s.seen {
		if strings.Contains(span.Name, "Report") || strings.Contains(span.Name, "Watch") {
			t.Errorf("span %s", span.Name)
		}
		if text := fmt.Sprint(span); strings.Contains(text, string(grant.Grant.Members[0].Token)) {
			t.Errorf("a token is in span %s", span.Name)
		}
	}
}

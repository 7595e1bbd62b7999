//go:build cgo

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/identity"
)

// TestDev_MetricsOfALivingStream runs the whole daemon in this process, appends to a stream with the grant that it
// gives, and reads /metrics with Prometheus's own parser and linter.
func TestDev_MetricsOfALivingStream(t *testing.T) {
	address := startDev(t)
	writer := openDevWriter(t, address)
	for range 20 {
		if _, err := writer.Append(farlog.Entry{Data: []byte("order")}, 0); err != nil {
			t.Fatal(err)
		}
	}
	wanted := map[string]float64{
		"farlog_writer_records_total": 20, "farlog_drain_records_total": 21, "farlog_ring_lag_bytes": 0,
		"farlog_ring_writer_held":  1,
		"farlog_ring_writer_epoch": 1, "farlog_control_grants_total": 1, "farlog_stream_granted_epoch": 1,
		"farlog_target_control_connected": 1,
	}
	var body string
	for deadline := time.Now().Add(stepTimeout); ; time.Sleep(50 * time.Millisecond) {
		body = fetch(t, "http://"+address.Metrics+"/metrics")
		for _, role := range []string{"control", "target", "drain"} {
			if !strings.Contains(body, "\nfarlog_"+role+"_certificate_expiry_timestamp_seconds 1.") {
				t.Fatalf("no expiry of the certificate of role %s:\n%s", role, body)
			}
		}
		missing := difference(t, body, wanted)
		if missing == "" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s\n%s", missing, body)
		}
	}
	problems, err := promlint.New(strings.NewReader(body)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		if strings.HasPrefix(problem.Metric, "farlog_") {
			t.Errorf("%s: %s", problem.Metric, problem.Text)
		}
	}
	if got := fetch(t, "http://"+address.Metrics+"/healthz"); got != "ok\n" {
		t.Errorf("health: %q", got)
	}
}

// openDevWriter makes stream a and opens it by the grant that the daemon gives.
func openDevWriter(t *testing.T, address ready) *farlog.Writer {
	t.Helper()
	writer, err := openDevStream(t.Context(), dialDev(t, address), &api.StreamSpec{Name: "a", RingSizeBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { writer.Close() })
	return writer
}

func dialDev(t *testing.T, address ready) api.ControlServiceClient {
	t.Helper()
	conn, err := api.Dial(address.Control, identity.NewClientCredentials(identity.Choice{
		Control: address.Control,
		Kinds:   []identity.Kind{identity.KindAdmin},
	}.Finder()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return api.NewControlServiceClient(conn)
}

// openDevStream creates a stream and opens it for writing.
func openDevStream(ctx context.Context, client api.ControlServiceClient, spec *api.StreamSpec) (*farlog.Writer, error) {
	if _, err := client.CreateStream(ctx, &api.CreateStreamRequest{Spec: spec}); err != nil {
		return nil, err
	}
	response, err := client.AcquireWriter(ctx, &api.AcquireWriterRequest{
		Stream: spec.Name,
		Holder: &api.Holder{Name: "test"},
	})
	for status.Code(err) == codes.Unavailable { // its ring is not made yet; how long that takes is the machine's
		time.Sleep(50 * time.Millisecond)
		response, err = client.AcquireWriter(ctx, &api.AcquireWriterRequest{
			Stream: spec.Name,
			Holder: &api.Holder{Name: "test"},
		})
	}
	if err != nil {
		return nil, err
	}
	return farlog.OpenWriter(response.Grant.Members[0].Uri,
		farlog.WriterOptions{Epoch: response.Grant.Epoch, Deadline: 10 * time.Second, Level: farlog.Level(spec.Level)})
}

// startDev runs farlogd dev until the end of the test and returns its ready line.
func startDev(t *testing.T, args ...string) ready {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	stdout, wire := io.Pipe()
	var stderr bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		args := append([]string{
			"dev", "--data-dir", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0",
			"--metrics-listen", "127.0.0.1:0",
		}, args...)
		ended <- run(ctx, args, wire, &stderr)
		wire.Close()
	}()
	t.Cleanup(func() {
		cancel()
		if code := <-ended; code != exitOK {
			t.Errorf("exit code %d: %s", code, stderr.String())
		}
	})
	var message ready
	if err := json.NewDecoder(stdout).Decode(&message); err != nil {
		t.Fatalf("no ready line: %v", err)
	}
	go io.Copy(io.Discard, stdout)
	return message
}

func fetch(t *testing.T, url string) string {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func difference(t *testing.T, body string, wanted map[string]float64) string {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	var missing []string
	for name, want := range wanted {
		family := families[name]
		if len(family.GetMetric()) != 1 ||
			family.Metric[0].GetGauge().GetValue()+family.Metric[0].GetCounter().GetValue() != want {
			missing = append(missing, name)
		}
	}
	return strings.Join(missing, " ")
}

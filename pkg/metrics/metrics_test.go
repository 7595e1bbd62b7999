package metrics

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"pgregory.net/rapid"
)

func fullRegistry() *prometheus.Registry {
	registry := NewRegistry("test")
	control := NewControl(registry, func() []StreamSample {
		return []StreamSample{{
			Stream: "a", Condition: "ok", EpochGranted: 3, IsDrainAlive: true, Members: 1,
			MembersReady: 1,
		}}
	}, func() InstanceSample { return InstanceSample{IsLeading: true, IsEtcdSeen: true, TargetsAlive: 4} })
	control.OnRequest("/farlog.v1.ControlService/AcquireWriter", "OK", 3*time.Millisecond)
	control.OnGrant("a")
	NewRings(registry, func() []RingSample {
		return []RingSample{{Stream: "b"}, {
			Stream: "a", Target: "t", Region: "tmpfs", FlushMethod: "clwb", Level: "visible", IsReady: true,
			CapacityBytes: 1000, HeadLSN: 5000, AppendedLSN: 5750, DurableLSN: 5700, LagBytes: 750, LagRecords: 3,
			LagAge:    1500 * time.Millisecond,
			IsFilling: true, TimeToFull: 20 * time.Second, WriterEpoch: 7, IsWriterHeld: true,
			Writer: &WriterSample{
				Records: 11, ClockErrorNS: 2000, LatencyMax: 2 * time.Second, StalledFor: 8700 * time.Millisecond,
				Members: []MemberSample{{State: 1}, {State: 4, LagBytes: 512, Demotions: 3}},
				Latency: Histogram{
					Count: 4, Sum: 3 * time.Microsecond,
					Buckets: []HistogramBucket{{90, 2}, {450, 1}, {2 * time.Second, 1}},
				},
			},
		}}
	})
	drain := NewDrain(registry, func() []DrainSample { return []DrainSample{{Stream: "a", Records: 9, Batches: 2}} })
	drain.OnSync("a", time.Millisecond)
	drain.OnRestart("a")
	NewStore(registry, func() StoreSample {
		return StoreSample{
			FreeBytes: 1 << 30, Verified: time.Unix(1700000000, 5e8), Took: 2 * time.Second,
			Damaged: map[string]bool{"a": true}, IsSigningFailing: true,
		}
	})
	NewMerge(registry, func() (MergeSample, bool) {
		return MergeSample{Records: 12, Late: 2, Absent: 1, IsFailing: true}, true
	})
	NewReplica(registry, func() ([]ReplicaSample, bool) {
		return []ReplicaSample{{Stream: "a", Records: 5, LagBytes: 256, IsLagKnown: true, LagAge: 3 * time.Second}},
			true
	})
	return registry
}

// scrape serves the registry for real and reads it back with Prometheus's own parser.
func scrape(t *testing.T, registry *prometheus.Registry, healthy func() error, path string) (int, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- NewServer(listener, registry, healthy).Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + listener.Addr().String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func fine() error { return nil }

func TestServer_MetricsAreParsedAndLinted(t *testing.T) {
	code, body := scrape(t, fullRegistry(), fine, "/metrics")
	if code != http.StatusOK {
		t.Fatalf("status %d: %s", code, body)
	}
	problems, err := promlint.New(strings.NewReader(body)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		if strings.HasPrefix(problem.Metric, namespace) {
			t.Errorf("%s: %s", problem.Metric, problem.Text)
		}
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{
		"farlog_ring_lag_bytes": 750, "farlog_ring_lag_records": 3, "farlog_ring_lag_seconds": 1.5,
		"farlog_ring_full_ratio":           0.75,
		"farlog_ring_time_to_full_seconds": 20, "farlog_ring_writer_epoch": 7, "farlog_writer_records_total": 11,
		"farlog_writer_clock_error_seconds": 2e-6, "farlog_control_grants_total": 1, "farlog_drain_records_total": 9,
		"farlog_stream_members": 1, "farlog_stream_members_ready": 1, "farlog_control_leader": 1,
		"farlog_writer_clock_known": 1,
		"farlog_drain_gap":          0, "farlog_store_free_bytes": 1 << 30,
		"farlog_store_verify_timestamp_seconds": 1700000000.5, "farlog_store_verify_failed": 1,
		"farlog_store_signing_failing": 1,
		"farlog_merge_records_total":   12, "farlog_merge_late_total": 2, "farlog_merge_absent_streams": 1,
		"farlog_merge_failing":         1,
		"farlog_replica_records_total": 5, "farlog_replica_lag_bytes": 256, "farlog_replica_lag_seconds": 3,
		"farlog_replica_source_up": 1, "farlog_writer_append_max_seconds": 8.7,
	} {
		if got := value(families[name]); got != want {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
	appends := families["farlog_writer_append_seconds"].GetMetric()[0].GetHistogram()
	if appends.GetSampleCount() != 4 || appends.GetBucket()[1].GetCumulativeCount() != 2 {
		t.Errorf("append histogram: %v", appends)
	}
	if families["farlog_store_sync_seconds"] == nil || len(families["farlog_ring_ready"].GetMetric()) != 2 {
		t.Error("sync latency or unready ring is missing")
	}
}

func value(family *dto.MetricFamily) float64 {
	if len(family.GetMetric()) != 1 {
		return -1
	}
	one := family.Metric[0]
	return one.GetGauge().GetValue() + one.GetCounter().GetValue()
}

func TestServer_HealthSaysWhatIsWrong(t *testing.T) {
	registry := NewRegistry("test")
	if code, body := scrape(t, registry, fine, "/healthz"); code != http.StatusOK || body != "ok\n" {
		t.Errorf("got %d %q", code, body)
	}
	code, body := scrape(t, registry, func() error { return errors.New("etcd is not seen") }, "/healthz")
	if code != http.StatusServiceUnavailable || !strings.Contains(body, "etcd is not seen") {
		t.Errorf("got %d %q", code, body)
	}
}

// No latency is lost, and none is shown lower than it was.
func TestClassic_KeepsEveryCountAndRoundsUp(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var fine []HistogramBucket
		var total uint64
		for range rapid.IntRange(0, 20).Draw(rt, "buckets") {
			bucket := HistogramBucket{
				time.Duration(rapid.Int64Range(1, 10e9).Draw(rt, "bound")),
				rapid.Uint64Range(1, 1e6).Draw(rt, "count"),
			}
			fine, total = append(fine, bucket), total+bucket.Count
		}
		count, buckets := classic(fine)
		if count != total {
			rt.Fatalf("%d of %d", count, total)
		}
		for _, bound := range appendBuckets {
			var want uint64
			for _, bucket := range fine {
				if bucket.UpperBound.Seconds() <= bound {
					want += bucket.Count
				}
			}
			if buckets[bound] != want {
				rt.Fatalf("at most %v s: %d, want %d", bound, buckets[bound], want)
			}
		}
	})
}

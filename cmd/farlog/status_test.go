package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	api "github.com/farlog/farlog/pkg/api/v1"
)

func drawStatus(rt *rapid.T) *api.StreamStatus {
	number := rapid.Uint64Range(0, 1<<50)
	duration := rapid.Custom(func(rt *rapid.T) *durationpb.Duration {
		return durationpb.New(time.Duration(rapid.Int64Range(0, int64(400*24*time.Hour)).Draw(rt, "ns")))
	})
	status := &api.StreamStatus{
		Stream: &api.Stream{Spec: &api.StreamSpec{
			Name:  rapid.StringMatching(`[a-z/]{1,63}`).Draw(rt, "name"),
			Level: api.Level(rapid.IntRange(1, 3).Draw(rt, "level")),
		}},
		Condition: api.Condition(rapid.IntRange(1, 8).Draw(rt, "condition")),
		Reason:    rapid.StringMatching(`[a-zé ]{0,300}`).Draw(rt, "reason"),
	}
	if rapid.Bool().Draw(rt, "ring") {
		head := number.Draw(rt, "head")
		status.Rings = []*api.RingState{{
			WriterId:   rapid.StringMatching(`[a-z=]{0,127}`).Draw(rt, "writer"),
			WriterHeld: rapid.Bool().Draw(rt, "held"), WriterEpoch: rapid.Uint32().Draw(rt, "epoch"),
			HeadLsn: head, AppendedLsn: head + number.Draw(rt, "undrained"), CapacityBytes: number.Draw(rt, "capacity"),
			LagRecords: number.Draw(rt, "records"),
			LagAge:     duration.Draw(rt, "age"), TimeToFull: duration.Draw(rt, "time to full"),
			Counters: &api.WriterCounters{
				LatencyMax: duration.Draw(rt, "max"), LatencyP50: duration.Draw(rt, "p50"),
				LatencyCount: number.Draw(rt, "count"),
			},
		}}
	}
	return status
}

// Whatever the numbers, the screen stays within its columns and each figure that an operator looks for is named.
func TestStatusRow_RenderFitsTheScreen(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var screen bytes.Buffer
		newStatusRow(drawStatus(rt)).render(&screen, false)
		for line := range strings.Lines(screen.String()) {
			if width := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); width > statusColumns {
				rt.Fatalf("%d columns: %s", width, line)
			}
		}
		for _, word := range []string{"writer", "epoch", "level", "cursors", "lag", "p99.9", "drain"} {
			if !strings.Contains(screen.String(), word) {
				rt.Fatalf("no %s in\n%s", word, screen.String())
			}
		}
	})
}

func TestStatusRow_NothingThatAnOperatorNeedsIsCut(t *testing.T) {
	fill := 90.0
	reason := "ring " + strings.Repeat("/directory", 8) + " is missing: " + strings.Repeat("put it back ",
		12) + "at last"
	row := statusRow{
		Stream: "a", State: "error", Reason: reason, HeadLSN: 1 << 50, DurableLSN: 1 << 50,
		AppendedLSN:   1 << 50,
		CapacityBytes: 64 << 20, FullRatio: 0.003, TimeToFullSeconds: &fill,
	}
	row.Attestation = "ddio-off, memory_controller by attestation of a name of 24 bytes, full, 2026-11-21"
	age := 0.25
	row.ObservedAgeSeconds = &age
	var screen bytes.Buffer
	row.render(&screen, false)
	text := strings.Join(strings.Fields(screen.String()), " ")
	for _, want := range []string{
		reason, "attested " + row.Attestation, "ERROR as of 250 ms ago",
		"ring 64.0 MiB, 0.3 % full, full in 90.0 s", "appended 1,125,899,906,842,624",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, screen.String())
		}
	}
}

func TestIsFailing_ProbesHearOfWhatNeedsAHand(t *testing.T) {
	failing := map[api.Condition]bool{
		api.Condition_CONDITION_OK: false, api.Condition_CONDITION_WARN: false, api.Condition_CONDITION_PENDING: false,
		api.Condition_CONDITION_WRITER_GONE: false, api.Condition_CONDITION_DRAIN_GONE: true,
		api.Condition_CONDITION_TARGET_GONE: true,
		api.Condition_CONDITION_ALARM:       true, api.Condition_CONDITION_ERROR: true,
		api.Condition_CONDITION_MEMBER_GONE: false,
		api.Condition_CONDITION_MEMBER_NEW:  false, api.Condition_CONDITION_DELETING: false,
	}
	for condition, want := range failing {
		if isFailing(condition) != want {
			t.Errorf("%v: %v", condition, !want)
		}
	}
	if len(failing) != len(api.Condition_name)-1 {
		t.Error("a condition was added: decide whether a probe has to learn of it")
	}
}

func TestHuman(t *testing.T) {
	for got, want := range map[string]string{
		humanBytes(0): "0 B", humanBytes(1023): "1023 B", humanBytes(1024): "1.00 KiB",
		humanBytes(64 << 20): "64.0 MiB", humanBytes(1<<64 - 1): "16.0 EiB",
		humanCount(7): "7", humanCount(1234567): "1,234,567",
		humanDuration(0): "0", humanDuration(208 * time.Nanosecond): "208 ns",
		humanDuration(1500 * time.Nanosecond): "1.50 us",
		humanDuration(90 * time.Second):       "90.0 s", humanDuration(3 * time.Hour): "3h0m",
		humanDuration(72 * time.Hour): "3 days",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Of a writer on another host only the rate is known: no figure stands in for latencies that nobody has told.
func TestStatusRow_LatencyIsNotMadeUp(t *testing.T) {
	status := &api.StreamStatus{
		Stream:       &api.Stream{Spec: &api.StreamSpec{Name: "a"}},
		TargetsAlive: []string{"t1", "t2"},
		Rings: []*api.RingState{
			{
				Target: "t1", RingUuid: []byte{1}, WriterId: "host=x", WriterEpoch: 3, WriterHeld: true,
				AppendedLsn: 640, Counters: &api.WriterCounters{AppendRateRecords: 12},
			},
			{
				Target: "t2", RingUuid: []byte{2}, WriterId: "host=x", WriterEpoch: 3, WriterHeld: true,
				AppendedLsn: 512,
			},
		},
	}
	var screen bytes.Buffer
	row := newStatusRow(status)
	row.render(&screen, false)
	if text := screen.String(); !strings.Contains(text,
		"  append   p50 to p99.9 and max: no host agent reports this writer, 12/s\n") {
		t.Error(text)
	}
	if raw, err := json.Marshal(row); err != nil || !strings.Contains(string(raw), `"append_p99_seconds":null,`) ||
		!strings.Contains(string(raw), `"append_records_per_second":12,`) {
		t.Errorf("%s, %v", raw, err)
	}
	// The writer is on the host of the member that is behind.
	status.Rings[1].Counters = &api.WriterCounters{
		LatencyCount: 7, LatencyP50: durationpb.New(time.Millisecond),
		AppendRateRecords: 9,
	}
	if row := newStatusRow(status); row.P50Seconds == nil || *row.P50Seconds != 0.001 || row.AppendCount != 7 ||
		row.AppendRate != 9 {
		t.Errorf("p50 %v, count %d, rate %v", row.P50Seconds, row.AppendCount, row.AppendRate)
	}
}

// Of a writer on another host than its rings its host's agent tells, for the epoch that the ring has.
func TestStatusRow_WriterOnAnotherHost(t *testing.T) {
	status := &api.StreamStatus{
		Stream: &api.Stream{Spec: &api.StreamSpec{Name: "a"}}, LastGrant: &api.Grant{Epoch: 4},
		Rings: []*api.RingState{{
			WriterId: "w", WriterEpoch: 4, WriterHeld: true, Counters: &api.WriterCounters{AppendRateRecords: 3},
		}},
		Writer: &api.WriterCounters{
			LatencyCount: 7, AppendRateRecords: 9, Level: api.Level_LEVEL_VISIBLE, Unknown: 2,
			LatencyP50: durationpb.New(time.Millisecond), LatencyMax: durationpb.New(9 * time.Second),
		},
	}
	if row := newStatusRow(status); row.P50Seconds == nil || *row.P50Seconds != 0.001 || *row.MaxSeconds != 9 ||
		row.AppendRate != 9 || row.LevelReached != "visible" || row.UnknownCount != 2 {
		t.Errorf("%+v", row)
	}
	status.Rings[0].WriterEpoch = 3
	if row := newStatusRow(status); row.P50Seconds != nil || row.AppendRate != 3 {
		t.Errorf("of another epoch: %+v", row)
	}
}

// A stall shows while it lasts, and who does not keep up has a name, on the stream's own lines and in JSON.
func TestStatusRow_StalledAndSlow(t *testing.T) {
	row := newStatusRow(&api.StreamStatus{
		Stream: &api.Stream{Spec: &api.StreamSpec{Name: "a"}}, StalledFor: durationpb.New(8700 * time.Millisecond),
		Rings: []*api.RingState{{Counters: &api.WriterCounters{
			LatencyCount: 9, LatencyMax: durationpb.New(169 * time.Millisecond),
		}}},
		SlowConsumers: []*api.SlowConsumer{
			{
				Stream: "a", Route: "all", Holder: &api.Holder{Host: "h1", Pid: 7}, LostRecords: 12,
				Reason: "connect: refused\x1b[2J",
			},
			{Stream: "a", Holder: &api.Holder{Host: "h2", Pid: 8, Name: "desk-risk"}, LagBytes: 4096, LostBytes: 100},
		},
	})
	var screen bytes.Buffer
	row.render(&screen, false)
	for _, want := range []string{
		"stalled  no acknowledgement for 8.70 s", "max 8.70 s", "slow     route all (host h1 pid 7)",
		"dropped 12 records", "connect: refused",
		"slow     reader desk-risk (host h2 pid 8)  4.00 KiB behind  missed 100 B",
	} {
		if !strings.Contains(screen.String(), want) {
			t.Errorf("no %q in\n%s", want, screen.String())
		}
	}
	if strings.Contains(screen.String(), "\x1b") {
		t.Errorf("what another one said reaches the terminal: %q", screen.String())
	}
	if row.StalledSeconds != 8.7 || row.MaxSeconds == nil || *row.MaxSeconds != 8.7 || len(row.SlowConsumers) != 2 {
		t.Errorf("in JSON %+v", row)
	}
}

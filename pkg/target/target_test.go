package target

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/credentials/insecure"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/internal/port"
	"github.com/farlog/farlog/pkg/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newTarget makes a target whose control plane is not there: what it must do without one.
func newTarget(t *testing.T, dir string) *Target {
	t.Helper()
	nobody, err := port.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := api.Dial(fmt.Sprintf("127.0.0.1:%d", nobody), insecure.NewCredentials())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	one, err := New(Config{
		Dir: dir, Agent: &api.Agent{Id: "t1", Host: "alpha"}, Control: conn,
		Logger: slog.New(slog.DiscardHandler), CountersDir: filepath.Join(dir, "counters"),
		Interval: 10 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { one.lock.Close() })
	return one
}

func want(name string, salt uint64) *api.RingSpec {
	return &api.RingSpec{Target: "t1", Stream: &api.Stream{StreamId: 7, Salt: salt, Spec: &api.StreamSpec{
		Name: name, RingSizeBytes: 1 << 20, Align: 64, RecordLenMax: 64 << 10, Level: api.Level_LEVEL_VISIBLE,
	}}}
}

// see gives a target one look at what is wanted.
func see(t *Target, specs ...*api.RingSpec) []Ring {
	t.wanted = specs
	t.observe()
	return t.Rings()
}

func TestObserve_RingIsMadeOnceAndKeptOverRestarts(t *testing.T) {
	dir := t.TempDir()
	one := newTarget(t, dir)
	first := see(one, want("desk7/orders", 99))[0].State
	if first.Error != "" || len(first.RingUuid) != 16 || first.Uri != "mem:"+filepath.Join(dir, "desk7%2Forders.ring") {
		t.Fatalf("got %v", first)
	}
	status, err := farlog.Inspect(first.Uri)
	if err != nil || status.Salt != 99 || status.StreamID != 7 || status.StreamName != "desk7/orders" ||
		status.RecordLenMax != 64<<10 {
		t.Fatalf("got %+v, %v", status, err)
	}
	one.lock.Close()
	if again := see(newTarget(t, dir), want("desk7/orders", 99))[0].State; !bytes.Equal(again.RingUuid,
		first.RingUuid) {
		t.Errorf("formatted again: %x, was %x", again.RingUuid, first.RingUuid)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, formingPrefix+"*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestObserve_CursorsAndLatencyOfAWriterAreSeen(t *testing.T) {
	one := newTarget(t, t.TempDir())
	state := see(one, want("a", 5))[0].State
	writer, err := farlog.OpenWriter(state.Uri, farlog.WriterOptions{
		Level: farlog.LevelVisible, Epoch: 4,
		Name:        "probe",
		CountersDir: one.config.CountersDir, Deadline: 10 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if _, err := writer.Append(farlog.Entry{Data: []byte("order")}, 0); err != nil {
			t.Fatal(err)
		}
	}
	ring := see(one, want("a", 5))[0]
	state = ring.State
	if !state.WriterHeld || state.WriterEpoch != 4 || !strings.Contains(state.WriterId, "probe") {
		t.Errorf("writer is not seen: %v", state)
	}
	if state.LagBytes == 0 || state.LagBytes != state.AppendedLsn-state.HeadLsn || state.LagRecords < 10 ||
		state.LagAge == nil {
		t.Errorf("lag is not seen: %v", state)
	}
	if ring.Counters == nil || state.Counters.GetRecords() < 10 ||
		state.Counters.LatencyMax.AsDuration() < state.Counters.LatencyP50.AsDuration() {
		t.Errorf("counters are not seen: %v", state.Counters)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	if state = see(one, want("a", 5))[0].State; state.WriterHeld || state.LagRecords < 10 {
		t.Errorf("after the writer: %v", state)
	}
}

func TestObserve_WhatIsNotOurRingIsNeverOverwritten(t *testing.T) {
	cases := []struct {
		name    string
		content []byte
		want    []string
	}{
		{"foreign file", bytes.Repeat([]byte("precious"), 1<<17), []string{"mv ", "nothing was overwritten"}},
		{"blank file", make([]byte, 1<<20), []string{"mv ", "nothing was overwritten"}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			one := newTarget(t, t.TempDir())
			path := one.ringPath("a")
			if err := os.WriteFile(path, tc.content, 0o600); err != nil {
				t.Fatal(err)
			}
			state := see(one, want("a", 5))[0].State
			for _, part := range append(tc.want, path) {
				if !strings.Contains(state.Error, part) {
					t.Errorf("%q does not say %q", state.Error, part)
				}
			}
			if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, tc.content) || len(state.RingUuid) > 0 {
				t.Errorf("overwritten or taken: %v, %v", state, err)
			}
		})
	}
}

func TestObserve_RingOfAnotherControlPlaneIsRefused(t *testing.T) {
	dir := t.TempDir()
	one := newTarget(t, dir)
	see(one, want("a", 5))
	state := see(one, want("a", 6))[0].State
	if !strings.Contains(state.Error, "another control plane") || len(state.RingUuid) > 0 {
		t.Errorf("got %v", state)
	}
}

// A stream that is declared encrypted gets a ring that takes nothing else; a ring that everybody can write to is not
// taken for it, nor the other way round.
func TestObserve_EncryptedStream(t *testing.T) {
	one := newTarget(t, t.TempDir())
	encrypted, unknown := want("a", 5), want("b", 6)
	encrypted.Stream.Spec.Encryption, unknown.Stream.Spec.Encryption = "aes-256-gcm", "rot13"
	rings := see(one, encrypted, unknown)
	status, err := farlog.Inspect(rings[0].State.Uri)
	if err != nil || status.Encryption != record.EncryptionAES256GCM {
		t.Fatalf("ring is encrypted by %s, %v", status.Encryption, err)
	}
	if text := rings[1].State.Error; !strings.Contains(text, `encryption "rot13": expected none or aes-256-gcm`) {
		t.Errorf("a ring for an unknown encryption: %q", text)
	}
	options := farlog.WriterOptions{CountersDir: "none", Level: farlog.LevelVisible}
	_, err = farlog.OpenWriter(rings[0].State.Uri, options)
	if !errors.Is(err, farlog.ErrNoKey) {
		t.Errorf("a writer without a key: %v", err)
	}
	state := see(one, want("a", 5))[0].State
	if !strings.Contains(state.Error, "with encryption aes-256-gcm, expected none") || len(state.RingUuid) > 0 {
		t.Errorf("got %v", state)
	}
}

// A writer may be acknowledging into the file that was unlinked: a new one in its place would hide that.
func TestObserve_MissingRingIsNeverMadeAgain(t *testing.T) {
	dir := t.TempDir()
	one := newTarget(t, dir)
	first := see(one, want("a", 5))[0].State
	path := one.ringPath("a")
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	check := func(when string, state *api.RingState) {
		t.Helper()
		if _, err := os.Stat(path); err == nil || len(state.RingUuid) > 0 {
			t.Fatalf("%s: made again: %v", when, state)
		}
		for _, part := range []string{path, "is missing", "put the file back", "farlog stream delete a --ring-lost"} {
			if !strings.Contains(state.Error, part) {
				t.Errorf("%s: %q does not say %q", when, state.Error, part)
			}
		}
	}
	check("before the control plane knows of it", see(one, want("a", 5))[0].State)
	one.lock.Close()
	one = newTarget(t, dir)
	bound := want("a", 5)
	bound.RingUuid = first.RingUuid
	check("after a restart", see(one, bound)[0].State)
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	if state := see(one, bound)[0].State; state.Error != "" || !bytes.Equal(state.RingUuid, first.RingUuid) {
		t.Errorf("put back: %v", state)
	}
	bound.RingUuid = []byte("fedcba9876543210")
	if state := see(one, bound)[0].State; !strings.Contains(state.Error, "expected ring 66656463") ||
		len(state.RingUuid) > 0 {
		t.Errorf("another ring is taken: %v", state)
	}
}

func TestObserve_CrashWhileFormingLeavesNothingInTheWay(t *testing.T) {
	one := newTarget(t, t.TempDir())
	forming := filepath.Join(one.config.Dir, formingPrefix+"a"+ringSuffix)
	if err := os.WriteFile(forming, []byte("half a ring"), 0o600); err != nil {
		t.Fatal(err)
	}
	if state := see(one, want("a", 5))[0].State; state.Error != "" {
		t.Errorf("got %v", state)
	}
}

func TestRun_WithoutControlPlaneRingsAreStillObserved(t *testing.T) {
	dir := t.TempDir()
	one := newTarget(t, dir)
	see(one, want("a", 5))
	one.lock.Close()
	again := newTarget(t, dir) // knows of nothing but its directory
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- again.Run(ctx) }()
	for deadline := time.Now().Add(30 * time.Second); len(again.Rings()) == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no ring is observed")
		}
	}
	if ring := again.Rings()[0].State; ring.Stream != "a" || len(ring.RingUuid) != 16 || again.IsConnected() {
		t.Errorf("got %v", ring)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestNew_SecondTargetOfADirectoryIsToldWhoHoldsIt(t *testing.T) {
	dir := t.TempDir()
	newTarget(t, dir)
	if _, err := New(Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), "pid=") {
		t.Errorf("got %v", err)
	}
}

func TestNew_DirectoryCannotBeMade(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Config{Dir: filepath.Join(file, "rings")}); err == nil ||
		!strings.Contains(err.Error(), "not a directory") {
		t.Errorf("got %v", err)
	}
}

func TestIsNews_WhatChangesHandsIsReportedBeforeItsTime(t *testing.T) {
	state := func(change func(*api.RingState)) []Ring {
		one := &api.RingState{
			Uri: "mem:/a", RingUuid: []byte("u"), WriterEpoch: 2, WriterHeld: true,
			AppendedLsn: 128, LagBytes: 128,
		}
		change(one)
		return []Ring{{State: one}}
	}
	before := state(func(*api.RingState) {})
	cases := []struct {
		name   string
		change func(*api.RingState)
		want   bool
	}{
		{"nothing", func(*api.RingState) {}, false},
		{"cursors", func(s *api.RingState) { s.AppendedLsn, s.LagBytes = 512, 0 }, false},
		{"writer went", func(s *api.RingState) { s.WriterHeld = false }, true},
		{"another writer", func(s *api.RingState) { s.WriterEpoch = 3 }, true},
		{"ring failed", func(s *api.RingState) { s.Error, s.RingUuid = "missing", nil }, true},
	}
	for _, tc := range cases {
		if got := isNews(before, state(tc.change)); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
	gone := state(func(s *api.RingState) { s.WriterHeld = false })
	if !isNews(gone, state(func(s *api.RingState) { s.WriterHeld, s.LagBytes = false, 0 })) || !isNews(nil, gone) {
		t.Error("a ring drained after its writer, or a new one, is no news")
	}
}

func TestTimeToFull_OnlyWhileTheRingFills(t *testing.T) {
	state := &api.RingState{CapacityBytes: 1000, AppendedLsn: 5500, HeadLsn: 5000}
	if _, ok := timeToFull(state, rates{appended: 50, drained: 50}); ok {
		t.Error("a ring that does not fill has no time to full")
	}
	if left, ok := timeToFull(state, rates{appended: 60, drained: 10}); !ok || left != 10*time.Second {
		t.Errorf("got %v, %v", left, ok)
	}
}

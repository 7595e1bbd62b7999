package export

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/query"
	"github.com/farlog/farlog/pkg/store"
)

// A bundle has the records that a query of the store gives, and verifies without the store.
func TestExport_IsWhatAQueryGives(t *testing.T) {
	dir := t.TempDir()
	source := newStore(t, filepath.Join(dir, "store"))
	o := options(t)
	request, err := o.Request.query()
	if err != nil {
		t.Fatal(err)
	}
	q, err := query.Open([]*store.Store{source}, request)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	var want []string
	if _, err := q.Run(t.Context(), func(row *query.Row) error {
		want = append(want, fmt.Sprint(row.LSN))
		return nil
	}, nil); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(dir, "bundle")
	made, err := Export(t.Context(), source, to, o)
	if err != nil {
		t.Fatal(err)
	}
	rows := readCSV(t, to, csvFile)
	var got []string
	for _, row := range rows[1:] {
		got = append(got, row[slices.Index(rows[0], "lsn")])
	}
	if len(want) != 45 || !slices.Equal(got, want) || made.Rows != 45 {
		t.Errorf("%d rows of %d, %q, expected %q", len(got), made.Rows, got, want)
	}
	orders, other := made.Streams[0], made.Streams[1]
	if orders.Segments == 0 || orders.CutSegments == 0 || other.Rows != 0 || other.CutSegments == 0 {
		t.Errorf("streams are %+v: expected segments with records, and some without", made.Streams)
	}
	report, err := Verify(t.Context(), to, VerifyOptions{StoreKeys: source.Keys()})
	if err != nil || !report.OK() || report.IsWhole() || len(report.NotChecked) != 1 {
		t.Errorf("not signed: %q, %q, %v", report.Failures, report.NotChecked, err)
	}
	if !slices.ContainsFunc(report.NotProved, func(s string) bool { return strings.Contains(s, "no later record") }) {
		t.Errorf("not proved: %q", report.NotProved)
	}
}

func readCSV(t *testing.T, dir, name string) [][]string {
	t.Helper()
	file, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// Clock evidence, gaps, the report and the page say what is in the store.
func TestExport_SaysWhatIsKnown(t *testing.T) {
	dir, trust := bundle(t)
	report, err := Verify(t.Context(), dir, trust)
	if err != nil || !report.IsWhole() {
		t.Fatalf("%q, %q, %v", report.Failures, report.NotChecked, err)
	}
	clock := readCSV(t, dir, clockFile)
	if len(clock) != 3 || clock[1][2] != "1" || clock[2][2] != "2" || clock[1][9] != "100" ||
		clock[1][10] != clock[1][4] {
		t.Errorf("clock: %q, expected a line for each of two writers, all below 1 µs", clock)
	}
	events := readCSV(t, dir, clockEventsFile)
	if len(events) != 4 || events[1][5] != "writer" || events[2][5] != "writer" || events[3][5] != "back" {
		t.Errorf("events of clocks: %q, expected two writers and a time that goes back", events)
	}
	if gaps := readCSV(t, dir, gapsFile); len(gaps) != 2 || !strings.Contains(gaps[1][9], "it was forged") {
		t.Errorf("gaps: %q", gaps)
	}
	rows := readCSV(t, dir, reportFile)
	want := []string{"2026-11-20T14:02:21.000000Z", "LEI-1", "ORD-141", "BUYI", "2026-11-20T14:02:21.000000Z", "", ""}
	if len(rows) != 46 || !slices.Equal(rows[1], want) {
		t.Errorf("report has %d rows, the first is %q, expected %q", len(rows), rows[1], want)
	}
	page, err := os.ReadFile(filepath.Join(dir, CoverFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"J. Doe", "inquiry 2026-17", "ACC-1", "45 records", "orders, version 3", "GAP"} {
		if !strings.Contains(string(page), text) {
			t.Errorf("the page does not say %q", text)
		}
	}
}

// Nothing is asked for that makes no sense, and nothing is left of an export that fails.
func TestExport_Refusals(t *testing.T) {
	dir := t.TempDir()
	source := newStore(t, filepath.Join(dir, "store"))
	to := filepath.Join(dir, "bundle")
	for want, change := range map[string]func(o *Options){
		"expected who":                      func(o *Options) { o.MadeBy = "" },
		`from "yesterday"`:                  func(o *Options) { o.Request.From = "yesterday" },
		"expected the first to be earlier":  func(o *Options) { o.Request.To = o.Request.From },
		"filter: filter":                    func(o *Options) { o.Request.Filter = "price > 3" },
		"without store":                     func(o *Options) { o.Request.Filter = "store == 'x'" },
		"expected UTF-8":                    func(o *Options) { o.Request.Keys = []string{"\xff"} },
		"no stream matches":                 func(o *Options) { o.Request.Streams = []string{"desk8/*"} },
		"required and not mapped: Firm":     func(o *Options) { o.Constants = nil },
		`constant "Frim": no field`:         func(o *Options) { o.Constants = map[string]string{"Frim": "x"} },
		"field Price is required":           func(o *Options) { o.Mapping = withRequired(t, "fix.44") },
		"required and not mapped: Price":    func(o *Options) { o.Mapping = withRequired(t, "unmapped") },
		"which the mapping file has no val": func(o *Options) { o.Mapping = withSide(t) },
	} {
		o := options(t)
		change(&o)
		if _, err := Export(t.Context(), source, to, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected %q", err, want)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%v, %v, expected the store alone", left, err)
	}
	if err := os.Mkdir(to, 0o750); err != nil {
		t.Fatal(err)
	}
	if _, err := Export(t.Context(), source, to, options(t)); !errors.Is(err, fs.ErrExist) {
		t.Errorf("%v, expected that the directory is there", err)
	}
}

func withRequired(t *testing.T, source string) *Mapping {
	return newMapping(t, strings.Replace(ordersMapping, "{name: Price, source: fix.44}",
		"{name: Price, required: true, source: "+source+"}", 1))
}

func withSide(t *testing.T) *Mapping {
	return newMapping(t, strings.Replace(ordersMapping, `"1": BUYI`, `"5": BUYI`, 1))
}

// Damage of the store in what is asked for makes no bundle.
func TestExport_DamagedStore(t *testing.T) {
	dir := t.TempDir()
	source := newStore(t, filepath.Join(dir, "store"))
	files, err := source.Excerpt("desk7/orders", store.Window{From: uint64(start.Add(140 * time.Second).UnixNano())})
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file.Name, ".seg") && file.Size > 8192 {
			edit(t, source.Dir(), file.Name, func(raw []byte) []byte {
				raw[6000] ^= 1
				return raw
			})
		}
	}
	_, err = Export(t.Context(), source, filepath.Join(dir, "bundle"), options(t))
	if left, _ := os.ReadDir(dir); !errors.Is(err, store.ErrCorrupt) || len(left) != 1 {
		t.Errorf("%v, expected damage; %v is left", err, left)
	}
}

// killVariable has the number of the call of Progress at which the process dies, and a directory.
const killVariable = "FARLOG_EXPORT_TEST_KILL"

// exportAndDie is the process of TestExport_Killed.
func exportAndDie() int {
	var at int
	var dir string
	if _, err := fmt.Sscan(os.Getenv(killVariable), &at, &dir); err != nil {
		return 1
	}
	source, err := store.Open(filepath.Join(dir, "store"), store.Options{})
	if err != nil {
		return 1
	}
	calls := 0
	_, err = Export(context.Background(), source, filepath.Join(dir, "bundle"), Options{
		MadeBy: "J. Doe", Why: "test", Progress: func(Progress) {
			if calls++; calls == at {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
		},
	})
	if err != nil {
		return 1
	}
	return 0
}

// Killed anywhere, an export leaves no bundle under its name, and what it leaves does not verify.
func TestExport_Killed(t *testing.T) {
	dir := t.TempDir()
	newStore(t, filepath.Join(dir, "store"))
	kills := 0
	for at, step := 1, 1; ; at += step {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", killVariable, at, dir))
		out, err := cmd.CombinedOutput()
		if err == nil {
			break
		}
		if kills++; cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("%v: %s", err, out)
		}
		if _, err := os.Stat(filepath.Join(dir, "bundle")); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("killed at %d: %v, expected no bundle", at, err)
		}
		left, err := filepath.Glob(filepath.Join(dir, ".bundle.partial-*"))
		if err != nil || len(left) != 1 {
			t.Fatalf("killed at %d: %v, %v", at, left, err)
		}
		if report, err := Verify(t.Context(), left[0], VerifyOptions{}); err == nil && report.OK() {
			t.Errorf("killed at %d: what is left verifies", at)
		}
		if err := os.RemoveAll(left[0]); err != nil {
			t.Fatal(err)
		}
		step = 1 + at/4
	}
	if kills < 5 {
		t.Errorf("%d kills, expected more", kills)
	}
	if report, err := Verify(t.Context(), filepath.Join(dir, "bundle"), VerifyOptions{}); err != nil || !report.OK() {
		t.Errorf("%q, %v", report.Failures, err)
	}
}

// A bundle that somebody stops making leaves nothing.
func TestExport_Canceled(t *testing.T) {
	dir := t.TempDir()
	source := newStore(t, filepath.Join(dir, "store"))
	ctx, cancel := context.WithCancel(t.Context())
	o := options(t)
	o.Progress = func(Progress) { cancel() }
	_, err := Export(ctx, source, filepath.Join(dir, "bundle"), o)
	if left, _ := os.ReadDir(dir); !errors.Is(err, context.Canceled) || len(left) != 1 {
		t.Errorf("%v; %v is left", err, left)
	}
}

// newRandom prints its seed.
func newRandom(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed=%d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

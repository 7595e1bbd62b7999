package farlog

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func routeRing(t *testing.T, name string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "farlog-route-")
	if err != nil {
		t.Skipf("no tmpfs at /dev/shm: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return "mem:" + filepath.Join(dir, name)
}

// One append goes to the legs that its class and criticality select; a leg whose ring comes later gets what waited, and
// a second route with its spill as well.
func TestRoute_LegsTakeWhatTheySelect(t *testing.T) {
	orders, audit, spill := routeRing(t, "orders"), routeRing(t, "audit"), routeRing(t, "spill")
	format := FormatOptions{SizeBytes: 1 << 20}
	if err := Format(orders, format); err != nil {
		t.Fatal(err)
	}
	options := WriterOptions{Level: LevelVisible, CountersDir: "none"}
	writer, err := OpenWriter(orders, options)
	if err != nil {
		t.Fatal(err)
	}
	legs := []RouteLeg{
		{Name: "orders", Writer: writer, Required: true, Classes: []ClassRange{{1, 3}}},
		{
			Name: "audit", URI: audit, Policy: RouteSpill, SpillURI: spill, SpillLevel: LevelVisible,
			BufferBytes: 1 << 20, CriticalityMin: 2, Options: options,
		},
	}
	route, err := OpenRoute("desk7", legs)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Append(Entry{Data: []byte("x")}, 0); !errors.Is(err, ErrClosed) {
		t.Errorf("append by the writer that the route has taken over: %v", err)
	}
	position, err := route.Append(Entry{Data: []byte("one"), Class: 2}, 5, 30*time.Second)
	if err != nil || position.Required != 1 || position.Optional != 2 || position.Level != LevelVisible ||
		!position.Legs[1].IsBuffered {
		t.Errorf("append: %+v, %v", position, err)
	}
	if _, err := route.Append(Entry{Data: []byte("two"), Class: 9}, 1, time.Second); !errors.Is(err, ErrNotFound) {
		t.Errorf("append that no leg takes: %v", err)
	}
	if stats := route.Stats(); stats[1].State != LegAway || stats[1].Spilled != 1 || stats[1].Behind == 0 ||
		stats[0].Acked != 1 {
		t.Errorf("stats: %+v", stats)
	}
	if err := route.Close(time.Millisecond); !errors.Is(err, ErrUnknown) {
		t.Errorf("close with a spill that has something: %v", err)
	}
	if err := Format(audit, format); err != nil {
		t.Fatal(err)
	}
	if route, err = OpenRoute("desk7", []RouteLeg{
		{Name: legs[0].Name, URI: orders, Required: true, Options: options},
		legs[1],
	}); err != nil {
		t.Fatal(err)
	}
	if err := route.CatchUp(20 * time.Second); err != nil {
		t.Fatal(err)
	}
	if err := route.Close(30 * time.Second); err != nil {
		t.Error(err)
	}
	if len(route.Stats()) != 2 || !errors.Is(route.Close(0), ErrClosed) {
		t.Error("a closed route says that it is open")
	}
	status, err := Inspect(audit)
	if err != nil || status.LagRecords != 2 { // its EPOCH record, and the one
		t.Errorf("the late ring has %d records, expected 2: %v", status.LagRecords, err)
	}
}

func TestRoute_RefusesWhatContradicts(t *testing.T) {
	_, err := OpenRoute("desk7", []RouteLeg{{Name: "a", URI: "mem:/nowhere", Required: true, Policy: RouteDrop}})
	if !errors.Is(err, ErrInvalid) {
		t.Errorf("a required leg that drops: %v", err)
	}
	if _, err := OpenRoute("desk7", nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("no legs: %v", err)
	}
}

// A batch goes to the legs that each of its records selects; where one leg has no more space, it says how many have
// been taken, and the rest is nowhere.
func TestRoute_Batch(t *testing.T) {
	orders, audit := routeRing(t, "orders"), routeRing(t, "audit")
	for _, uri := range []string{orders, audit} {
		if err := Format(uri, FormatOptions{SizeBytes: 64 << 10}); err != nil {
			t.Fatal(err)
		}
	}
	options := WriterOptions{Level: LevelVisible, CountersDir: "none", Policy: PolicyReject}
	route, err := OpenRoute("desk7", []RouteLeg{
		{Name: "orders", URI: orders, Required: true, Classes: []ClassRange{{1, 1}}, Options: options},
		{Name: "audit", URI: audit, Required: true, CriticalityMin: 3, Options: options},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer route.Close(time.Second)
	entries, criticalities := make([]Entry, 2000), make([]uint32, 2000)
	for i := range entries {
		entries[i] = Entry{Data: []byte("fifteen bytes.."), Class: uint16(1 + i%2)}
		criticalities[i] = uint32(i % 4)
	}
	positions := make([]RoutePosition, len(entries))
	done, submitted, err := route.AppendBatch(entries[:100], criticalities, time.Second, positions)
	if err != nil || done != 100 || submitted != 100 || positions[0].Required != 1 || positions[1].Required != 0 ||
		positions[3].Required != 2 || positions[0].Level != LevelVisible {
		t.Fatalf("%d of %d, %v: %+v", done, submitted, err, positions[0])
	}
	done, submitted, err = route.AppendBatch(entries, nil, time.Second, positions)
	if !errors.Is(err, ErrFull) || done != submitted || done < 256 || !errors.Is(positions[done].Legs[0].Err, ErrFull) {
		t.Errorf("%d of %d, %v", done, submitted, err)
	}
	if err := route.Resolve(&positions[0], time.Second); err != nil || positions[0].Level != LevelVisible {
		t.Errorf("resolve of what is there: %v, %+v", err, positions[0])
	}
	status, err := Inspect(orders)
	if err != nil || status.LagRecords != uint64(1+50+(done+1)/2) {
		t.Errorf("%d records in the ring, %d acknowledged: %v", status.LagRecords, done, err)
	}
	if _, _, err := route.AppendBatch(entries, criticalities[:1], 0, positions); !errors.Is(err, ErrInvalid) {
		t.Errorf("too few criticalities: %v", err)
	}
}

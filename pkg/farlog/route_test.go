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

// One append goes to the legs that its class and criticality select; a leg whose ring comes later gets what waited, and a second route with its spill as well.
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
		{Name: "audit", URI: audit, Policy: RouteSpill, SpillURI: spill, SpillLevel: LevelVisible, BufferBytes: 1 << 20, CriticalityMin: 2, Options: options},
	}
	route, err := OpenRoute("desk7", legs)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Append(Entry{Data: []byte("x")}, 0); !errors.Is(err, ErrClosed) {
		t.Errorf("append by the writer that the route has taken over: %v", err)
	}
	position, err := route.Append(Entry{Data: []byte("one"), Class: 2}, 5, 30*time.Second)
	if err != nil || position.Required != 1 || position.Optional != 2 || position.Level != LevelVisible || !position.Legs[1].IsBuffered {
		t.Errorf("append: %+v, %v", position, err)
	}
	if _, err := route.Append(Entry{Data: []byte("two"), Class: 9}, 1, time.Second); !errors.Is(err, ErrNotFound) {
		t.Errorf("append that no leg takes: %v", err)
	}
	if stats := route.Stats(); stats[1].State != LegAway || stats[1].Spilled != 1 || stats[1].Behind == 0 || stats[0].Acked != 1 {
		t.Errorf("stats: %+v", stats)
	}
	if err := route.Close(time.Millisecond); !errors.Is(err, ErrUnknown) {
		t.Errorf("close with a spill that has something: %v", err)
	}
	if err := Format(audit, format); err != nil {
		t.Fatal(err)
	}
	if route, err = OpenRoute("desk7", []RouteLeg{{Name: legs[0].Name, URI: orders, Required: true, Options: options}, legs[1]}); err != nil {
		t.Fatal(err)
	}
	if err := route.CatchUp(20 * time.Second); err != nil {
		t.Fatal(err)
	}
	if err := route.Close(30 * time.Second); err != nil {
		t.Error(err)
	}
	if route.Stats() != nil || !errors.Is(route.Close(0), ErrClosed) {
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

package hostagent

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/internal/port"
)

// A door that answers is measured, one that is gone is told, and of those that are no longer named nothing is kept.
func TestWays_MeasuresDoorsThatAreThere(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	free, err := port.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	gone := fmt.Sprintf("127.0.0.1:%d", free)
	doors := []Door{
		{"t1", "ofi:tcp://" + listener.Addr().String()},
		{"t2", "ofi:tcp://" + gone},
		{"t3", "verbs://" + gone},
		{"t4", "nonsense"},
	}
	var ways Ways
	if !ways.Follow(doors) || ways.Follow(doors) {
		t.Error("doors are new once")
	}
	ways.Measure(t.Context())
	ways.Measure(t.Context())
	list := ways.List()
	for i, want := range []struct {
		count    int
		failures uint64
		failure  string
	}{
		{wayBurst + 1, 0, ""},
		{0, wayBurst + 1, "refused"},
		{wayBurst + 1, 0, ""},
		{0, wayBurst + 1, "expected scheme"},
	} {
		one := list[i]
		if one.Door != doors[i] || one.Count != want.count || one.Failures != want.failures ||
			!strings.Contains(one.Failure, want.failure) || (one.Failure == "") != (want.failure == "") {
			t.Errorf("got %+v, want %+v", one, want)
		}
		if isTimed := one.Least > 0 && one.Least <= one.Median && one.Median < wayTimeout; isTimed != (want.count > 0) {
			t.Errorf("got times %+v", one)
		}
	}
	if ways.Follow(doors[1:2]) || len(ways.List()) != 1 {
		t.Errorf("left %+v", ways.List())
	}
}

// The figures are those of the last 32; of a door that answers no more they go one by one.
func TestWays_ForgetsWhatIsOld(t *testing.T) {
	door := Door{"t1", "ofi:tcp://x:1"}
	var ways Ways
	ways.Follow([]Door{door})
	check := func(least, median time.Duration, count int) {
		t.Helper()
		if one := ways.List()[0]; one.Least != least || one.Median != median || one.Count != count {
			t.Errorf("got %+v, want %s, %s of %d", one, least, median, count)
		}
	}
	for i := range 40 {
		ways.note(door, time.Duration(100-i), nil)
	}
	check(61, 77, 32)
	for range 33 {
		ways.note(door, 500, nil)
	}
	check(500, 500, 32)
	for range 31 {
		ways.note(door, 0, errors.New("away"))
	}
	check(500, 500, 1)
	ways.note(door, 0, fmt.Errorf("away: %s", strings.Repeat("very ", 100)))
	check(0, 0, 0)
	if one := ways.List()[0]; one.Failures != 32 || len(one.Failure) > failureTextMost {
		t.Errorf("got %+v", one)
	}
	ways.note(door, 7, nil)
	check(7, 7, 1)
}

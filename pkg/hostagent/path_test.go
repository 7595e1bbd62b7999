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

// A listener that answers is measured, one that is gone is told, and of those that are no longer named nothing is kept.
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
	listeners := []Listener{
		{"t1", "ofi:tcp://" + listener.Addr().String()},
		{"t2", "ofi:tcp://" + gone},
		{"t3", "verbs://" + gone},
		{"t4", "nonsense"},
	}
	var paths Paths
	if !paths.Follow(listeners) || paths.Follow(listeners) {
		t.Error("listeners are new once")
	}
	paths.Measure(t.Context())
	paths.Measure(t.Context())
	list := paths.List()
	for i, want := range []struct {
		count    int
		failures uint64
		failure  string
	}{
		{pathBurst + 1, 0, ""},
		{0, pathBurst + 1, "refused"},
		{pathBurst + 1, 0, ""},
		{0, pathBurst + 1, "expected scheme"},
	} {
		one := list[i]
		if one.Listener != listeners[i] || one.Count != want.count || one.Failures != want.failures ||
			!strings.Contains(one.Failure, want.failure) || (one.Failure == "") != (want.failure == "") {
			t.Errorf("got %+v, want %+v", one, want)
		}
		isTimed := one.Least > 0 && one.Least <= one.Median && one.Median < pathTimeout
		if isTimed != (want.count > 0) {
			t.Errorf("got times %+v", one)
		}
	}
	if paths.Follow(listeners[1:2]) || len(paths.List()) != 1 {
		t.Errorf("left %+v", paths.List())
	}
}

// The figures are those of the last 32; of a listener that answers no more they go one by one.
func TestWays_ForgetsWhatIsOld(t *testing.T) {
	listener := Listener{"t1", "ofi:tcp://x:1"}
	var paths Paths
	paths.Follow([]Listener{listener})
	check := func(least, median time.Duration, count int) {
		t.Helper()
		if one := paths.List()[0]; one.Least != least || one.Median != median || one.Count != count {
			t.Errorf("got %+v, want %s, %s of %d", one, least, median, count)
		}
	}
	for i := range 40 {
		paths.note(listener, time.Duration(100-i), nil)
	}
	check(61, 77, 32)
	for range 33 {
		paths.note(listener, 500, nil)
	}
	check(500, 500, 32)
	for range 31 {
		paths.note(listener, 0, errors.New("away"))
	}
	check(500, 500, 1)
	paths.note(listener, 0, fmt.Errorf("away: %s", strings.Repeat("very ", 100)))
	check(0, 0, 0)
	if one := paths.List()[0]; one.Failures != 32 || len(one.Failure) > failureTextMost {
		t.Errorf("got %+v", one)
	}
	paths.note(listener, 7, nil)
	check(7, 7, 1)
}

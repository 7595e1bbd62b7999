package target

import "testing"

// A look says of each ring that it goes on, also of those that are found and not wanted, and forgets what it logged of
// streams that are gone: of a new one of that name it is logged again.
func TestObserve_EachRingIsNotedAndWhatIsGoneIsForgotten(t *testing.T) {
	one, noted := newTarget(t, t.TempDir()), 0
	one.config.OnRing = func() { noted++ }
	if ring := see(one, want("desk7/orders", 1))[0]; ring.State.Error != "" {
		t.Fatal(ring.State.Error)
	}
	noted = 0
	if seen := see(one); len(seen) != 1 || noted != 1 {
		t.Errorf("%d rings found, %d noted; expected 1 of each", len(seen), noted)
	}
	one.troubles.logged = map[string]trouble{"desk7/orders": {}, "desk7/gone": {}}
	one.denials.seen["desk7/gone"] = denied{}
	see(one)
	_, isLogged := one.troubles.logged["desk7/gone"]
	_, isSeen := one.denials.seen["desk7/gone"]
	if isLogged || isSeen || len(one.denials.seen) != 1 {
		t.Errorf("of a stream that is gone: logged %v, denials %v; expected neither", isLogged, one.denials.seen)
	}
}

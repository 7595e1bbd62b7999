package identity

import (
	"net/netip"
	"slices"
	"testing"
)

func TestAddresses(t *testing.T) {
	for _, wrong := range [][]string{{"storage1"}, {"10.1.2"}, {"10.1.2.3/33"}, {"any", "10.1.2.3"}, {""}, slices.Repeat([]string{"10.1.2.3"}, addressesMost+1)} {
		if err := CheckAddresses(wrong); err == nil {
			t.Errorf("%d addresses, the first %q: taken", len(wrong), wrong[0])
		}
	}
	for _, right := range [][]string{nil, {"any"}, {"10.1.2.3", "10.0.0.0/8", "fd00::/64"}} {
		if err := CheckAddresses(right); err != nil {
			t.Errorf("%q: %v", right, err)
		}
	}
	if got := Addresses([]string{"any"}); got != nil {
		t.Errorf("any is %q, expected none", got)
	}
	found := Addresses(nil)
	if !slices.Contains(found, "127.0.0.1") {
		t.Errorf("this host has the addresses %q, expected its loopback among them", found)
	}
	for _, text := range found {
		if _, err := netip.ParseAddr(text); err != nil {
			t.Error(err)
		}
	}
}

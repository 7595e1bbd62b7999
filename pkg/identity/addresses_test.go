package identity

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestNetwork(t *testing.T) {
	for _, wrong := range []string{"", "storage1", "10.1.2", "10.1.2.3/33", "10.1.2.3/24/24", "any"} {
		if got, err := Network(wrong); err == nil {
			t.Errorf("%q is taken for %v", wrong, got)
		}
	}
	for text, want := range map[string]string{
		"10.1.2.3": "10.1.2.3/32", "10.1.0.0/16": "10.1.0.0/16",
		"fe80::1%eth0": "fe80::1/128",
	} {
		if got, err := Network(text); err != nil || got.String() != want {
			t.Errorf("%q is %v, %v, expected %s", text, got, err, want)
		}
	}
}

func TestAddresses(t *testing.T) {
	for _, wrong := range [][]string{
		{"storage1"},
		{"10.1.2"},
		{"10.1.2.3/33"},
		{"any", "10.1.2.3"},
		{""},
		slices.Repeat([]string{"10.1.2.3"}, AddressesMax+1),
	} {
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
	for count, want := range map[int]string{
		AddressesMax: "",
		AddressesMax + 1: "this host has 257 addresses, a grant takes 256: its grants are valid from any host: " +
			"give --host-addresses",
	} {
		ask := func() (all []net.Addr, err error) {
			for i := range count {
				one := &net.IPNet{IP: net.IPv4(10, 0, byte(i>>8), byte(i)), Mask: net.CIDRMask(8, 32)}
				all = append(all, one, one)
			}
			return all, nil
		}
		if list, why := addresses(nil, ask); (why == "") != (len(list) == count) || !strings.HasPrefix(why, want) ||
			(why == "") != (want == "") {
			t.Errorf("%d addresses: %d of them, %q", count, len(list), why)
		}
	}
	if _, why := addresses(nil, func() ([]net.Addr, error) {
		return nil,
			errors.New("not told")
	}); !strings.Contains(why, "are not known (not told)") {
		t.Errorf("a system that does not tell: %q", why)
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

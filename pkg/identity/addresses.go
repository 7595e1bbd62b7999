package identity

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// AddressesUsage is what the setting host.addresses says of itself.
const AddressesUsage = "`addresses` from which this host connects to rings on other hosts, such as " +
	"10.1.2.3,10.1.2.0/24; targets accept this host's grants from no other address; any: from every address, for " +
	"hosts behind NAT (default: the addresses of all interfaces)"

// AddressesAny is given instead of addresses: grants are good wherever they are brought from.
const AddressesAny = "any"

// AddressesMax is how many of them a grant takes (FARLOG_NETWORKS_MAX).
const AddressesMax = 256

// CheckAddresses is the setting's rule.
func CheckAddresses(list []string) error {
	for _, text := range list {
		if _, err := Network(text); err != nil && (text != AddressesAny || len(list) > 1) {
			return fmt.Errorf("%q: expected addresses such as 10.1.2.3, networks such as 10.1.2.0/24, or any alone",
				text)
		}
	}
	if len(list) > AddressesMax {
		return fmt.Errorf("%d addresses: expected at most %d: give networks", len(list), AddressesMax)
	}
	return nil
}

// Network is that of an address, which is in it alone, or of address/bits.
func Network(text string) (netip.Prefix, error) {
	network, err := netip.ParsePrefix(text)
	if address, single := netip.ParseAddr(text); single == nil {
		network, err = address.WithZone("").Prefix(address.BitLen())
	}
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("address %q: expected one such as 10.1.2.3, or 10.1.2.0/24", text)
	}
	return network, nil
}

// Addresses are those given; without them, of all interfaces that this process sees, loopback too. None, which is any,
// where there are more of them than a grant takes, or where the system does not tell: WhyAny says so.
func Addresses(given []string) []string {
	list, _ := addresses(given, net.InterfaceAddrs)
	return list
}

// WhyAny tells why grants of this host are good from anywhere although nobody asked for that; "" where they are not.
func WhyAny(given []string) string {
	_, why := addresses(given, net.InterfaceAddrs)
	return why
}

func addresses(given []string, ask func() ([]net.Addr, error)) (list []string, whyAny string) {
	if len(given) > 0 {
		if given[0] == AddressesAny {
			return nil, ""
		}
		return given, ""
	}
	const remedy = "its grants are valid from any host: give --host-addresses, networks such as 10.1.2.0/24 or any"
	found, err := ask()
	if err != nil {
		return nil, fmt.Sprintf("this host's addresses are not known (%v): %s", err, remedy)
	}
	for _, address := range found {
		text, _, _ := strings.Cut(address.String(), "/")
		if _, err := netip.ParseAddr(text); err == nil && !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	if len(list) > AddressesMax {
		return nil, fmt.Sprintf("this host has %d addresses, a grant takes %d: %s", len(list), AddressesMax, remedy)
	}
	return list, ""
}

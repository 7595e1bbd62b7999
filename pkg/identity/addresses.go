package identity

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// AddressesUsage is what the setting host.addresses says of itself.
const AddressesUsage = "from which `addresses` this host's programs reach rings on other hosts, whose targets let grants of this host in from there alone: 10.1.2.3, 10.1.2.0/24; " +
	"any: from anywhere, which behind a translation of addresses may be needed (default: those of all its interfaces)"

// AddressesAny is given instead of addresses: grants are good wherever they are brought from.
const AddressesAny = "any"

const addressesMost = 256 // in a grant

// CheckAddresses is the setting's rule.
func CheckAddresses(list []string) error {
	for _, text := range list {
		_, one := netip.ParseAddr(text)
		_, many := netip.ParsePrefix(text)
		if one != nil && many != nil && (text != AddressesAny || len(list) > 1) {
			return fmt.Errorf("%q: expected addresses such as 10.1.2.3, networks such as 10.1.2.0/24, or any alone", text)
		}
	}
	if len(list) > addressesMost {
		return fmt.Errorf("%d addresses: expected at most %d: give networks", len(list), addressesMost)
	}
	return nil
}

// Addresses are those given; without them, of all interfaces that this process sees, loopback too. None, which is any, where there are more of them than a grant
// takes, or where the system does not tell.
func Addresses(given []string) []string {
	if len(given) > 0 {
		if given[0] == AddressesAny {
			return nil
		}
		return given
	}
	found, err := net.InterfaceAddrs()
	if err != nil || len(found) > addressesMost {
		return nil
	}
	var list []string
	for _, address := range found {
		text, _, _ := strings.Cut(address.String(), "/")
		if _, err := netip.ParseAddr(text); err == nil && !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	return list
}

package nvmet

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	nqnLenMax    = 223 // bytes; NVM Express Base Specification, NVMe Qualified Names
	discoveryNQN = "nqn.2014-08.org.nvmexpress.discovery"
	uuidPrefix   = "nqn.2014-08.org.nvmexpress:uuid:"
)

var (
	nqnDated = regexp.MustCompile(`^nqn\.[0-9]{4}-(0[1-9]|1[0-2])\.([a-zA-Z0-9-]+\.)*[a-zA-Z0-9-]+:.+$`)
	nqnUUID  = regexp.MustCompile(`^` + regexp.QuoteMeta(uuidPrefix) +
		`[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
)

// CheckNQN takes a name of one of the two forms of the NVM Express Base Specification: a date, the domain that its
// owner had then, and a text of the owner's; or a UUID.
func CheckNQN(nqn string) error {
	switch {
	case len(nqn) > nqnLenMax:
		return fmt.Errorf("NQN %q: it has %d bytes: expected at most %d", nqn, len(nqn), nqnLenMax)
	case !utf8.ValidString(nqn) || strings.ContainsAny(nqn, "/ \t\n\x00"):
		return fmt.Errorf("NQN %q: expected text in UTF-8 without blanks and slashes", nqn)
	case nqn == discoveryNQN:
		return fmt.Errorf("NQN %q: this name belongs to the discovery service: expected another one", nqn)
	case strings.HasPrefix(nqn, uuidPrefix) && !nqnUUID.MatchString(nqn):
		return fmt.Errorf("NQN %q: expected a UUID behind uuid:, such as %sf81d4fae-7dec-11d0-a765-00a0c91e6bf6", nqn,
			uuidPrefix)
	case !nqnDated.MatchString(nqn):
		return fmt.Errorf("NQN %q: expected nqn.YEAR-MONTH.REVERSED-DOMAIN:TEXT, such as "+
			"nqn.2026-01.com.example:desk7, or %sUUID", nqn, uuidPrefix)
	}
	return nil
}

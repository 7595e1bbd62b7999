package target

import (
	"fmt"
	"slices"
	"strings"

	"github.com/farlog/farlog/pkg/farlog"
)

// Attestation is what this host's operator says of one region, for clients on other hosts.
type Attestation struct {
	farlog.Attestation
	Region string // its path
	Reason string // for the log
}

// attest tells all listeners. What contradicts the region that is there ends the start.
func (d *doors) attest(file string, attestations []Attestation) error {
	for _, one := range attestations {
		if !d.isListening(one.CommitProvider) {
			return fmt.Errorf("%s: region %q: commit_flushes %q: this target does not listen by it; expected the provider of one of its listeners, ofi:PROVIDER://...",
				file, one.Region, one.CommitProvider)
		}
		for _, listener := range d.listeners {
			if err := listener.Attest("mem:"+one.Region, one.Attestation); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	return nil
}

// isListening says whether an attestation of this provider of libfabric would change anything; "" is none.
func (d *doors) isListening(provider string) bool {
	return provider == "" || slices.ContainsFunc(d.listeners, func(l *farlog.Target) bool { return strings.HasPrefix(l.URI(), "ofi:"+provider+"://") })
}

// attested is what is attested of the region of a ring; "" for nothing.
func (t *Target) attested(uri string) string {
	path, _, _ := strings.Cut(strings.TrimPrefix(uri, "mem:"), "?")
	for _, one := range t.config.Attestations {
		if one.Region == path {
			return one.String()
		}
	}
	return ""
}

// logAttestations leaves in the log on whose word a READ or a commit is taken for a flush, and why.
func (t *Target) logAttestations() {
	for _, one := range t.config.Attestations {
		t.config.Logger.Info("region is attested", "region", one.Region, "contract", one.String(), "reason", one.Reason, "file", t.config.AttestationFile)
	}
}

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
func (d *remoteServer) attest(file string, attestations []Attestation) error {
	for _, one := range attestations {
		if !d.isListening(one.CommitProvider) {
			return fmt.Errorf("%s: region %q: commit_flushes %q: this target does not listen by it; expected the "+
				"provider of one of its listeners, ofi:PROVIDER://...", file, one.Region, one.CommitProvider)
		}
		for _, listener := range d.listeners {
			if err := listener.Attest("mem:"+one.Region, one.Attestation); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	return nil
}

// isListening reports whether an attestation of this provider of libfabric would change anything; "" is none.
func (d *remoteServer) isListening(provider string) bool {
	return provider == "" || slices.ContainsFunc(d.listeners,
		func(l *farlog.Target) bool { return strings.HasPrefix(l.URI(), "ofi:"+provider+"://") })
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

// attestedRegions are the URIs of regions, each with what is attested of it: rings are made, reported and opened here
// by them, and have the level that they are served at.
func attestedRegions(regions []string, attestations []Attestation) []string {
	uris := slices.Clone(regions)
	for i, uri := range uris {
		path, _, hasOptions := strings.Cut(strings.TrimPrefix(uri, "mem:"), "?")
		for _, one := range attestations {
			if word := one.Word(); one.Region == path && word != "" && hasOptions {
				uris[i] = uri + "&attest=" + word
			} else if one.Region == path && word != "" {
				uris[i] = uri + "?attest=" + word
			}
		}
	}
	return uris
}

// probeAttested asks whether the regions deny what is attested of them: also of a target that listens nowhere.
func probeAttested(file string, before, after []string) error {
	for i, uri := range after {
		if uri == before[i] {
			continue
		}
		if _, err := farlog.Probe(uri); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

// logAttestations leaves in the log on whose word a READ or a commit is taken for a flush, and why.
func (t *Target) logAttestations() {
	for _, one := range t.config.Attestations {
		t.config.Logger.Info("region is attested", "region", one.Region, "contract", one.String(), "reason", one.Reason,
			"file", t.config.AttestationFile)
	}
}

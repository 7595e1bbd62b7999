//go:build cgo

package main

import (
	"testing"

	"github.com/farlog/farlog/pkg/config"
	"github.com/farlog/farlog/pkg/farlog"
)

// Every word that an attestation file may have is one of the core's, and means what it says.
func TestAttestationsOf_EveryWordOfTheFile(t *testing.T) {
	for _, how := range append([]string{""}, config.AttestedHow...) {
		for _, domain := range append([]string{""}, config.AttestedDomains...) {
			said, ok := farlog.NewAttestation(how, domain, "Ada", "2026-11-21")
			if !ok {
				t.Errorf("how %q, persistence_domain %q: no such words", how, domain)
			}
			got := attestationsOf([]config.Attestation{{
				Region: "/dev/dax0.0", How: how, PersistenceDomain: domain,
				By: "Ada", Date: "2026-11-21", Reason: "why",
			}})[0]
			if got.Attestation != said || got.Region != "/dev/dax0.0" || got.Reason != "why" {
				t.Errorf("got %+v", got)
			}
		}
	}
	if said, _ := farlog.NewAttestation("eadr", "cpu_cache", "Ada",
		"2026-11-21"); said.ReadFlush != farlog.ReadFlushEADR || said.Domain != farlog.DomainCPUCache ||
		said.String() != "eadr, cpu_cache by attestation of Ada, 2026-11-21" {
		t.Errorf("got %+v, %s", said, said)
	}
	for _, isAny := range []bool{false, true} {
		got := attestationsOf([]config.Attestation{{
			Region: "/dev/dax0.0", ReadFlushes: true, AnyReadFlushes: isAny,
			How: "ddio-off", By: "Ada", Date: "2026-11-21",
		}})[0]
		want := map[bool]string{
			false: "ddio-off by attestation of Ada, 2026-11-21",
			true:  "ddio-off by any READ by attestation of Ada, 2026-11-21",
		}[isAny]
		if got.IsAnyRead != isAny || got.String() != want {
			t.Errorf("got %+v, %s", got, got)
		}
	}
	got := attestationsOf([]config.Attestation{{
		Region: "/dev/dax0.0", ReadFlushes: true, How: "ddio-off",
		CommitFlushes: "tcp", By: "Ada", Date: "2026-11-21",
	}})[0]
	if got.CommitProvider != "tcp" || got.String() != "ddio-off, ofi-commit of tcp by attestation of Ada, 2026-11-21" {
		t.Errorf("got %+v, %s", got, got)
	}
	for _, words := range [][2]string{{"ddio", ""}, {"", "adr"}, {"cpu_cache", "eadr"}} {
		if said, ok := farlog.NewAttestation(words[0], words[1], "Ada", "2026-11-21"); ok {
			t.Errorf("%q is %+v", words, said)
		}
	}
}

// Each member of a stream is told once, in its place.
func TestWriterSample_EachMemberOnce(t *testing.T) {
	if got := len(writerSample(&farlog.Counters{}, make([]farlog.MemberCounters, 3), 0).Members); got != 3 {
		t.Errorf("%d members are told of 3", got)
	}
}

package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/doctor"
	"github.com/farlog/farlog/pkg/identity"
)

// A certificate is judged by the day; those of this host's daemons are, too, and one that is not good is what is cured
// first.
func TestDoctor_Certificates(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	env := &environment{tlsDir: filepath.Join(dir, "ca")}
	if err := caInit(&environment{stdout: new(strings.Builder), stderr: new(strings.Builder)}, env.tlsDir,
		caOptions{trustDomain: identity.TrustDomainDefault, validity: 30 * 24 * time.Hour}); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		at    time.Time
		state doctor.State
		text  string
	}{
		{now, doctor.OK, "good until"},
		{now.Add(20 * 24 * time.Hour), doctor.Warn, "ends on"},
		{now.Add(40 * 24 * time.Hour), doctor.Fail, "expired on"},
		{now.Add(-24 * time.Hour), doctor.Fail, "not valid yet"},
	} {
		findings := env.examineCertificates(test.at)
		if len(findings) != 1+len(identity.Kinds) {
			t.Fatalf("%d kinds and the authority: %+v", len(identity.Kinds), findings)
		}
		for _, one := range findings[1:] {
			if one.State != test.state || !strings.Contains(one.Reason, test.text) ||
				(one.Remedy == "") != (one.State == doctor.OK) {
				t.Errorf("at %s: got %+v", test.at, one)
			}
		}
		const reason = "control plane 127.0.0.1:1 does not answer: start one (farlogd dev --data-dir DIR), or give " +
			"--control HOST:PORT"
		got, remedy := unreachedFinding(reason, findings), "start one (farlogd dev"
		if test.state == doctor.Fail {
			remedy = "farlog ca renew AUTHORITY-DIR " + env.tlsDir
		}
		if got.State != doctor.Fail || got.Reason != "control plane 127.0.0.1:1 does not answer" ||
			!strings.HasPrefix(got.Remedy, remedy) {
			t.Errorf("at %s: got %+v", test.at, got)
		}
	}
}

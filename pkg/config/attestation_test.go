package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const attested = `regions:
  /dev/dax0.0:
    read_flushes: true
    how: ddio-off
    persistence_domain: memory_controller
    by: Ada, storage
    date: 2026-11-21
    reason: "firmware: DDIO off on the root port of the card, looked at with setpci"
`

var attestedRegions = []string{"/dev/dax0.0", "/dev/dax1.0"}

func writeAttestation(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "attestation.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadAttestations_EveryKey(t *testing.T) {
	list, err := ReadAttestations(writeAttestation(t, attested), attestedRegions)
	if err != nil {
		t.Fatal(err)
	}
	want := Attestation{
		Region: "/dev/dax0.0", ReadFlushes: true, How: "ddio-off",
		PersistenceDomain: "memory_controller", By: "Ada, storage",
		Date: "2026-11-21", Reason: "firmware: DDIO off on the root port of the card, looked at with setpci",
	}
	if len(list) != 1 || list[0] != want {
		t.Fatalf("got %+v", list)
	}
}

func TestReadAttestations_AnyRead(t *testing.T) {
	for word, want := range map[string]bool{"true": true, "false": false} {
		text := strings.Replace(attested, "    how:", "    any_read_flushes: "+word+"\n    how:", 1)
		list, err := ReadAttestations(writeAttestation(t, text), attestedRegions)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) != 1 || !list[0].ReadFlushes || list[0].AnyReadFlushes != want {
			t.Fatalf("%s: got %+v", word, list)
		}
	}
}

func TestReadAttestations_CommitAlone(t *testing.T) {
	text := strings.Replace(attested, "    read_flushes: true\n    how: ddio-off\n    persistence_domain: "+
		"memory_controller\n", "    commit_flushes: tcp\n", 1)
	list, err := ReadAttestations(writeAttestation(t, text), attestedRegions)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 1 || list[0].ReadFlushes || list[0].CommitFlushes != "tcp" {
		t.Fatalf("got %+v", list)
	}
}

func TestReadAttestations_DomainAloneAndTwoRegions(t *testing.T) {
	second := strings.NewReplacer("/dev/dax0.0", "/dev/dax1.0", "    read_flushes: true\n    how: ddio-off\n", "",
		"regions:\n", "").Replace(attested)
	list, err := ReadAttestations(writeAttestation(t, attested+second), attestedRegions)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 2 || list[1].Region != "/dev/dax1.0" || list[1].ReadFlushes || list[1].How != "" {
		t.Fatalf("got %+v", list)
	}
}

// badAttestations are changes of a good file, each of which makes it bad, and parts of the error.
var badAttestations = []struct {
	name, old, new string
	want           []string
}{
	{"not YAML", "regions:", "\tregions:", []string{"expected YAML of attestations"}},
	{"empty", attested, "", []string{`regions ""`, "expected the path of a region"}},
	{"no regions in it", attested, "regions: {}\n", []string{"regions", "expected the path of a region"}},
	{
		"regions is a list", attested, "regions: [/dev/dax0.0]\n",
		[]string{"[/dev/dax0.0]", "expected the path of a region"},
	},
	{"unknown key above", "regions:", "region: {}\nregions:", []string{`unknown key "region"`, "expected regions"}},
	{
		"unknown region", "/dev/dax0.0", "/dev/dax0.1",
		[]string{`unknown region "/dev/dax0.1"`, "/dev/dax0.0, /dev/dax1.0"},
	},
	{"a URI for a path", "/dev/dax0.0", "mem:/dev/dax0.0", []string{`unknown region "mem:/dev/dax0.0"`}},
	{
		"region is a text", attested, "regions: {/dev/dax0.0: ddio-off}\n",
		[]string{"/dev/dax0.0", `"ddio-off"`, "expected the keys any_read_flushes, by, commit_flushes, date"},
	},
	{"unknown key", "read_flushes", "read_flush", []string{
		`unknown key "read_flush"`,
		"did you mean read_flushes or any_read_flushes?",
	}},
	{"key twice", "    how: ddio-off\n", "    how: ddio-off\n    how: eadr\n", []string{"how", "already set"}},
	{
		"read_flushes as a text", "read_flushes: true", `read_flushes: "true"`,
		[]string{`read_flushes "true"`, "expected true or false"},
	},
	{
		"read_flushes as a number", "read_flushes: true", "read_flushes: 1",
		[]string{`read_flushes "1"`, "expected true or false"},
	},
	{
		"any_read_flushes as a text", "    how:", "    any_read_flushes: all\n    how:",
		[]string{`any_read_flushes "all"`, "expected true or false"},
	},
	{
		"any_read_flushes alone", "read_flushes: true", "any_read_flushes: true",
		[]string{`any_read_flushes "true"`, "expected read_flushes: true"},
	},
	{
		"commit_flushes as a flag", "    how:", "    commit_flushes: true\n    how:",
		[]string{`commit_flushes "true"`, "expected a text"},
	},
	{
		"commit_flushes of a URI", "    how:", "    commit_flushes: ofi:tcp\n    how:",
		[]string{`commit_flushes "ofi:tcp"`, "expected a provider", "such as tcp"},
	},
	{
		"commit_flushes too long", "    how:", "    commit_flushes: abcdefghijklmnop\n    how:",
		[]string{`"abcdefghijklmnop"`, "expected a provider"},
	},
	{"how missing", "    how: ddio-off\n", "", []string{
		`how ""`, "expected ddio-off or eadr or bar",
		"read_flushes is true",
	}},
	{
		"how of nothing", "read_flushes: true", "read_flushes: false",
		[]string{`how "ddio-off"`, "expected read_flushes: true"},
	},
	{"another how", "how: ddio-off", "how: ddio", []string{`how "ddio"`, "expected one of ddio-off, eadr, bar"}},
	{"how is empty", "how: ddio-off", "how:", []string{`how ""`, "expected a text"}},
	{"another domain", "memory_controller", "adr", []string{
		`persistence_domain "adr"`,
		"expected one of memory_controller, cpu_cache",
	}},
	{"domain is a number", "memory_controller", "7", []string{`persistence_domain "7"`, "expected a text"}},
	{
		"nothing attested", "    read_flushes: true\n    how: ddio-off\n    persistence_domain: memory_controller\n",
		"",
		[]string{"nothing is attested"},
	},
	{"nobody", "    by: Ada, storage\n", "", []string{`by ""`, "expected a value"}},
	{"blank name", "by: Ada, storage", `by: " "`, []string{`by " "`, "expected a value"}},
	{"no date", "    date: 2026-11-21\n", "", []string{`date ""`, "such as 2026-11-21"}},
	{"no such day", "2026-11-21", "2026-11-31", []string{`date "2026-11-31"`, "such as 2026-11-21"}},
	{"date with a time", "2026-11-21", "2026-11-21T10:00:00Z", []string{`date "2026-11-21T10:00:00Z"`}},
	{
		"no reason", `"firmware: DDIO off on the root port of the card, looked at with setpci"`, `""`,
		[]string{`reason ""`, "expected a text"},
	},
}

// Each case changes one thing in a file that is right.
func TestReadAttestations_BadInputNamesFileKeyValueAndExpectation(t *testing.T) {
	for _, tc := range badAttestations {
		t.Run(tc.name, func(t *testing.T) {
			text := strings.Replace(attested, tc.old, tc.new, 1)
			if text == attested {
				t.Fatalf("%q is not in the file", tc.old)
			}
			path := writeAttestation(t, text)
			list, err := ReadAttestations(path, attestedRegions)
			var mistake *Error
			if !errors.As(err, &mistake) {
				t.Fatalf("got %+v, %v", list, err)
			}
			for _, part := range append(tc.want, path) {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q is more than one line", err)
			}
		})
	}
}

func TestReadAttestations_FileMissingOrNoRegions(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none.yaml")
	if _, err := ReadAttestations(missing, attestedRegions); err == nil || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("got %v", err)
	}
	if _, err := ReadAttestations(writeAttestation(t, attested), nil); err == nil ||
		!strings.Contains(err.Error(), "give it --region") {
		t.Errorf("got %v", err)
	}
}

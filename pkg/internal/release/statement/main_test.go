package main

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

const sum = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

func TestDescribe_NamesEveryFileAndTheCommit(t *testing.T) {
	for _, tool := range []string{"cc", "ld", "meson"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no %s here; scripts/setup.sh ctest installs it", tool)
		}
	}
	made, err := describe("0123abc", "0.2.0", []byte(sum+"  a.deb\n"+sum+" *b.rpm\n"))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(made)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"_type":"https://in-toto.io/Statement/v1"`, `"predicateType":"https://slsa.dev/provenance/v1"`,
		`{"name":"a.deb","digest":{"sha256":"` + sum + `"}}`, `{"name":"b.rpm","digest":{"sha256":"` + sum + `"}}`,
		`"digest":{"gitCommit":"0123abc"}`, `"version":"0.2.0"`, `"go":"go1`,
	} {
		if !strings.Contains(string(raw), want) {
			t.Errorf("no %s in %s", want, raw)
		}
	}
}

func TestReadSums_RefusesWhatIsNoListOfChecksums(t *testing.T) {
	for _, text := range []string{"", "\n", sum, sum + "  a b\n", "9f86  a\n", sum + "  a\nfoo\n"} {
		if list, err := readSums([]byte(text)); err == nil {
			t.Errorf("%q is taken: %v", text, list)
		}
	}
}

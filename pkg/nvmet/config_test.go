package nvmet

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// testdata/nvmetcli.json is laid out as nvmetcli's dump() and json.dumps(sort_keys=True, indent=2) lay it out
// (nvmet/nvme.py and its test of save and restore).
func TestSaved_IsWhatNvmetcliWrites(t *testing.T) {
	raw, err := os.ReadFile("testdata/nvmetcli.json")
	if err != nil {
		t.Fatal(err)
	}
	config, err := ReadSaved(raw)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"passthru", "resv", "ana_groups", "referrals", "param", "tsas", "dhchap"} {
		if !bytes.Contains(raw, []byte(`"`+word+`"`)) {
			t.Errorf("the file has no %s: it shows nothing of that", word)
		}
	}
	written, err := config.Saved()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(written, raw) {
		t.Errorf("written again it is:\n%s", written)
	}
	if shown, err := config.WithoutKeys().Saved(); err != nil || bytes.Contains(shown, []byte("DHHC")) ||
		!bytes.Contains(shown, []byte(secretShown)) {
		t.Errorf("what may be shown has the key in it, or not its place: %v\n%s", err, shown)
	}
}

// What an older nvmetcli or a person wrote: no groups of newer kernels, numbers in place of texts, keys that nobody
// knows.
func TestReadSaved_TakesOlderAndHandWrittenFiles(t *testing.T) {
	config, err := ReadSaved([]byte(`{
		"hosts":[{"nqn":"hostnqn"}],
		"ports":[{"addr":{"adrfam":"ipv4","traddr":"192.168.6.68","treq":"not specified","trsvcid":4420,
		"trtype":"rdma"},"portid":2,"referrals":[],"subsystems":["testnqn"]}],
		"subsystems":[{"allowed_hosts":[],"attr":{"allow_any_host":true},"namespaces":[
		{"device":{"path":"/dev/nvme0n1"},"enable":1,"nsid":1}],"nqn":"testnqn","other":{}}],"discovery":1}`))
	if err != nil {
		t.Fatal(err)
	}
	m := newModel()
	if err := m.do(Plan(m.config(), config)); err != nil {
		t.Fatal(err)
	}
	if got := m.attrs["ports/2/addr_trsvcid"] + m.attrs["subsystems/testnqn/attr_allow_any_host"] +
		m.attrs["subsystems/testnqn/namespaces/1/enable"]; got != "442011" {
		t.Errorf("service, any host and enable are %q, want 4420, 1, 1", got)
	}
}

func TestReadSaved_RefusesWhatLeadsElsewhere(t *testing.T) {
	for raw, want := range map[string]string{
		`[]`: "expected the JSON that " +
			"nvmetcli",
		`{"hosts":[{"nqn":"../x"}]}`:                                                     "without a slash",
		`{"hosts":[{"nqn":""}]}`:                                                         "hosts[0].nqn",
		`{"subsystems":[{"nqn":".."}]}`:                                                  "without a slash",
		`{"subsystems":[{"nqn":"a"},{"nqn":"a"}]}`:                                       "there twice",
		`{"subsystems":[{"nqn":"a","attr":{"../x":"1"}}]}`:                               "attribute \"../x\"",
		`{"subsystems":[{"nqn":"a","attr":{"serial":["1"]}}]}`:                           "expected a text or a number",
		`{"subsystems":[{"nqn":"a","allowed_hosts":["b"]}]}`:                             "expected one of hosts",
		`{"subsystems":[{"nqn":"a","namespaces":[{"nsid":0}]}]}`:                         "expected a number from 1",
		`{"subsystems":[{"nqn":"nqn.2014-08.org.nvmexpress.discovery"}]}`:                "discovery service",
		`{"ports":[{"portid":-1}]}`:                                                      "expected a number from 0",
		`{"ports":[{"portid":1,"subsystems":["a"]}]}`:                                    "expected one of subsystems",
		`{"hosts":[{"nqn":"a","dhchap":{"key":"DHHC-1:00:secret:\nx"}}]}`:                "expected one line",
		`{"ports":[{"portid":1,"referrals":[{"name":"a/b"}]}]}`:                          "without a slash",
		fmt.Sprintf(`{"hosts":[{"nqn":"%s"}]}`, strings.Repeat("a", nqnLenMax+1)):        "expected 1 to 223 bytes",
		`{"subsystems":[{"nqn":"a","namespaces":[{"nsid":1,"device":{"p ath":"/x"}}]}]}`: "attribute",
	} {
		_, err := ReadSaved([]byte(raw))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", raw, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "secret:") {
			t.Errorf("the error has a key in it: %v", err)
		}
	}
}

func TestCheckNQN(t *testing.T) {
	for _, nqn := range []string{
		"nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
		"nqn.2026-01.com.example:desk7", "nqn.2026-12.example:a:b.c",
		"nqn.2026-01.com.example:" + strings.Repeat("a", nqnLenMax-len("nqn.2026-01.com.example:")),
	} {
		if err := CheckNQN(nqn); err != nil {
			t.Errorf("%s is refused: %v", nqn, err)
		}
	}
	for _, nqn := range []string{
		"", "desk7", "nqn.2026-13.com.example:a", "nqn.2026-1.com.example:a",
		"nqn.2026-01.com.example", "nqn.2026-01.com.example:", "nqn.2026-01.:a",
		"iqn.2026-01.com.example:a", "nqn.2026-01.com.example:a b", "nqn.2026-01.com.example:a/b", discoveryNQN,
		"nqn.2014-08.org.nvmexpress:uuid:f81d4fae",
		"nqn.2026-01.com.example:\xff", "nqn.2026-01.com.example:" + strings.Repeat("a", nqnLenMax),
	} {
		err := CheckNQN(nqn)
		if err == nil || !strings.Contains(err.Error(), "expected") {
			t.Errorf("%q: error %v, want one that says what was expected", nqn, err)
		}
	}
}

func TestKey_IsTheStandardForm(t *testing.T) {
	for _, hash := range hashNames() {
		key, err := NewKey(hash)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ParseKey(key.Reveal()); err != nil || again != key {
			t.Errorf("%s: a key that was drawn is read as %v: %v", hash, again, err)
		}
		for _, printed := range []string{
			key.String(), fmt.Sprintf("%v %+v %#v %s", key, key, key, key),
			fmt.Sprintf("%v %+v", HostKeys{Host: key}, &HostKeys{Host: key}),
		} {
			if strings.Contains(printed, "DHHC") {
				t.Errorf("%s: it is printed: %s", hash, printed)
			}
		}
	}
	// As nvme-cli's gen-dhchap-key makes it of the secret of 32 bytes a1: the checksum is that of zlib, the lowest byte
	// first.
	const known = "DHHC-1:01:oaGhoaGhoaGhoaGhoaGhoaGhoaGhoaGhoaGhoaGhoaFAAMFA:"
	if key := formKey("01", bytes.Repeat([]byte{0xa1}, 32)); key.Reveal() != known {
		t.Errorf("it is %s, want %s", key.Reveal(), known)
	}
	flipped := []byte(known)
	flipped[12] ^= 1
	for _, text := range []string{
		"", "secret", known[:len(known)-1], strings.Replace(known, ":01:", ":04:", 1),
		strings.Replace(known, "DHHC-1", "DHHC-2", 1), string(flipped),
		"DHHC-1:00:AAAA:", "DHHC-1:00:::",
	} {
		_, err := ParseKey(text)
		if err == nil || len(text) > 12 && strings.Contains(err.Error(), text[10:]) {
			t.Errorf("%q: error %v, want one without the key", text, err)
		}
	}
	if _, err := NewKey("md5"); err == nil || !strings.Contains(err.Error(), "expected sha256, sha384, sha512") {
		t.Errorf("hash md5: error %v", err)
	}
}

func TestOpen_NamesModuleAndCommand(t *testing.T) {
	for root, want := range map[string]string{
		filepath.Join(t.TempDir(), "nvmet"): "mount -t configfs configfs",
		"/nonexistent/config/nvmet":         "mount -t configfs configfs /nonexistent/config",
	} {
		if _, err := Open(root); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", root, err, want)
		}
	}
}

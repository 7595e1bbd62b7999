package nvmehost

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/farlog/farlog/pkg/nvmet"
)

// WithHost fills in who this host is: what nvme-cli uses as well, else made of the machine's id, which stays as long as
// the machine does. A reservation is the host's whose id the target was told.
func (k Kernel) WithHost(s Spec) (Spec, error) {
	if s.HostNQN != "" {
		return s, nil
	}
	nqn, id := k.readLine("/etc/nvme/hostnqn"), k.readLine("/etc/nvme/hostid")
	if (nqn == "") != (id == "") {
		return s, errors.New("of /etc/nvme/hostnqn and /etc/nvme/hostid only one is there: expected both or none, or " +
			"the host's NQN and id to be given")
	}
	if nqn == "" {
		machine := k.readLine("/etc/machine-id")
		if machine == "" {
			return s, errors.New("this host's NQN is not known: there is neither /etc/nvme/hostnqn nor " +
				"/etc/machine-id: give the host's NQN and id")
		}
		sum := sha256.Sum256([]byte("farlog nvme host\n" + machine))
		sum[6], sum[8] = sum[6]&0x0F|0x40, sum[8]&0x3F|0x80
		id = fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
		nqn = "nqn.2014-08.org.nvmexpress:uuid:" + id
	}
	s.HostNQN, s.HostID = nqn, id
	if err := s.Check(); err != nil {
		return s, fmt.Errorf("/etc/nvme: %w", err)
	}
	return s, nil
}

// keys are what a connection proves itself by. They are in no error and in no text.
type keys struct{ host, ctrl string }

// hostFile is what farlog target nvmet key writes.
type hostFile struct {
	HostNQN string `json:"hostnqn"`
	Key     string `json:"dhchap_key"`
	CtrlKey string `json:"dhchap_ctrl_key"`
}

// readKeys reads the files of a spec that has its host.
func (s Spec) readKeys() (keys, error) {
	var found keys
	if s.KeyFile == "" {
		return found, nil
	}
	text, err := readSecret(s.KeyFile)
	if err != nil {
		return found, err
	}
	found.host = text
	if strings.HasPrefix(text, "{") {
		var file hostFile
		if err := json.Unmarshal([]byte(text), &file); err != nil {
			return found, fmt.Errorf("key file %s: it is not what farlog target nvmet key wrote", s.KeyFile)
		}
		if file.HostNQN != s.HostNQN {
			return found, fmt.Errorf("key file %s has the keys of host NQN %s, and this host is %s: give --host-nqn "+
				"and --host-id, or the right file", s.KeyFile, file.HostNQN, s.HostNQN)
		}
		found = keys{file.Key, file.CtrlKey}
	}
	if s.CtrlKeyFile != "" {
		if found.ctrl, err = readSecret(s.CtrlKeyFile); err != nil {
			return found, err
		}
	}
	if err := checkKey(found.host, s.KeyFile); err != nil {
		return found, err
	}
	if found.ctrl == "" {
		return found, nil
	}
	return found, checkKey(found.ctrl, cmp.Or(s.CtrlKeyFile, s.KeyFile))
}

func checkKey(text, path string) error {
	if key, err := nvmet.ParseKey(text); err != nil || key.IsNone() {
		return fmt.Errorf("key file %s: no key of DH-HMAC-CHAP, or a damaged one; expected the file that farlog "+
			"target nvmet key wrote, or a key in one line, DHHC-1:00:BASE64:", path)
	}
	return nil
}

// readSecret reads a file that is its owner's alone.
func readSecret(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("key file: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("key file %s: others may read it (mode %04o): chmod 600 %s", path, info.Mode().Perm(),
			path)
	}
	if info.Size() > 4096 {
		return "", fmt.Errorf("key file %s has %d bytes: expected no more than 4096", path, info.Size())
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("key file: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}

// keyFields are nvme-cli's, with the keys left in their files.
func (s Spec) keyFields() []string {
	if s.KeyFile == "" {
		return nil
	}
	from := func(path, key string) string { return `"$(cat ` + quote(path) + `)"` }
	words := []string{"", ""}
	if raw, err := os.ReadFile(s.KeyFile); err == nil && strings.HasPrefix(strings.TrimSpace(string(raw)), "{") {
		from = func(path, key string) string { return `"$(jq -r .` + key + ` ` + quote(path) + `)"` }
		words[1] = "--dhchap-ctrl-secret=" + from(s.KeyFile, "dhchap_ctrl_key")
	}
	words[0] = "--dhchap-secret=" + from(s.KeyFile, "dhchap_key")
	if s.CtrlKeyFile != "" {
		words[1] = `--dhchap-ctrl-secret="$(cat ` + quote(s.CtrlKeyFile) + `)"`
	}
	return slices.DeleteFunc(words, func(word string) bool { return word == "" })
}

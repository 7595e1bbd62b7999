package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/internal/testenv"
)

// grantFile is what farlog stream grant writes.
type grantFile struct {
	Ring     string `json:"ring"`
	RingUUID string `json:"ring_uuid"`
	Epoch    uint32 `json:"epoch"`
	Token    string `json:"token"`
}

// badGrants appends with grants that are not what they should be.
type badGrants struct {
	*testing.T
	cluster *testenv.Cluster
	dir     string
	under   []string // a command that becomes farlog; empty = none
	count   int
}

func (b *badGrants) path() string {
	b.count++
	return filepath.Join(b.dir, fmt.Sprintf("grant-%d", b.count))
}

func (b *badGrants) grant(stream string) (grant grantFile) {
	b.Helper()
	path := b.path()
	testenv.MustRunUnder(b.T, b.under, "farlog", "stream", "grant", stream, "--token-file", path, "--control",
		b.cluster.ControlAddress)
	raw, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(raw, &grant)
	}
	if err != nil {
		b.Fatal(err)
	}
	return grant
}

// append appends one record. refusal is what the error says; "" expects none. No error tells the token.
func (b *badGrants) append(name, ring string, grant grantFile, refusal string) {
	b.Helper()
	path := b.path()
	raw, err := json.Marshal(grant)
	if err == nil {
		err = os.WriteFile(path, raw, 0o600)
	}
	if err != nil {
		b.Fatal(err)
	}
	process := testenv.StartUnder(b.T, b.under, strings.NewReader("one record\n"), nil, "farlog", "append", "--ring",
		ring, "--token-file", path, "--level", "visible")
	err = process.Wait()
	if log := process.Log(); (err == nil) != (refusal == "") || !strings.Contains(log, refusal) ||
		strings.Contains(log, grant.Token) {
		b.Errorf("append with a grant %s: %v, expected an error with %q: %s", name, err, refusal, log)
	}
}

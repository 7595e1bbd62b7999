package signing_test

import (
	"crypto/ed25519"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/signing"
	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

const softHSM = "/usr/lib/softhsm/libsofthsm2.so"

// newToken makes a key in a token of SoftHSM, and gives the line that signs with it and the file of its public key.
func newToken(t *testing.T) (line, publicFile string) {
	t.Helper()
	for _, name := range []string{"softhsm2-util", "pkcs11-tool"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("needs %s: scripts/setup.sh hsm installs it", name)
		}
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "softhsm2.conf")
	if err := os.WriteFile(config, []byte("directories.tokendir = "+dir+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SOFTHSM2_CONF", config)
	t.Setenv("FARLOG_PIN", "1234")
	tool := "pkcs11-tool --module " + softHSM + " --token-label farlog --login --pin env:FARLOG_PIN "
	publicFile = filepath.Join(dir, "store.pub")
	for _, command := range []string{
		"softhsm2-util --init-token --free --label farlog --pin 1234 --so-pin 5678",
		tool + "--keypairgen --key-type EC:edwards25519 --label store --id 01",
		tool + "--read-object --type pubkey --id 01 --output-file '" + publicFile + "'",
	} {
		if output, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, output)
		}
	}
	return tool + "--sign --mechanism EDDSA --id 01", publicFile
}

// A store is signed by a hardware security module, here SoftHSM, over PKCS#11: its key never leaves it, farlog verify
// checks what it has signed, and with a module that is gone the store goes on.
func TestCommand_PKCS11(t *testing.T) {
	line, publicFile := newToken(t)
	command, err := signing.OpenCommand(line, publicFile)
	if err != nil {
		t.Fatal(err)
	}
	signature, err := command.Sign([]byte("statement"))
	if err != nil || !ed25519.Verify(command.Public(), []byte("statement"), signature) {
		t.Fatalf("the module's signature does not verify: %x, %v", signature, err)
	}
	dir := filepath.Join(t.TempDir(), "store")
	patient := signing.NewCommand(line, command.Public(), time.Minute)
	opened, err := store.Open(dir, store.Options{
		Create: true, SegmentBytes: store.SegmentBytesMin, Signer: patient,
	})
	if err != nil {
		t.Fatal(err)
	}
	fillStore(t, opened, 60)
	report, err := opened.Verify(t.Context(), store.VerifyOptions{})
	if err != nil || !report.OK() || report.Streams[0].SealedSegments == 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	t.Setenv("FARLOG_PIN", "wrong")
	if _, err := opened.Sign([]byte("statement")); err == nil || !strings.Contains(err.Error(), "PIN") {
		t.Errorf("with a wrong PIN: %v", err)
	}
}

func fillStore(t *testing.T, s *store.Store, count int) {
	t.Helper()
	ring := storetest.NewRing("desk7/orders", 1)
	ring.Append(count, 600)
	appender, err := s.OpenStream(ring.Source)
	if err != nil {
		t.Fatal(err)
	}
	for at := range ring.Records {
		if _, _, err = appender.Append(storetest.Batch(ring.Records[at : at+1])); err != nil {
			t.Fatal(fmt.Errorf("record %d: %w", at, err))
		}
	}
	if err := appender.Close(); err != nil {
		t.Fatal(err)
	}
}

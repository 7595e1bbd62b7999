package signing_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/signing"
)

// The bytes come on standard input, and the answer is taken as it is; the program is a shell's line.
func TestCommand_BytesInSignatureOut(t *testing.T) {
	dir := t.TempDir()
	want := bytes.Repeat([]byte{0, 1, '\n', 0xFF}, ed25519.SignatureSize/4)
	if err := os.WriteFile(filepath.Join(dir, "answer"), want, 0o600); err != nil {
		t.Fatal(err)
	}
	command := signing.NewCommand("cat > '"+dir+"/given' && cat '"+dir+"/answer'", nil, time.Minute)
	statement := bytes.Repeat([]byte("statement\x00\n"), 1<<14) // more than a pipe holds
	got, err := command.Sign(statement)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%s, %v", hex.EncodeToString(got), err)
	}
	if given, err := os.ReadFile(filepath.Join(dir, "given")); err != nil || !bytes.Equal(given, statement) {
		t.Errorf("the program got %d bytes, %v", len(given), err)
	}
}

// Whatever a program does, its failure has a name.
func TestCommand_FailuresAreNamed(t *testing.T) {
	for line, want := range map[string]string{
		"cat > /dev/null; echo 'no such slot' >&2; exit 3": `exit status 3: "no such slot"`,
		"/no/such/program":         "not found",
		"cat > /dev/null; echo hi": "answered 3 bytes, expected the 64",
		"exit 0":                   "expected",
		"kill -KILL $$":            "killed",
		"cat > /dev/null; head -c 1000000 /dev/zero": "answered 1000000 bytes",
	} {
		_, err := signing.NewCommand(line, nil, time.Minute).Sign([]byte("statement"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected %q", line, err, want)
		}
	}
}

// A program that does not answer is killed with all that it has started.
func TestCommand_Deadline(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "pid")
	for timeout := 100 * time.Millisecond; ; timeout *= 2 { // until it got to its child, however busy the machine is
		_, err := signing.NewCommand("sleep 1000 & echo $! > '"+mark+"'; wait", nil, timeout).Sign([]byte("statement"))
		if err == nil || !strings.Contains(err.Error(), "no answer within "+timeout.String()) {
			t.Fatalf("%v", err)
		}
		if raw, err := os.ReadFile(mark); err == nil && len(raw) > 0 {
			waitGone(t, strings.TrimSpace(string(raw)))
			return
		}
	}
}

func waitGone(t *testing.T, pid string) {
	t.Helper()
	for range 3000 {
		status, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || bytes.Contains(status, []byte(") Z ")) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("process %s that the command started is there still", pid)
}

// Of many streams that want a signature at once a few programs are started, and all get one.
func TestCommand_ManyAtOnce(t *testing.T) {
	dir := t.TempDir()
	line := fmt.Sprintf("cat > /dev/null; mkdir '%s'/$$; test $(ls '%[1]s' | wc -l) -le 4 && head -c 64 /dev/zero; "+
		"code=$?; sleep 0.01; rmdir '%[1]s'/$$; exit $code", dir)
	command := signing.NewCommand(line, nil, time.Minute)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if signature, err := command.Sign([]byte("statement")); err != nil || len(signature) != 64 {
				t.Errorf("%d bytes, %v", len(signature), err)
			}
		})
	}
	all.Wait()
}

package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/internal/testenv"
	"github.com/farlog/farlog/pkg/record"
)

// readPayloads reads what is in a ring, or in the rings of a stream, until there is nothing more.
func readPayloads(t *testing.T, uri string) (payloads []string) {
	t.Helper()
	reader, err := farlog.OpenReader(uri, farlog.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	status, err := reader.Status()
	if err != nil {
		t.Fatal(err)
	}
	for buf := make([]byte, 1<<20); ; {
		batch, err := reader.Read(buf)
		if errors.Is(err, farlog.ErrNotYet) {
			return payloads
		}
		if err != nil {
			t.Fatal(err)
		}
		for raw := batch.Bytes; len(raw) > 0; {
			header, err := record.ParseHeader(raw)
			if err != nil {
				t.Fatal(err)
			}
			if !header.Flags.IsControl() {
				payloads = append(payloads, string(raw[record.HeaderLen:][:int(header.KeyLen)+int(header.PayloadLen)]))
			}
			raw = raw[header.StoredLen(status.Align):]
		}
	}
}

// untilGiven waits until the wanted records are read: a member gives one once it has received that enough have it.
func untilGiven(t *testing.T, what, want string, read func() string) {
	t.Helper()
	got := ""
	testenv.Until(t, what+": records are given", func() (bool, error) {
		got = read()
		if got != want && !strings.HasPrefix(want, got) {
			t.Fatalf("%s: read %q, expected %q", what, got, want)
		}
		return got == want, nil
	})
}

// Who knows a stream's name reads it: one ring on another host, and one that has three members of which one is gone. No
// writer is fenced by it.
func TestHost_ReaderByItsName(t *testing.T) {
	b := newHostBench(t)
	second := testenv.NewTarget(t, b.cluster, "storage2", farHost)
	testenv.NewTarget(t, b.cluster, "storage3", farHost)
	b.cluster.CreateStream("desk7/copied", "--size", "4MiB", "--level", "visible", "--members", "3", "--needed", "2",
		"--wait", "20s")
	b.cluster.Drain.Kill() // so that the records stay
	for _, stream := range []string{streamName, "desk7/copied"} {
		writer, err := farlog.OpenWriter(b.uri(stream), farlog.WriterOptions{})
		if err != nil {
			t.Fatalf("%s: %v", stream, err)
		}
		b.append(writer, 3, "record")
		untilGiven(t, stream, "record-0 record-1 record-2", func() string {
			return strings.Join(readPayloads(t, b.uri(stream)), " ")
		})
		if stream != streamName {
			second.Kill()
			b.append(writer, 2, "more")
		}
		want := "record-0\nrecord-1\nrecord-2\n"
		if stream != streamName {
			want += "more-0\nmore-1\n"
		}
		untilGiven(t, stream, want, func() string {
			return testenv.MustRun(t, "farlog", "tail", b.uri(stream), "--format", "raw")
		})
		b.append(writer, 1, "still") // its epoch is the ring's
		writer.Close()
		if status := b.cluster.Stream(stream); status.EpochGranted != 1 {
			t.Errorf("%s: epoch %d granted, expected 1", stream, status.EpochGranted)
		}
	}
	untilGiven(t, "by a grant of its own", "record-0\nrecord-1\nrecord-2\nmore-0\nmore-1\nstill-0\n", func() string {
		return testenv.MustRun(t, "farlog", "tail", "desk7/copied", "--transport", "ofi", "--control",
			b.cluster.ControlAddress, "--format", "raw")
	})
	b.checkReaderRefusals()
}

func (b *hostBench) checkReaderRefusals() {
	b.Helper()
	for _, bad := range []struct {
		uri     string
		options farlog.ReaderOptions
		want    error
		text    string
	}{
		{b.uri("no/such"), farlog.ReaderOptions{}, farlog.ErrNotFound, "no/such"},
		{b.uri(streamName), farlog.ReaderOptions{Drain: true}, farlog.ErrInvalid, "farlogd drain"},
		{
			b.uri(streamName),
			farlog.ReaderOptions{Token: &[farlog.TokenLen]byte{1}},
			farlog.ErrInvalid,
			"the host agent gives it",
		},
		{b.uri(streamName) + "&transport=verbs", farlog.ReaderOptions{}, farlog.ErrInvalid, "does not listen by verbs"},
		{
			"farlog://" + streamName + "?agent=/nowhere/s",
			farlog.ReaderOptions{},
			farlog.ErrNotFound,
			"no host agent at \"/nowhere/s\"",
		},
	} {
		reader, err := farlog.OpenReader(bad.uri, bad.options)
		if err == nil {
			reader.Close()
		}
		if !errors.Is(err, bad.want) || !strings.Contains(err.Error(), bad.text) {
			b.Errorf("%s: got %v, expected %v with %q", bad.uri, err, bad.want, bad.text)
		}
	}
}

// readingRules let host agents write all streams here, and read those of desk7.
const readingRules = `rules:
- {identities: ["spiffe://farlog/farlog/host/*"], roles: [append, replay], streams: ["desk7/*"]}
- {identities: ["spiffe://farlog/farlog/host/*"], roles: [append], streams: ["desk8/*"]}
`

// To read a stream by its name takes both: a --host-read of the host's administrator for the user, and the role replay
// of the control plane's for the host. Neither stands in for the other, and to be let write is not to be let read.
func TestHost_WhoMayRead(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can run a program as another user")
	}
	cluster := testenv.PrepareRemoteCluster(t, testenv.MemoryDir(t), farHost, nil)
	access := filepath.Join(cluster.Dir, "access.yaml")
	if err := os.WriteFile(access, []byte(readingRules), 0o600); err != nil {
		t.Fatal(err)
	}
	cluster.ControlArgs = []string{"--access-file", access}
	cluster.Start()
	b := newHostBenchOn(t, cluster, "--host-allow", "65534=desk7/*", "--host-allow", "65534=desk8/*", "--host-read",
		"65534=desk7/orders", "--host-read", "65534=desk8/orders")
	program := b.copyProgram("farlog")
	for _, test := range []struct{ stream, refusal string }{
		{"desk7/orders", ""}, // rule and role
		{"desk7/quotes", `(65534) may not read stream "desk7/quotes"`},       // the role alone
		{"desk8/orders", `has not the role replay on stream "desk8/orders"`}, // the rule alone
		{"desk8/quotes", `(65534) may not read stream "desk8/quotes"`},       // neither
	} {
		cluster.CreateStream(test.stream, "--size", "1MiB", "--level", "visible")
		ctx, cancel := context.WithTimeout(t.Context(), testenv.Timeout)
		defer cancel()
		cmd := exec.CommandContext(ctx, program, "tail", "farlog://"+test.stream)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		cmd.Env, cmd.Dir = []string{"FARLOG_AGENT=" + b.socket}, b.dir
		said, err := cmd.CombinedOutput()
		if (err == nil) != (test.refusal == "") || !strings.Contains(string(said), test.refusal) {
			t.Errorf("%s: %v: %s, expected %q", test.stream, err, said, test.refusal)
		}
	}
}

package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/consume"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/internal/testenv"
	"github.com/farlog/farlog/pkg/store"
)

const consumerName = "desk-risk"

// consumers is one stream under load, and whoever reads along.
type consumers struct {
	*testing.T
	cluster     *testenv.Cluster
	program     string // the consumer in C
	uri, states string
	writer      *farlog.Writer
	count       int // records appended
}

func consumerInC(t *testing.T) string {
	t.Helper()
	program := os.Getenv("FARLOG_C_CONSUMER")
	if program == "" {
		t.Skip("FARLOG_C_CONSUMER is not set to the program of rdma/examples/05-consume.c: scripts/examples.sh " +
			"compiles it and runs this")
	}
	return program
}

func newConsumers(t *testing.T) *consumers {
	c := &consumers{T: t, program: consumerInC(t)}
	dir := testenv.MemoryDir(t)
	c.states = filepath.Join(dir, "states")
	c.cluster = testenv.NewCluster(t, dir, "--store-segment", "1MiB")
	c.uri = c.cluster.CreateStream(streamName, "--size", "512KiB", "--record-len-max", "16KiB", "--level", "visible")
	c.openWriter()
	t.Cleanup(func() { c.writer.Close() })
	return c
}

func (c *consumers) openWriter() {
	c.Helper()
	var err error
	if c.writer, err = farlog.OpenWriter(c.uri, farlog.WriterOptions{
		CountersDir: "none",
		Level:       farlog.LevelVisible,
	}); err != nil {
		c.Fatal(err)
	}
}

// payload is told apart from every other one, and of lengths that cross lines, ring ends and segments anywhere.
func (c *consumers) payload(i int) string {
	return fmt.Sprintf("order %d %s", i, strings.Repeat("x", i*37%700))
}

// append gives the ring as many bytes, however often round that is: a full ring waits for the drain.
func (c *consumers) append(bytes int) {
	c.Helper()
	for end := c.writer.Cursors().AppendedLSN + uint64(bytes); c.writer.Cursors().AppendedLSN < end; c.count++ {
		if _, err := c.writer.Append(farlog.Entry{Data: []byte(c.payload(c.count))}, testenv.Timeout); err != nil {
			c.Fatalf("record %d: %v", c.count, err)
		}
	}
}

func (c *consumers) startC(output *os.File, args ...string) *testenv.Process {
	c.Helper()
	return testenv.StartForeign(c, output, []string{"XDG_STATE_HOME=" + c.states}, c.program,
		append([]string{c.uri, c.cluster.StoreDir, consumerName}, args...)...)
}

func (c *consumers) create(name string) *os.File {
	c.Helper()
	file, err := os.Create(filepath.Join(c.states, "..", name))
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { file.Close() })
	return file
}

func (c *consumers) printed(file *os.File) []byte {
	c.Helper()
	raw, err := os.ReadFile(file.Name())
	if err != nil {
		c.Fatal(err)
	}
	return raw
}

// check: exactly these records, in their order, each once.
func (c *consumers) check(who string, raw []byte, from, to int) {
	c.Helper()
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for i := from; ; i++ {
		switch isThere := lines.Scan(); {
		case !isThere && i == to:
			return
		case !isThere || i == to:
			c.Fatalf("%s printed %d records and then %.60q, expected %d", who, i-from, lines.Text(), to-from)
		case lines.Text() != c.payload(i):
			c.Fatalf("%s printed %.60q as record %d, expected %.60q", who, lines.Text(), i, c.payload(i))
		}
	}
}

// untilRoom waits until the drain has left at most so many bytes in the ring.
func (c *consumers) untilRoom(lagBytes uint64) {
	c.Helper()
	testenv.Until(c.T, "the drain to have caught up", func() (bool, error) {
		ring, err := farlog.Inspect(c.uri)
		return ring.LagBytes <= lagBytes, err
	})
}

// untilPrinted waits until a file ends with the last record.
func (c *consumers) untilPrinted(who string, p *testenv.Process, file *os.File) {
	c.Helper()
	last := []byte(c.payload(c.count-1) + "\n")
	testenv.Until(c, who+" has printed the last record", func() (bool, error) {
		if p.HasEnded() {
			return false, fmt.Errorf("it ended: %s", p.Log())
		}
		tail := make([]byte, len(last))
		status, err := file.Stat()
		if err != nil || status.Size() < int64(len(last)) {
			return false, err
		}
		_, err = file.ReadAt(tail, status.Size()-int64(len(last)))
		return bytes.Equal(tail, last), err
	})
}

// readGo reads with Go's consumer until there is nothing more.
func (c *consumers) readGo(consumer *consume.Consumer, into *bytes.Buffer) {
	c.Helper()
	for {
		item, err := consumer.Next()
		if errors.Is(err, farlog.ErrNotYet) {
			return
		}
		if err != nil {
			c.Fatal(err)
		}
		into.Write(item.Payload)
		into.WriteByte('\n')
	}
}

// A consumer in C, one in Go and farlog tail see the same bytes of a stream under load: its writer is opened again, its
// drain killed and started, the consumer in C stands while the ring runs over it, several segments far, and each has
// every record once. Then farlog tail, Go and C go on, each where another one of the same name has stopped.
func TestConsumers_CGoAndTailSeeTheSame(t *testing.T) {
	c := newConsumers(t)
	c.append(300 << 10)
	cFile, tailFile := c.create("c.out"), c.create("tail.out")
	inC := c.startC(cFile, "-f")
	tail := testenv.Start(t, nil, tailFile, "farlog", "tail", "--ring", c.uri, "--store", c.cluster.StoreDir, "--from",
		"oldest", "--format", "raw", "-f")
	c.untilPrinted("the consumer in C", inC, cFile)
	inC.Pause()
	before := len(c.printed(cFile))
	c.append(2 << 20)
	c.untilRoom(200 << 10) // for what is appended while nobody drains
	c.cluster.Drain.Kill()
	c.append(100 << 10)
	c.cluster.StartDrain()
	if err := c.writer.Close(); err != nil {
		t.Fatal(err)
	}
	c.openWriter()
	c.append(1200 << 10)
	if now := len(c.printed(cFile)); now != before {
		t.Fatalf("a process that stands printed %d bytes", now-before)
	}
	if _, said, code := testenv.Run(t, "farlog", "tail", "--ring", c.uri, "--name", consumerName, "--state-dir",
		filepath.Join(c.states, "farlog")); code == 0 ||
		!strings.Contains(said, "consumer "+consumerName+" of process") {
		t.Errorf("a second consumer of the name: exit code %d, %q", code, said)
	}
	inC.Signal(syscall.SIGCONT)
	c.append(600 << 10)
	c.untilPrinted("the consumer in C", inC, cFile)
	c.untilPrinted("farlog tail", tail, tailFile)
	inC.Stop()
	tail.Stop()
	opened, err := store.Open(c.cluster.StoreDir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	inGo, err := consume.Open(consume.Config{
		RingURI: c.uri, Stream: streamName, Store: opened,
		Start: consume.StartOldest,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer inGo.Close()
	var goOut bytes.Buffer
	c.readGo(inGo, &goOut)
	c.check("Go", goOut.Bytes(), 0, c.count)
	c.check("farlog tail", c.printed(tailFile), 0, c.count)
	c.check("C", c.printed(cFile), 0, c.count)
	if !strings.Contains(inC.Log(), "overtaken: comes from the store: lsn ") ||
		!strings.HasSuffix(inC.Log(), " 0 bytes lost\n") {
		t.Errorf("the consumer in C said %q, expected that it was overtaken and lost nothing", inC.Log())
	}
	c.goOnByName(opened)
}

// goOnByName: one name, three programs.
func (c *consumers) goOnByName(opened *store.Store) {
	c.Helper()
	from := c.count
	c.append(900 << 10)
	printed := testenv.MustRun(c.T, "farlog", "tail", "--ring", c.uri, "--store", c.cluster.StoreDir, "--format", "raw",
		"--name", consumerName, "--state-dir", filepath.Join(c.states, "farlog"))
	c.check("farlog tail by C's name", []byte(printed), from, c.count)
	from = c.count
	c.append(100 << 10)
	file := c.create("c2.out")
	if err := c.startC(file).Wait(); err != nil {
		c.Fatal(err)
	}
	c.check("C by the tail's name", c.printed(file), from, c.count)
	from = c.count
	c.append(900 << 10)
	position, err := consume.OpenPosition(filepath.Join(c.states, "farlog"), consumerName, streamName)
	if err != nil {
		c.Fatal(err)
	}
	defer position.Close()
	refused := c.startC(file)
	if err := refused.Wait(); err == nil || !strings.Contains(refused.Log(),
		fmt.Sprintf("is in use: consumer %s of process %d", consumerName, os.Getpid())) {
		c.Errorf("a second consumer in C: %v, %q", err, refused.Log())
	}
	inGo, err := consume.Open(consume.Config{RingURI: c.uri, Stream: streamName, Store: opened, Position: position})
	if err != nil {
		c.Fatal(err)
	}
	defer inGo.Close()
	var out bytes.Buffer
	c.readGo(inGo, &out)
	c.check("Go by C's name", out.Bytes(), from, c.count)
}

// A consumer in C that is killed again and again prints, from its last commit on, every record: what it had printed
// comes again, and nothing is left out.
func TestConsumers_CKilledGoesOnBehindItsCommit(t *testing.T) {
	c := newConsumers(t)
	seen := 0
	for round := range 8 {
		c.append(200 << 10)
		file := c.create(fmt.Sprintf("killed%d.out", round))
		p := c.startC(file, "-f")
		begun := time.Now()
		c.append(150 << 10)
		for len(c.printed(file)) < round*20000 && time.Since(begun) < testenv.Timeout {
			time.Sleep(time.Millisecond)
		}
		p.Kill()
		raw := c.printed(file)
		if end := bytes.LastIndexByte(raw, '\n'); end < 0 {
			continue
		} else {
			raw = raw[:end+1]
		}
		var first int
		if _, err := fmt.Sscanf(string(raw), "order %d", &first); err != nil || first > seen {
			t.Fatalf("round %d begins with record %d (%v), %d were printed before", round, first, err, seen)
		}
		seen = first + bytes.Count(raw, []byte("\n"))
		c.check("C", raw, first, seen)
	}
	if seen == 0 {
		t.Fatal("nothing was printed")
	}
	file := c.create("end.out")
	if err := c.startC(file).Wait(); err != nil {
		t.Fatal(err)
	}
	var first int
	if raw := c.printed(file); len(raw) > 0 {
		if _, err := fmt.Sscanf(string(raw), "order %d", &first); err != nil || first > seen {
			t.Fatalf("the end begins with record %d (%v), %d were printed before", first, err, seen)
		}
		c.check("C", raw, first, c.count)
	} else if seen != c.count {
		t.Fatalf("%d records printed, expected %d", seen, c.count)
	}
}

// By a stream's name alone, on a host that only the network joins to the ring: the agent gives the grant, the history
// comes from the store.
func TestConsumers_CByAStreamsName(t *testing.T) {
	program := consumerInC(t)
	b := newHostBench(t)
	writer, err := farlog.OpenWriter(b.uri(streamName), farlog.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	b.append(writer, 40, "stored")
	testenv.Until(t, "they are drained", func() (bool,
		error,
	) {
		return writer.Cursors().HeadLSN == writer.Cursors().AppendedLSN, nil
	})
	b.cluster.Drain.Kill()
	b.append(writer, 20, "live")
	file, err := os.Create(filepath.Join(t.TempDir(), "c.out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	p := testenv.StartForeign(t, file, nil, program, b.uri(streamName), b.cluster.StoreDir, "-")
	if err := p.Wait(); err != nil {
		t.Fatalf("%v: %s", err, p.Log())
	}
	var want strings.Builder
	for i := range 40 {
		fmt.Fprintf(&want, "stored-%d\n", i)
	}
	for i := range 20 {
		fmt.Fprintf(&want, "live-%d\n", i)
	}
	if got, err := os.ReadFile(file.Name()); err != nil || string(got) != want.String() {
		t.Errorf("%v: printed %.300q", err, got)
	}
}

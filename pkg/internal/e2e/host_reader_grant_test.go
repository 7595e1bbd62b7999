package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apiv1 "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/internal/testenv"
	"github.com/farlog/farlog/pkg/record"
)

// followed is a reader that stays open, and what it has read.
type followed struct {
	*farlog.Reader
	align    uint32
	payloads []string
}

func follow(t *testing.T, uri string) *followed {
	t.Helper()
	reader, err := farlog.OpenReader(uri, farlog.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reader.Close() })
	status, err := reader.Status()
	if err != nil {
		t.Fatal(err)
	}
	return &followed{Reader: reader, align: status.Align}
}

// until reads on until it has so many records. What is away may come back; anything else is an error.
func (f *followed) until(t *testing.T, what string, count int) {
	t.Helper()
	buf := make([]byte, 1<<20)
	testenv.Until(t, what, func() (bool, error) {
		batch, err := f.Read(buf)
		if errors.Is(err, farlog.ErrNotYet) || errors.Is(err, farlog.ErrIO) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		for raw := batch.Bytes; len(raw) > 0; {
			header, err := record.ParseHeader(raw)
			if err != nil {
				return false, err
			}
			if !header.Flags.IsControl() {
				f.payloads = append(f.payloads,
					string(raw[record.HeaderLen:][:int(header.KeyLen)+int(header.PayloadLen)]))
			}
			raw = raw[header.StoredLen(f.align):]
		}
		return len(f.payloads) >= count, nil
	})
}

// expectNothing looks until something else has come about: there is nothing to read yet, or no answer.
func (f *followed) expectNothing(t *testing.T, what string, until func() bool) {
	t.Helper()
	buf := make([]byte, 1<<20)
	testenv.Until(t, what, func() (bool, error) {
		if _, err := f.Read(buf); !errors.Is(err, farlog.ErrNotYet) && !errors.Is(err, farlog.ErrIO) {
			return false, fmt.Errorf("read: %w, expected nothing yet", err)
		}
		return until(), nil
	})
}

// A reader on another host is let in by a grant that ends. When it has, and its target was killed and started again and
// knows the reader no more, the reader goes on by itself, without a gap and without a record twice: of one ring, and of
// three of which another one is then gone, so that the one that came back is needed. The agent is asked for no more
// than that takes.
func TestHost_FarReaderOutlivesItsGrant(t *testing.T) {
	cluster := testenv.PrepareRemoteCluster(t, testenv.MemoryDir(t), farHost, nil)
	cluster.ControlArgs = []string{"--reader-grant", "1s"}
	cluster.Start()
	cluster.CreateStream(streamName, "--size", "4MiB", "--level", "visible")
	b := newHostBenchOn(t, cluster)
	second := testenv.NewTarget(t, cluster, "storage2", farHost)
	testenv.NewTarget(t, cluster, "storage3", farHost)
	const copied = "desk7/copied"
	cluster.CreateStream(copied, "--size", "4MiB", "--level", "visible", "--members", "3", "--needed", "2", "--wait",
		"20s")
	cluster.Drain.Kill() // so that the records stay
	writers, readers := map[string]*farlog.Writer{}, map[string]*followed{}
	for _, stream := range []string{streamName, copied} {
		writer, err := farlog.OpenWriter(b.uri(stream), farlog.WriterOptions{})
		if err != nil {
			t.Fatalf("%s: %v", stream, err)
		}
		defer writer.Close()
		b.append(writer, 3, "before")
		writers[stream], readers[stream] = writer, follow(t, b.uri(stream))
		readers[stream].until(t, "what was there is read", 3)
	}
	printed, err := os.Create(filepath.Join(b.dir, "printed"))
	if err != nil {
		t.Fatal(err)
	}
	defer printed.Close()
	isPrinted := func(prefix string) func() (bool, error) {
		return func() (bool, error) {
			raw, err := os.ReadFile(printed.Name())
			return strings.Count(string(raw), prefix) == 3, err
		}
	}
	testenv.Start(t, nil, printed, "farlog", "tail", b.uri(streamName), "-f", "--format", "raw")
	testenv.Until(t, "tail has printed what was there", isPrinted("before-"))

	b.untilReadersEnded(2)
	cluster.Target.Kill()
	cluster.StartTarget()
	for stream, writer := range writers {
		b.append(writer, 3, "behind")
		readers[stream].until(t, "reading goes on in "+stream, 6)
	}
	testenv.Until(t, "tail goes on", isPrinted("behind-"))
	second.Kill()
	b.append(writers[copied], 3, "without")
	readers[copied].until(t, "reading goes on with the member that came back", 9)
	for stream, reader := range readers {
		want := "before-0 before-1 before-2 behind-0 behind-1 behind-2"
		if stream == copied {
			want += " without-0 without-1 without-2"
		}
		if got := strings.Join(reader.payloads, " "); got != want {
			t.Errorf("%s: read %q, expected %q", stream, got, want)
		}
		if status := cluster.Stream(stream); status.EpochGranted != 1 || status.Rings[0].ReaderGeneration > 20 {
			t.Errorf("%s: epoch %d, %d grants of readers", stream, status.EpochGranted,
				status.Rings[0].ReaderGeneration)
		}
	}
}

// A reader whose grant has ended, and whose target does not know it any more, has nothing to read and no error while
// its host agent does not answer. It asks again, and goes on when an agent is back.
func TestHost_FarReaderAsksUntilItsAgentIsBack(t *testing.T) {
	cluster := testenv.PrepareRemoteCluster(t, testenv.MemoryDir(t), farHost, nil)
	cluster.ControlArgs = []string{"--reader-grant", "1s"}
	cluster.Start()
	cluster.CreateStream(streamName, "--size", "4MiB", "--level", "visible")
	b := newHostBenchOn(t, cluster)
	cluster.Drain.Kill() // so that the records stay
	writer, err := farlog.OpenWriter(b.uri(streamName), farlog.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	b.append(writer, 3, "before")
	reader := follow(t, b.uri(streamName))
	reader.until(t, "what was there is read", 3)
	b.untilReadersEnded(1)
	b.agent.Kill()
	refused, end := b.refuseInPlaceOfAgent()
	cluster.Target.Kill()
	cluster.StartTarget()
	reader.expectNothing(t, "the agent was asked twice", func() bool { return refused.Load() >= 2 })
	end()
	b.startAgent()
	b.append(writer, 3, "behind")
	reader.until(t, "reading goes on", 6)
	want := "before-0 before-1 before-2 behind-0 behind-1 behind-2"
	if got := strings.Join(reader.payloads, " "); got != want {
		t.Errorf("read %q, expected %q", got, want)
	}
}

// refuseInPlaceOfAgent takes every call to the agent's socket and hangs up, until it is ended; count is how many.
func (b *hostBench) refuseInPlaceOfAgent() (count *atomic.Int64, end func()) {
	b.Helper()
	if err := os.Remove(b.socket); err != nil {
		b.Fatal(err)
	}
	listener, err := net.Listen("unixpacket", b.socket)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { listener.Close() })
	count = new(atomic.Int64)
	go func() {
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			conn.Close()
			count.Add(1)
		}
	}()
	return count, func() { listener.Close() }
}

// untilReadersEnded waits until no grant of a reader would let in somebody who is not known.
func (b *hostBench) untilReadersEnded(streamCount int) {
	b.Helper()
	conn := b.cluster.Dial(b.cluster.ControlAddress)
	defer conn.Close()
	testenv.Until(b.T, "the grants have ended", func() (bool, error) {
		response, err := apiv1.NewFabricServiceClient(conn).ListGrants(b.Context(),
			&apiv1.ListGrantsRequest{Role: apiv1.GrantRole_GRANT_ROLE_READER})
		if err != nil {
			return false, err
		}
		// not how many grants: what has ended is forgotten when the stream's next reader comes, as one does whose first
		// grant had ended on the way
		streams := map[string]bool{}
		for _, grant := range response.Grants {
			if time.Now().Before(grant.ExpireTime.AsTime()) {
				return false, nil
			}
			streams[grant.Stream] = true
		}
		return len(streams) == streamCount, nil
	})
}

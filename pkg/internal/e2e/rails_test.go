package e2e

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/internal/testenv"
)

// What this proves, and how. Two targets listen at two addresses each. The streams are spread over both: each is
// written by its name, and its records reach the store by the rail of its grant, which is the same one for the next
// writer. The two members of one stream go by different rails.
func TestRails_StreamsAndMembersAreSpread(t *testing.T) {
	t.Parallel()
	addresses := [2]string{"127.0.0.2", "127.0.0.3"}
	cluster := testenv.PrepareRemoteCluster(t, testenv.MemoryDir(t), farHost, nil)
	cluster.TargetArgs = append([]string{"--host-name", "storage"}, listensAt(t, addresses[:])...)
	cluster.Start()
	dir := filepath.Join(cluster.Dir, "other")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	other, _ := testenv.StartDaemon(t, dir, "target", append([]string{
		"--data-dir", dir, "--control",
		cluster.ControlAddress, "--metrics-listen", "off", "--host-name", "other",
	}, listensAt(t, addresses[:])...)...)
	cluster.Watch(other)
	bench := newHostBenchOn(t, cluster)

	spread := map[string]int{}
	for _, name := range []string{"rail/1", "rail/2", "rail/3", "rail/4", "rail/5", "rail/6", "rail/7", "rail/8"} {
		ring := cluster.CreateStream(name, "--size", "1MiB", "--level", "visible", "--target", "storage")
		first := bench.appendByRails(name, 20)
		if again := bench.appendByRails(name, 20); again[0] != first[0] {
			t.Errorf("%s: the next writer was granted %s, the one before %s", name, again[0], first[0])
		}
		spread[hostOfURI(t, first[0])]++
		waitDrained(t, ring)
		if shown := testenv.MustRun(t, "farlog", "stream", "show", name, "--control",
			cluster.ControlAddress); !strings.Contains(shown, "writer connects to") ||
			!strings.Contains(shown, first[0]) {
			t.Errorf("%s is not shown: %s", first[0], shown)
		}
	}
	if spread[addresses[0]] == 0 || spread[addresses[1]] == 0 || len(spread) != 2 {
		t.Errorf("the streams went by %v", spread)
	}
	cluster.CreateStream("rail/members", "--size", "1MiB", "--level", "visible", "--members", "2", "--needed", "2")
	if members := bench.appendByRails("rail/members", 20); len(members) != 2 ||
		hostOfURI(t, members[0]) == hostOfURI(t, members[1]) {
		t.Errorf("the members went by %v", members)
	}
}

// listensAt makes the flags of a target with a rail at each address.
func listensAt(t *testing.T, addresses []string) (flags []string) {
	t.Helper()
	for _, address := range addresses {
		flags = append(flags, "--listen", "ofi:tcp://"+address+":"+strconv.Itoa(testenv.FreePort(t)))
	}
	return flags
}

func hostOfURI(t *testing.T, uri string) string {
	t.Helper()
	_, rest, _ := strings.Cut(uri, "//")
	host, _, err := net.SplitHostPort(strings.SplitN(rest, "/", 2)[0])
	if err != nil {
		t.Fatalf("%s: %v", uri, err)
	}
	return host
}

// appendByRails writes a stream by its name, and gives the URIs of the grant that it was written by.
func (b *hostBench) appendByRails(stream string, count int) (uris []string) {
	b.Helper()
	writer, err := farlog.OpenWriter(b.uri(stream), farlog.WriterOptions{Name: "rails"})
	if err != nil {
		b.Fatal(err)
	}
	b.append(writer, count, "record")
	writer.Close()
	for _, member := range b.cluster.Stream(stream).LastGrant.Members {
		uris = append(uris, member.Uri)
	}
	return uris
}

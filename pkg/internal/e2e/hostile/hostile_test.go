package hostile

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/internal/testenv"
	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
)

// Attacks in turn on one cluster; the neighbour appends all the while.
func TestHostile(t *testing.T) {
	testenv.SkipWhenShort(t)
	w := newWorld(t)
	w.attack("files are opened and locked", filesAreOpened)
	w.attack("counters are a FIFO, then cut off", countersAreHostile)
	w.attack("refusals flood the agent's log", refusalsFlood)
	w.attack("silent connections to the target", silentConnections)
	w.attack("garbage to every port", garbage)
	w.attack("forged records in one's own ring", forgedRecords)
	w.attack("bad writes to one's own ring", badWrites)
	w.attack("names of streams", hostileNames)
	w.attack("certificates of other kinds and authorities", foreignCertificates)
	w.attack("tokens and epochs that were not granted", foreignGrants)
	w.attack("bombs of YAML and protobuf", bombs)
	w.attack("2,000 connections", manyConnections)
	w.attack("flipped bits in a copy of the store", flippedBits)
	w.finish()
	changedSegment(w)
}

// scrape reads the metrics of a role.
func (w *world) scrape(role string) string {
	w.Helper()
	client := &http.Client{Timeout: testenv.Timeout}
	address := w.addresses[role]
	if !strings.Contains(address, "/") {
		address = "http://" + address + "/metrics"
	}
	response, err := client.Get(address)
	w.must(err)
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	w.must(err)
	return string(raw)
}

// Nobody opens a segment, a ring, a lock or a key, and so keeps no daemon from starting.
func filesAreOpened(w *world) {
	files := w.daemonFiles()
	if len(files) < 10 {
		w.Fatalf("only %d files: %v", len(files), files)
	}
	if could := w.nobodyDid("open", files...); len(could) != 0 {
		w.Errorf("nobody could: %v", could)
	}
	w.cluster.Drain.Kill()
	w.cluster.StartDrain()
	w.addresses = w.cluster.Metrics
}

// Counters of a ring whose writer has not come yet are what nobody made of them: agent and target answer, and the
// writer comes.
func countersAreHostile(w *world) {
	for i, attack := range []string{"fifo", "truncate"} {
		name := fmt.Sprintf("desk9/late-%d", i)
		w.cluster.CreateStream(name, "--size", "1MiB", "--record-len-max", "64KiB", "--level", "visible")
		ring := filepath.Join(w.path("target", "rings"), strings.ReplaceAll(name, "/", "%2F")+".ring")
		status, err := farlog.Inspect("mem:" + ring)
		w.must(err)
		path := "/dev/shm/farlog/" + hex.EncodeToString(status.RingUUID[:]) + ".counters"
		w.Cleanup(func() { os.Remove(path) })
		stop := func() {}
		if attack == "fifo" {
			w.nobodyDid(attack, path)
		} else {
			stop = w.nobodyKeepsDoing(attack, path)
		}
		writer := w.open(name)
		for range 20 {
			if _, err := writer.Append(farlog.Entry{Data: []byte("late")}, appendDeadline); err != nil {
				w.Errorf("%s: append: %v", attack, err)
			}
			w.scrape("host")
			w.scrape("target")
		}
		writer.Close()
		stop()
	}
}

// Whoever is refused a thousand times does not fill the disk with the agent's log.
func refusalsFlood(w *world) {
	before := len(w.agent.Log())
	said := w.nobodyDid("ask", w.socket)
	count, err := strconv.Atoi(said[0])
	w.must(err)
	if grown := len(w.agent.Log()) - before; grown > 16<<10 || count < 50 {
		w.Errorf("%d refusals are %d bytes of log", count, grown)
	}
	w.open(malloryName).Close()
}

// Whoever connects to a target's port and says nothing keeps nobody out.
func silentConnections(w *world) {
	address := ""
	for i, arg := range w.cluster.TargetArgs {
		if arg == "--listen" {
			_, address, _ = strings.Cut(w.cluster.TargetArgs[i+1], "//")
		}
	}
	stop := w.nobodyKeepsDoing("silent", "400", address)
	defer stop()
	writer := w.open(malloryName)
	defer writer.Close()
	if _, err := writer.Append(farlog.Entry{Data: []byte("beside")}, appendDeadline); err != nil {
		w.Error(err)
	}
}

// Bytes that are no protocol end no daemon.
func garbage(w *world) {
	listen := w.cluster.TargetArgs[len(w.cluster.TargetArgs)-1]
	_, target, _ := strings.Cut(listen, "//")
	places := []string{w.cluster.ControlAddress, target, w.socket}
	for _, url := range w.addresses {
		places = append(places, strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/metrics"))
	}
	w.nobodyDid("garbage", places...)
	w.open(malloryName).Close()
	for role := range w.addresses {
		if !strings.Contains(w.scrape(role), "farlog_build_info") {
			w.Errorf("%s has no metrics any more", role)
		}
	}
}

// Records that mallory forges in his own ring become GAPs, and the drain of others goes on.
func forgedRecords(w *world) {
	ring := filepath.Join(w.path("target", "rings"), strings.ReplaceAll(malloryName, "/", "%2F")+".ring")
	writer := w.open(malloryName)
	defer writer.Close()
	w.cluster.Drain.Pause()
	for _, text := range []string{"honest-1", "forged-record" + strings.Repeat("x", 200), "honest-2"} {
		if _, err := writer.Append(farlog.Entry{Data: []byte(text)}, appendDeadline); err != nil {
			w.Error(err)
		}
	}
	status, err := farlog.Inspect("mem:" + ring)
	w.must(err)
	forge(w, ring, record.Identity{Salt: status.Salt, Align: status.Align}, "forged-record",
		func(h *record.Header) { h.StreamID++ })
	w.cluster.Drain.Signal(syscall.SIGCONT)
	testenv.Until(w.T, "the forged record is refused", func() (bool, error) {
		return strings.Contains(w.scrape("drain"), `farlog_drain_forged_total{stream="`+malloryName+`"} 1`), nil
	})
	testenv.Until(w.T, "the status shows it", func() (bool, error) {
		shown, _, code := testenv.Run(w.T, "farlog", "status", malloryName, "--control", w.cluster.ControlAddress)
		return code != 0 && strings.Contains(shown, "forged records were refused"), nil
	})
	dump := testenv.MustRun(w.T, "farlog", "dump", w.cluster.StoreDir, "--stream", malloryName)
	for text, want := range map[string]bool{
		"honest-1": true, "honest-2": true, "why=refused cause=\"stream id": true, "forged-record": false,
	} {
		if strings.Contains(dump, text) != want {
			w.Errorf("%q is in the store: %v, expected %v: %s", text, !want, want, dump)
		}
	}
}

// Bytes that mallory writes over a record of his that was acknowledged and is not stored yet: his drain is blocked
// before it, and log, status and metrics say at which LSN and what to do; the drain of others goes on.
func badWrites(w *world) {
	const name = "mallory/bad"
	w.cluster.CreateStream(name, "--size", "1MiB", "--record-len-max", "64KiB", "--level", "visible")
	writer := w.open(name)
	defer writer.Close()
	w.cluster.Drain.Pause()
	for _, text := range []string{"honest", "overwritten" + strings.Repeat("x", 200), "behind"} {
		if _, err := writer.Append(farlog.Entry{Data: []byte(text)}, appendDeadline); err != nil {
			w.Error(err)
		}
	}
	ring := filepath.Join(w.path("target", "rings"), strings.ReplaceAll(name, "/", "%2F")+".ring")
	raw, err := os.ReadFile(ring)
	w.must(err)
	file, err := os.OpenFile(ring, os.O_WRONLY, 0)
	w.must(err)
	_, err = file.WriteAt(bytes.Repeat([]byte{0xbd}, 64), int64(bytes.Index(raw, []byte("overwritten"))))
	w.must(err)
	w.must(file.Close())
	w.cluster.Drain.Signal(syscall.SIGCONT)
	testenv.Until(w.T, "the metrics have the gap", func() (bool, error) {
		return strings.Contains(w.scrape("drain"), `farlog_drain_gap{stream="`+name+`"} 1`), nil
	})
	const text = "is unreadable although it was acknowledged"
	testenv.Until(w.T, "the status shows it", func() (bool, error) {
		shown, _, code := testenv.Run(w.T, "farlog", "status", name, "--output", "json", "--control",
			w.cluster.ControlAddress)
		return code != 0 && strings.Contains(shown, text), nil
	})
	if log := w.cluster.Drain.Log(); !strings.Contains(log, "level=ERROR") || !strings.Contains(log, text) ||
		!strings.Contains(log, "stream="+name) || !strings.Contains(log, "the record at lsn ") {
		w.Errorf("the drain's log: %s", log)
	}
	if dump := testenv.MustRun(w.T, "farlog", "dump", w.cluster.StoreDir, "--stream", name); strings.Contains(dump,
		"behind") || !strings.Contains(dump, "honest") {
		w.Errorf("the store has: %s", dump)
	}
}

// forge changes the record that begins with a text in a file, with a right checksum.
func forge(w *world, path string, id record.Identity, text string, change func(*record.Header)) {
	w.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	w.must(err)
	defer file.Close()
	raw, err := io.ReadAll(file)
	w.must(err)
	at := bytes.Index(raw, []byte(text)) - record.HeaderLen
	if at < 0 {
		w.Fatalf("%s has no %q", path, text)
	}
	rec, err := record.Decode(raw[at:], id)
	w.must(err)
	header, payload := rec.Header, bytes.Clone(rec.Payload)
	change(&header)
	made, err := record.AppendTo(nil, header, rec.Key, payload, id)
	w.must(err)
	_, err = file.WriteAt(made, int64(at))
	w.must(err)
}

func streamDir(storeDir, stream string) string {
	return filepath.Join(storeDir, "streams", strings.ReplaceAll(stream, "/", "%2F"))
}

// sealSegment appends more to mallory's stream than a segment holds, and waits until all of it is stored.
func sealSegment(w *world) {
	writer := w.open(malloryName)
	for i := range 1200 {
		text := fmt.Sprintf("sealed-%04d-%s", i, strings.Repeat("x", 1000))
		if _, err := writer.Append(farlog.Entry{Data: []byte(text)}, appendDeadline); err != nil {
			w.Fatal(err)
		}
	}
	writer.Close()
	testenv.Until(w.T, "all is stored", func() (bool, error) {
		dump := testenv.MustRun(w.T, "farlog", "dump", w.cluster.StoreDir, "--stream", malloryName)
		return strings.Contains(dump, "sealed-1199-"), nil
	})
}

// A record of a sealed segment is changed while its manifest is away: verification finds it, and the drain seals it
// never again.
func changedSegment(w *world) {
	w.cluster.Drain.Stop()
	manifests, err := filepath.Glob(filepath.Join(streamDir(w.cluster.StoreDir, malloryName), "*.json"))
	if w.must(err); len(manifests) == 0 {
		w.Fatal("no segment is sealed")
	}
	last := manifests[len(manifests)-1]
	segment := strings.TrimSuffix(last, ".json") + ".seg"
	testenv.MustRun(w.T, "farlog", "verify", w.cluster.StoreDir)
	w.must(os.Remove(last))
	w.must(os.Chmod(segment, 0o640))
	opened, err := store.Open(w.cluster.StoreDir, store.Options{})
	w.must(err)
	reader, err := opened.OpenReader(malloryName, store.ReaderOptions{})
	w.must(err)
	one := reader.Generations()[0]
	reader.Close()
	forge(w, segment, record.Identity{Salt: one.Salt, Align: one.Align}, "sealed-0",
		func(h *record.Header) { h.Class = 77 })
	_, talk, code := testenv.Run(w.T, "farlog", "verify", w.cluster.StoreDir, "--stream", malloryName)
	if code == 0 {
		w.Error("verify finds nothing before the drain starts")
	}
	w.Logf("verify: %s", talk)
	w.cluster.StartDrain()
	deadline := time.Now().Add(3 * time.Second)
	for ; time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if _, err := os.Stat(last); err == nil {
			w.Fatal("the drain has sealed the changed segment")
		}
	}
	if _, _, code := testenv.Run(w.T, "farlog", "verify", w.cluster.StoreDir, "--stream", malloryName); code == 0 {
		w.Error("verify finds nothing after the drain has started")
	}
}

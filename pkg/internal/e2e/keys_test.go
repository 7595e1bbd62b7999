package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/internal/testenv"
)

// keyLeast tells a key that is drawn from one that is counted, which might be found in any log.
const keyLeast = 1 << 20

// eavesdropper passes the connections of one target on and listens to what goes by.
type eavesdropper struct {
	address  string
	mutex    sync.Mutex
	received bytes.Buffer
}

func listenBetween(t *testing.T, target string) *eavesdropper {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	e := &eavesdropper{address: listener.Addr().String()}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				client.Close()
				continue
			}
			go e.pass(server, client)
			go e.pass(client, server)
		}
	}()
	return e
}

func (e *eavesdropper) pass(to, from net.Conn) {
	_, _ = io.Copy(to, io.TeeReader(from, e)) // it ends when one of them does
	to.Close()
	from.Close()
}

// Write implements io.Writer.
func (e *eavesdropper) Write(raw []byte) (int, error) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	return e.received.Write(raw)
}

// keys are those in the welcomes that went by: docs/reference/format.md, section 7.
func (e *eavesdropper) keys() (keys []uint64) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	for rest := e.received.Bytes(); ; {
		at := bytes.Index(rest, []byte("FLGW"))
		if at < 0 || len(rest) < at+40 {
			return keys
		}
		for _, off := range []int{16, 24, 32} {
			if key := binary.LittleEndian.Uint64(rest[at+off:]); key != 0 {
				keys = append(keys, key)
			}
		}
		rest = rest[at+40:]
	}
}

// What this proves, and how. A writer of another host comes by way of somebody who listens, so that the test knows the
// keys by which the target's memory is written. With all daemons at their most talkative, the host agent too, and with
// writers that are let in, refused and fenced, no log has one of them, or the token.
func TestKeys_AreInNoLog(t *testing.T) {
	t.Parallel()
	cluster := testenv.PrepareRemoteCluster(t, testenv.MemoryDir(t), farHost, nil)
	cluster.LogLevel = "debug"
	cluster.Start()
	uri := cluster.CreateStream(streamName, "--size", "1MiB", "--level", "visible")
	grants := &badGrants{T: t, cluster: cluster, dir: t.TempDir()}
	var keys []uint64
	var tokens []string
	for range 2 { // the second fences the first
		grant := grants.grant(streamName)
		_, rest, _ := strings.Cut(grant.Ring, "//")
		address, _, _ := strings.Cut(rest, "/")
		between := listenBetween(t, address)
		appendVia(t, strings.Replace(grant.Ring, address, between.address, 1), grant)
		keys, tokens = append(keys, between.keys()...), append(tokens, grant.Token)
		grants.append("that was used", grant.Ring, grant, "the token has been used by another client already")
	}
	host := newHostBenchOn(t, cluster, "--log-level", "debug")
	byName := openWriter(t, newLedger(t, "Y"), "--ring", host.uri(streamName))
	cluster.Watch(byName.process)
	if err := byName.feedBurst(10); err != nil {
		t.Fatal(err)
	}
	byName.end(t)
	waitDrained(t, uri)
	cluster.Drain.Stop()
	drawn := slices.DeleteFunc(keys, func(key uint64) bool { return key < keyLeast })
	if len(drawn) < 4 {
		t.Fatalf("received %d keys that are long enough to be looked for: the test proves nothing", len(drawn))
	}
	for _, process := range []*testenv.Process{
		cluster.Control, cluster.Target, cluster.Drain, host.agent,
		byName.process,
	} {
		said := strings.ToLower(process.Log())
		if said == "" {
			t.Errorf("%s said nothing", process.Name)
		}
		for _, key := range drawn {
			for form, text := range keyForms(key) {
				if strings.Contains(said, strings.ToLower(text)) {
					t.Errorf("%s said a key of its memory, %s", process.Name, form)
				}
			}
		}
		for _, token := range tokens {
			if strings.Contains(said, token) {
				t.Errorf("%s said a token", process.Name)
			}
		}
	}
}

func keyForms(key uint64) map[string]string {
	raw := binary.LittleEndian.AppendUint64(nil, key)
	return map[string]string{
		"in decimal": fmt.Sprint(key), "in hexadecimal digits": fmt.Sprintf("%x", key),
		"as its bytes": hex.EncodeToString(raw), "in base64": base64.StdEncoding.EncodeToString(raw),
	}
}

func appendVia(t *testing.T, uri string, grant grantFile) {
	t.Helper()
	token, err := hex.DecodeString(grant.Token)
	if err != nil {
		t.Fatal(err)
	}
	writer, err := farlog.OpenWriter(uri, farlog.WriterOptions{
		Level: farlog.LevelVisible, Epoch: grant.Epoch,
		Token: (*[farlog.TokenLen]byte)(token), Deadline: 10 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if _, err := writer.Append(farlog.Entry{Data: []byte("order")}, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		t.Error(err)
	}
}

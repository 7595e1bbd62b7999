package target

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
)

// book plays a listener that refuses.
type book struct{ all []farlog.TargetRefusal }

func (b *book) refuse(peer, ring, text string) {
	b.all = append(b.all, farlog.TargetRefusal{
		Sequence: uint64(len(b.all) + 1), Peer: peer, Ring: ring, Text: text,
		IsUnauthenticated: true,
	})
}

func (b *book) read(after uint64) ([]farlog.TargetRefusal, uint64) {
	return b.all[max(int(after), len(b.all)-64):], uint64(len(b.all))
}

// A client that is refused tries again ten times a second, from another port each time: it is told of at once, and then
// once a minute with how often.
func TestRefusals_LoggedOnceAMinute(t *testing.T) {
	var out bytes.Buffer
	logger, kept := slog.New(slog.NewTextHandler(&out, nil)), new(book)
	r, now := newRefusals("ofi:tcp://0.0.0.0:7472", kept.read), time.Unix(1000, 0)
	for second := range 90 {
		for i := range 10 {
			kept.refuse(fmt.Sprintf("10.0.0.7:%d", 40000+10*second+i), "desk7/orders",
				"no grant with this token is known here")
		}
		if second == 30 {
			kept.refuse("10.0.0.8:555", "", "the connection request is not farlog's")
		}
		r.logNew(logger, now.Add(time.Duration(second)*time.Second))
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 {
		t.Fatalf("%d lines, expected 3:\n%s", len(lines), out.String())
	}
	for i, want := range []string{
		`peer=10.0.0.7:40000 ring=desk7/orders result=OK reason="no grant with this token is known here" repeated=0`,
		`peer=10.0.0.8:555 ring="" result=OK reason="the connection request is not farlog's" repeated=0`,
		`peer=10.0.0.7:40600 ring=desk7/orders result=OK reason="no grant with this token is known here" ` +
			`repeated=599`,
	} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("line %d is %q, expected it to have %q", i, lines[i], want)
		}
	}
}

// What a listener has forgotten, and what is of too many kinds, is counted.
func TestRefusals_TooMany(t *testing.T) {
	var out bytes.Buffer
	kept := new(book)
	r := newRefusals("ofi:tcp://0.0.0.0:7472", kept.read)
	for i := range 100 {
		kept.refuse(fmt.Sprintf("10.0.0.%d:1", i), "orders", "no")
	}
	r.logNew(slog.New(slog.NewTextHandler(&out, nil)), time.Unix(1000, 0))
	if lines := strings.Count(out.String(), "\n"); lines != refusalKinds {
		t.Errorf("%d lines of %d kinds", lines, refusalKinds)
	}
	if !strings.Contains(out.String(),
		"peer=10.0.0.36:1 ring=orders result=OK reason=no repeated=0 suppressed=36") {
		t.Errorf("what was forgotten is not told:\n%s", out.String())
	}
	out.Reset()
	r.logNew(slog.New(slog.NewTextHandler(&out, nil)), time.Unix(1000+60, 0)) // the kinds of a minute ago make space
	kept.refuse("10.1.0.1:1", "orders", "no")
	r.logNew(slog.New(slog.NewTextHandler(&out, nil)), time.Unix(1000+61, 0))
	if !strings.Contains(out.String(), "peer=10.1.0.1:1") || !strings.Contains(out.String(), "suppressed=32") {
		t.Errorf("after a minute:\n%s", out.String())
	}
}

// What the core writes down of a client without a grant reaches the log and the metric.
func TestRefusals_OfAListener(t *testing.T) {
	listener, err := farlog.OpenTarget("ofi:tcp://127.0.0.1:0")
	if errors.Is(err, farlog.ErrUnsupported) {
		t.Skipf("no libfabric: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, err = farlog.OpenReader(listener.URI()+"/desk7/orders",
		farlog.ReaderOptions{Drain: true, Token: &[farlog.TokenLen]byte{7}})
	if !errors.Is(err, farlog.ErrInvalid) {
		t.Fatalf("opened with a token that nobody drew: %v", err)
	}
	var out bytes.Buffer
	one := &Target{remote: &remoteServer{
		listeners: []*farlog.Target{listener},
		refusals:  []*refusals{newRefusals(listener.URI(), listener.Refusals)},
	}}
	one.remote.logRefusals(slog.New(slog.NewTextHandler(&out, nil)), time.Now())
	for _, want := range []string{
		`msg="client rejected"`, "peer=127.0.0.1:", `ring="not served here`,
		"result=INVALID", "no grant with this token is known here",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log has %q, expected %q in it", out.String(), want)
		}
	}
	if one.Unauthenticated()["ofi"].Refused == 0 {
		t.Error("nobody was counted")
	}
}

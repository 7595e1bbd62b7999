package export

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

func TestMain(m *testing.M) {
	if os.Getenv(killVariable) != "" {
		os.Exit(exportAndDie())
	}
	goleak.VerifyTestMain(m)
}

var start = time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)

// message is a FIX message with the right length and check sum.
func message(fields ...string) []byte {
	body := strings.Join(fields, "\x01") + "\x01"
	raw := fmt.Sprintf("8=FIX.4.4\x019=%d\x01%s", len(body), body)
	sum := 0
	for _, b := range []byte(raw) {
		sum += int(b)
	}
	return fmt.Appendf(nil, "%s10=%03d\x01", raw, sum%256)
}

// newStore has two streams: orders as FIX, one a second, of two accounts, with GAP records, a clock that goes back, and
// a second writer; and random records. The last segment of each is not sealed.
func newStore(t *testing.T, dir string) *store.Store {
	t.Helper()
	s, err := store.Open(dir, store.Options{
		Create: true, SegmentBytes: store.SegmentBytesMin, IsSynchronous: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	orders := storetest.NewRing("desk7/orders", 1)
	for i := range 400 {
		orders.SetClock(start.Add(time.Duration(i) * time.Second))
		switch i {
		case 150:
			orders.OpenEpoch()
		case 160:
			orders.AppendGap("it was forged")
		case 170:
			orders.SetClock(start.Add(165 * time.Second))
		}
		orders.AppendPayload(message(
			"35=D",
			fmt.Sprintf("1=ACC-%d", i%2),
			fmt.Sprintf("11=ORD-%d", i),
			"55=BMW",
			"54=1",
			"38=100",
			fmt.Sprintf("60=%s", start.Add(time.Duration(i)*time.Second).Format("20060102-15:04:05.000")),
		))
	}
	other := storetest.NewRing("desk7/other", 2)
	other.SetClock(start.Add(time.Hour))
	other.Append(300, 600)
	for _, ring := range []*storetest.Ring{orders, other} {
		appender, err := s.OpenStream(ring.Source)
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range ring.Records {
			if _, _, err := appender.Append(rec.Raw); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(appender.Sync(), appender.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func newMapping(t *testing.T, text string) *Mapping {
	t.Helper()
	m, err := ParseMapping("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

const ordersMapping = `
format: farlog-profile
name: orders
version: 3
rows: records
where: text.startsWith('8=FIX')
fields:
- {name: At, source: record.time, required: true, form: utc-us}
- {name: Firm, source: constant, required: true}
- {name: Order, source: fix.11, required: true}
- {name: Side, source: fix.54, values: {"1": BUYI, "2": SELL}}
- {name: Sent, source: fix.60, form: utc-us}
- {name: Price, source: fix.44}
- {name: Framing, source: fix.check}
`

// options ask for the orders of an account in a minute and a half.
func options(t *testing.T) Options {
	t.Helper()
	return Options{
		Request: Request{
			Streams: []string{"desk7/*"}, From: "2026-11-20T14:02:20Z", To: "2026-11-20T14:03:50Z",
			Filter: "stream == 'desk7/orders' && fix['1'] == 'ACC-1'",
		},
		Mapping: newMapping(t, ordersMapping), Constants: map[string]string{"Firm": "LEI-1"},
		MadeBy: "J. Doe", Why: "inquiry 2026-17", Program: "test", Source: "store",
	}
}

// bundle makes a signed bundle of a store that is gone afterwards, and gives the keys to trust.
func bundle(t *testing.T) (dir string, trust VerifyOptions) {
	t.Helper()
	source := newStore(t, filepath.Join(t.TempDir(), "store"))
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	o := options(t)
	o.Key = private
	dir = filepath.Join(t.TempDir(), "bundle")
	if _, err := Export(t.Context(), source, dir, o); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(source.Dir()); err != nil {
		t.Fatal(err)
	}
	return dir, VerifyOptions{StoreKeys: source.Keys(), ExporterKeys: []ed25519.PublicKey{public}}
}

// expectFailure verifies, and looks for what is found.
func expectFailure(t *testing.T, what, dir string, trust VerifyOptions, want ...string) {
	t.Helper()
	report, err := Verify(t.Context(), dir, trust)
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	all := strings.Join(report.Failures, "\n")
	for _, one := range want {
		if !strings.Contains(all, one) {
			t.Errorf("%s: failures are\n%s\nexpected %q among them", what, all, one)
		}
	}
	if report.OK() {
		t.Errorf("%s: it verifies", what)
	}
}

// edit changes a file of a bundle.
func edit(t *testing.T, dir, name string, change func(raw []byte) []byte) {
	t.Helper()
	full := filepath.Join(dir, filepath.FromSlash(name))
	raw, err := os.ReadFile(full)
	if err == nil {
		err = errors.Join(os.Chmod(full, 0o600), os.WriteFile(full, change(raw), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// rehash makes bundle.json and seal.json what the files are, as somebody does who has changed them and has no key of
// the exporter, or his own.
func rehash(t *testing.T, dir string, key ed25519.PrivateKey, change func(*Bundle)) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, BundleFile))
	if err != nil {
		t.Fatal(err)
	}
	var b Bundle
	if err := decode(raw, &b); err != nil {
		t.Fatal(err)
	}
	o := Options{Progress: func(Progress) {}}
	if b.Files, err = o.hash(context.Background(), dir); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&b)
	}
	if raw, err = encode(b); err != nil {
		t.Fatal(err)
	}
	sealed, err := encode(newSeal(raw, key))
	if err != nil {
		t.Fatal(err)
	}
	edit(t, dir, BundleFile, func([]byte) []byte { return raw })
	edit(t, dir, SealFile, func([]byte) []byte { return sealed })
}

// copyOf copies a bundle.
func copyOf(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "bundle")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// lines of a file without a part of them.
func without(part string) func(raw []byte) []byte {
	return func(raw []byte) []byte {
		return slices.Concat(slices.DeleteFunc(slices.Collect(bytes.Lines(raw)), func(line []byte) bool {
			return bytes.Contains(line, []byte(part))
		})...)
	}
}

// forge changes a record in a segment and makes its CRC right, as somebody does who knows the format.
func forge(t *testing.T, dir, name string, from, to string) {
	t.Helper()
	edit(t, dir, name, func(raw []byte) []byte {
		at := bytes.Index(raw, []byte(from))
		if at < 0 {
			t.Fatalf("%s does not have %q", name, from)
		}
		begin := bytes.LastIndex(raw[:at], []byte("FLG1"))
		copy(raw[at:], to)
		h, err := record.ParseHeader(raw[begin:])
		if err != nil {
			t.Fatal(err)
		}
		salt := uint32(raw[48]) | uint32(raw[49])<<8 | uint32(raw[50])<<16 | uint32(raw[51])<<24
		crc := record.CRC32C(salt, raw[begin:begin+52])
		crc = record.CRC32C(crc, raw[begin+56:begin+56+int(h.KeyLen)+int(h.PayloadLen)])
		for i := range 4 {
			raw[begin+52+i] = byte(crc >> (8 * i))
		}
		return raw
	})
}

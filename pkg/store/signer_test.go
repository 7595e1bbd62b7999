package store_test

import (
	"crypto/ed25519"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

var errNoAnswer = errors.New("the module does not answer")

// module is a signer that has its key elsewhere, and that fails when a test says so.
type module struct {
	key   ed25519.PrivateKey
	signs ed25519.PrivateKey // in place of key; nil = key
	err   error
	left  int // signatures until it fails; 0 = any number
	asks  int
}

func newModule() *module {
	return &module{key: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))}
}

func (m *module) Public() ed25519.PublicKey { return m.key.Public().(ed25519.PublicKey) }

func (m *module) Sign(statement []byte) ([]byte, error) {
	m.asks++
	if m.err != nil {
		return nil, m.err
	}
	if m.left--; m.left == 0 {
		m.err = errNoAnswer
	}
	if m.signs != nil {
		return ed25519.Sign(m.signs, statement), nil
	}
	return ed25519.Sign(m.key, statement), nil
}

// signedFixture is a fixture whose store is signed by a module, with a clock of its own.
type signedFixture struct {
	fixture
	module *module
	now    time.Time
	synced uint64 // the next lsn behind what was synced
}

func newSignedFixture(t *testing.T, seed uint64) *signedFixture {
	t.Helper()
	return &signedFixture{
		fixture: fixture{t: t, fs: storetest.NewCrashFS(seed), ring: storetest.NewRing(testStream, 1)},
		module:  newModule(), now: time.Unix(1_700_000_000, 0),
	}
}

func (f *signedFixture) signed() store.Options {
	options := f.options()
	options.Signer, options.Now = f.module, func() time.Time { return f.now }
	return options
}

func (f *signedFixture) segments() []string {
	f.t.Helper()
	names, err := f.fs.ReadDir(strings.TrimSuffix(streamPath, "/"))
	if err != nil {
		f.t.Fatal(err)
	}
	var segments []string
	for _, name := range names {
		if strings.HasSuffix(name, ".seg") {
			segments = append(segments, name)
		}
	}
	return segments
}

// count is of what was appended, PADs left out.
func (f *signedFixture) count() (count uint64) {
	for _, rec := range f.given {
		if !rec.Flags.IsPad() {
			count++
		}
	}
	return count
}

// The key of a signer is nowhere in the store, and what it signs verifies; a signature of another key does not get in.
func TestSigner_SignsInPlaceOfAKey(t *testing.T) {
	f := newSignedFixture(t, 1)
	f.openWith(f.signed())
	if f.isThere(insideKey) || f.keys() != nil {
		t.Error("a private key was made")
	}
	f.fillAndVerify("by a module", 0)
	if f.module.asks == 0 {
		t.Fatal("the module was never asked")
	}
	f.openWith(f.signed())
	other := newModule()
	other.key = ed25519.NewKeyFromSeed(append(make([]byte, ed25519.SeedSize-1), 1))
	f.module.signs = other.key
	if _, err := f.store.Sign([]byte("statement")); !errors.Is(err, store.ErrSigning) ||
		!errors.Is(err, store.ErrInvalid) {
		t.Errorf("by another key: %v", err)
	}
}

// A signer that fails does not stop the appender: the active segment grows, whatever is appended is stored, and when
// the signer answers again the segments are sealed.
func TestSigner_FailingDoesNotStopTheAppender(t *testing.T) {
	f := newSignedFixture(t, 1)
	f.openWith(f.signed())
	f.ring.Append(100, 600)
	f.feed()
	before := len(f.segments())
	f.module.err = errNoAnswer
	f.ring.Append(400, 600) // 240 KiB: many segments
	f.feed()
	if after := len(f.segments()); after > before+1 { // the one that was prepared
		t.Errorf("%d segments, %d before the signer failed", after, before)
	}
	if err := f.store.SigningFailure(); !errors.Is(err, store.ErrSigning) || !errors.Is(err, errNoAnswer) {
		t.Errorf("failure %v", err)
	}
	asked := f.module.asks
	f.ring.Append(100, 600)
	f.feed()
	if f.module.asks != asked {
		t.Errorf("asked %d times within the pause", f.module.asks-asked)
	}
	f.now, f.module.err = f.now.Add(time.Minute), nil
	f.ring.Append(100, 600)
	f.feed()
	if err := f.store.SigningFailure(); err != nil || len(f.segments()) < before+2 {
		t.Errorf("%v, %d segments", err, len(f.segments()))
	}
	f.close()
	if report := f.verify(); report.Failure != nil || report.Records+report.ControlRecords != f.count() {
		t.Errorf("%d records, expected %d; %s", report.Records, f.count(), report.Statement())
	}
}

// A segment whose manifest got no signature is sealed when the signer answers again, by a sync alone; a stream opens
// while it does not.
func TestSigner_SealsLater(t *testing.T) {
	f := newSignedFixture(t, 1)
	f.openWith(f.signed())
	for f.module.left = 2; f.module.err == nil; { // the header of the first segment, and that of the second
		f.ring.Append(1, 600)
		f.feed()
	}
	name := streamPath + "0000000001.json"
	if err := f.app.Close(); !errors.Is(err, store.ErrSigning) || f.isThere(name) {
		t.Fatalf("%v, sealed %v", err, f.isThere(name))
	}
	f.openWith(f.signed())
	f.ring.Append(1, 600)
	f.feed()
	if f.isThere(name) {
		t.Fatal("a manifest that nobody signed")
	}
	f.module.err, f.now = nil, f.now.Add(time.Minute)
	if err := f.app.Sync(); err != nil || !f.isThere(name) {
		t.Errorf("%v, sealed %v", err, f.isThere(name))
	}
	f.close()
	if report := f.verify(); report.Failure != nil {
		t.Error(report.Statement())
	}
}

// A power cut at each operation while segments grow for want of a signature: what was synced is there, and the next
// appender goes on, with the signer or without.
func TestSigner_CrashAtEachOperationWhileSegmentsGrow(t *testing.T) {
	for after := 0; ; after++ {
		f := newSignedFixture(t, uint64(after))
		f.openWith(f.signed())
		f.ring.Append(30, 600)
		f.feed()
		f.fs.CrashAfter(after)
		isCrashed := f.storeWhileSignerFails()
		f.fs.Crash()
		f.module.err, f.now = nil, f.now.Add(time.Hour)
		if after%2 == 0 {
			f.module.err = errNoAnswer
		}
		options := f.signed()
		if after%4 == 0 {
			options.SegmentBytes *= 2 // a spare of the size before is of no use
		}
		f.openWith(options)
		if next := f.app.Last().NextLSN; next < f.synced {
			t.Fatalf("operation %d: the store ends at lsn %d, %d was synced", after, next, f.synced)
		}
		f.ring.Append(30, 600)
		if _, _, err := f.app.Append(storetest.Batch(f.ring.Records[:1])); !errors.Is(err, store.ErrSigning) {
			f.feed() // else the newest segment had a header and no record: it waits
		}
		f.module.err, f.now = nil, f.now.Add(time.Hour)
		f.ring.Append(30, 600)
		f.fillAndVerify("grow", after)
		if !isCrashed {
			return
		}
	}
}

// storeWhileSignerFails appends and syncs while the signer fails, then answers, then fails; isCrashed: until the power
// was cut.
func (f *signedFixture) storeWhileSignerFails() (isCrashed bool) {
	for i := range 30 {
		f.now = f.now.Add(10 * time.Second)
		f.module.err = nil
		if i/10 != 1 {
			f.module.err = errNoAnswer
		}
		f.ring.Append(5, 600)
		_, _, err := f.app.Append(storetest.Batch(f.ring.Records))
		if err == nil {
			err = f.app.Sync()
		}
		if f.fs.IsCrashed() {
			return true
		}
		if err != nil {
			f.t.Fatal(err)
		}
		f.given = append(f.given, f.ring.Records...)
		f.synced = f.ring.NextLSN()
		f.ring.Release(f.synced)
	}
	return false
}

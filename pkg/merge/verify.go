package merge

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"time"

	"github.com/farlog/farlog/pkg/store"
)

// Report is what Verify found of a merged order.
type Report struct {
	Files       uint64         `json:"files"`
	Checkpoints uint64         `json:"checkpoints"` // signed
	Entries     uint64         `json:"entries"`
	Late        uint64         `json:"late"`
	Early       uint64         `json:"early"`
	Removed     uint64         `json:"removed,omitempty"` // entries whose records retention has removed
	Streams     int            `json:"streams"`
	FirstTime   time.Time      `json:"first_time"`
	LastTime    time.Time      `json:"last_time"`
	Failure     *store.Failure `json:"failure,omitempty"`
}

// Statement says in one sentence what was proved, or where it fails.
func (r Report) Statement() string {
	if r.Failure != nil {
		return "FAILED at " + r.Failure.String()
	}
	text := fmt.Sprintf("%d entries of %d streams are what the records and the decisions about late ones give, byte "+
		"for byte", r.Entries, r.Streams)
	if r.Removed > 0 {
		text += fmt.Sprintf("; the records of %d entries were removed: what lies before the last of them is proved by "+
			"the signed segments of the order alone", r.Removed)
	}
	return text
}

// Verify makes the order of a store again from its records and the decisions, and compares it with the one that is
// there, byte for byte; it checks the signatures of the segments. nil: the store has none. key, when not nil, is
// trusted instead of the store's own. It may run beside a merge and then speaks of what had been ordered when it began.
// Damage is in the report; the error is for what could not be read.
func Verify(ctx context.Context, s *store.Store, keys []ed25519.PublicKey) (*Report, error) {
	v := &verifier{ctx: ctx, store: s, dir: path.Join(s.Dir(), dirName)}
	err := v.run(keys)
	_ = v.core.close() // only read
	if v.report.Files == 0 && (errors.Is(err, store.ErrNotFound) || errors.Is(err, fs.ErrNotExist)) {
		return nil, nil
	}
	var damage *store.CorruptError
	if errors.As(err, &damage) {
		v.report.Failure = &store.Failure{
			Segment: path.Base(damage.Path), LSN: damage.LSN, Offset: damage.Offset,
			Reason: damage.Err.Error(),
		}
		err = nil
	}
	return &v.report, err
}

type verifier struct {
	ctx   context.Context
	store *store.Store
	dir   string

	core
	*encoder // of what the records give
	bases    map[string]*store.Base
	report   Report
}

func (v *verifier) run(keys []ed25519.PublicKey) error {
	at, err := openOrder(v.store, v.dir, SegmentBytesDefault)
	if err != nil {
		return err
	}
	report, err := at.store.Verify(v.ctx, store.VerifyOptions{Stream: orderStream, PublicKeys: keys})
	if err != nil {
		return err
	}
	stream := report.Streams[0]
	v.report.Files, v.report.Checkpoints = uint64(stream.Segments), uint64(stream.SealedSegments)
	if stream.Failure != nil {
		v.report.Failure = stream.Failure
		return nil
	}
	end, err := at.end()
	if err != nil {
		return err
	}
	v.encoder = newEncoder(at.store, at.segmentBytes)
	reader, err := at.read()
	if err != nil {
		return err
	}
	defer reader.Close()
	if v.report.Removed, err = v.passRemoved(reader, end); err != nil {
		return err
	}
	if err := v.openSources(end); err != nil {
		return err
	}
	return v.compare(at, reader, end)
}

// openSources opens the streams that are in the order, each up to its last record there.
func (v *verifier) openSources(end *encoder) error {
	decided, err := openDecisions(v.store.FS(), v.dir, true)
	if err != nil {
		return err
	}
	defer decided.close()
	for name, of := range end.streams {
		if of.last.Generation == 0 {
			continue
		}
		s, err := v.openBehindBase(v.info(name), decided.of(name))
		if errors.Is(err, store.ErrNotFound) {
			return &store.CorruptError{Path: v.dir, Err: fmt.Errorf("stream %s is in the order and not in the store",
				name)}
		}
		if err != nil {
			return err
		}
		s.until = of.last.Place
		v.sources = append(v.sources, s)
	}
	v.seed()
	for _, s := range v.sources {
		if err := v.pullOrEnd(s); err != nil {
			return err
		}
	}
	v.report.Streams = len(v.sources)
	return nil
}

// pullOrEnd: a stream that is at its end in the order is not waited for.
func (v *verifier) pullOrEnd(s *source) error {
	if err := v.refill(s); err != nil {
		return err
	}
	if s.state != stateReady {
		s.state = stateAbsent
		v.tree.set(s.rank, never)
	}
	return nil
}

// compare makes the records of the order again, up to where it ended when it was looked at.
func (v *verifier) compare(at order, reader *store.Reader, end *encoder) error {
	var want []byte
	for v.cursor.LSN < end.cursor.LSN {
		if err := v.ctx.Err(); err != nil {
			return err
		}
		item, err := reader.Next()
		if errors.Is(err, io.EOF) {
			err = &store.CorruptError{Path: v.dir, LSN: v.cursor.LSN, Err: errors.New("order ends before its end")}
		}
		if err != nil {
			return err
		}
		if v.isFull() {
			if want, err = v.begin(want[:0]); err != nil {
				return err
			}
			if !bytes.Equal(item.Raw, want) {
				return at.damaged(&item, errors.New("positions at the begin of the segment are not those that the "+
					"records and decisions give"))
			}
			continue
		}
		if want, err = v.checkEntry(at, &item, want[:0]); err != nil {
			return err
		}
	}
	return nil
}

// checkEntry compares a record of the order with the entry that comes next.
func (v *verifier) checkEntry(at order, item *store.Item, want []byte) ([]byte, error) {
	s, err := v.core.next()
	if err != nil {
		return want, at.damaged(item, err)
	}
	if s == nil {
		return want, at.damaged(item, fmt.Errorf("entry %d: the streams have no further record for it", v.nextIndex))
	}
	if want, err = v.encoder.add(want, &s.head, s.info); err != nil {
		return want, err
	}
	if !bytes.Equal(item.Raw, want) {
		return want, v.differs(at, item, &s.head)
	}
	v.count(&s.head)
	return want, v.pullOrEnd(s)
}

func (v *verifier) count(e *Entry) {
	r := &v.report
	r.Entries++
	if e.Flags&FlagLate != 0 {
		r.Late++
	}
	if e.Flags&FlagEarly != 0 {
		r.Early++
	}
	r.LastTime = time.Unix(0, int64(e.OrderNS)).UTC()
	if r.FirstTime.IsZero() {
		r.FirstTime = r.LastTime
	}
}

// differs says what stands where the given entry should.
func (v *verifier) differs(at order, item *store.Item, want *Entry) error {
	found := "a record that is no entry"
	if got, err := decodeEntry(&item.Record); err == nil && !isPositions(item) {
		found = fmt.Sprintf("stream %s at %s, order time %d", got.Stream, got.Place, got.OrderNS)
	}
	return at.damaged(item, fmt.Errorf("entry %d is %s; the records and decisions give stream %s at %s, order time %d",
		v.nextIndex-1, found, want.Stream, want.Place, want.OrderNS))
}

// Remove takes the order away, to be made again from the records and the decisions, which stay. It is for an order that
// is damaged: what had been given out of it comes again in the same order, as long as every stream is there. Errors:
// store.ErrLocked, store.ErrRemoved.
func Remove(s *store.Store) error {
	if err := checkWhole(s); err != nil {
		return err
	}
	fsys, dir := s.FS(), path.Join(s.Dir(), dirName)
	lock, err := fsys.Lock(path.Join(dir, "lock"), fmt.Sprintf("the merge of process %d", os.Getpid()))
	if err != nil {
		return fmt.Errorf("remove merged order %s: %w", dir, err)
	}
	defer lock.Close()
	return s.Derived(dir, store.SegmentBytesMin).RemoveSegments(orderStream, 0)
}

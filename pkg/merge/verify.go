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
	"reflect"
	"strconv"
	"strings"
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
	return fmt.Sprintf("%d entries of %d streams are what the records and the decisions about late ones give, byte "+
		"for byte", r.Entries, r.Streams)
}

// Verify makes the order of a store again from its records and the decisions, and compares it with the one that is
// there, byte for byte; it checks the signatures of the checkpoints. nil: the store has none. key, when not nil, is
// trusted instead of the store's own. It may run beside a merge and then speaks of what had been ordered when it began.
// Damage is in the report; the error is for what could not be read.
func Verify(ctx context.Context, s *store.Store, key ed25519.PublicKey) (*Report, error) {
	if key == nil {
		key = s.PublicKey()
	}
	v := &verifier{ctx: ctx, store: s, fsys: s.FS(), dir: path.Join(s.Dir(), dirName), key: key}
	err := v.run()
	_ = v.core.close() // only read
	if errors.Is(err, fs.ErrNotExist) && v.report.Files == 0 {
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
	fsys  store.FS
	dir   string
	key   ed25519.PublicKey

	core
	*encoder // of what the records give
	report   Report
}

func (v *verifier) run() error {
	found, err := listFiles(v.fsys, v.dir)
	if err != nil {
		return err
	}
	if err := found.check(v.dir); err != nil {
		return err
	}
	v.report.Files, v.report.Checkpoints = found.orders, found.checkpoints
	if found.orders == 0 {
		return nil
	}
	end, err := v.findEnd(found)
	if err != nil {
		return err
	}
	v.encoder = newEncoder(end.header.slotsMax)
	if err := v.openSources(end); err != nil {
		return err
	}
	for number := uint64(1); number <= found.orders; number++ {
		if err := v.checkFile(number, end); err != nil {
			return err
		}
	}
	return nil
}

// findEnd learns where each stream ends in the order. What the merge has put behind that since is not looked at.
func (v *verifier) findEnd(found files) (*encoder, error) {
	end := newEncoder(0)
	if found.checkpoints > 0 {
		c, err := loadCheckpoint(v.fsys, v.dir, found.checkpoints, v.key)
		if err != nil {
			return nil, err
		}
		if end, err = c.resume(); err != nil {
			return nil, &store.CorruptError{Path: fileName(v.dir, found.checkpoints, checkpointSuffix), Err: err}
		}
	}
	if found.orders == found.checkpoints {
		return end, nil
	}
	h, m, raw, err := v.readFile(found.orders)
	if err != nil {
		return nil, err
	}
	if found.orders == 1 {
		end.begin(h)
	}
	used, err := end.takeSlots(raw)
	if uint64(end.slots) < m.slots {
		return nil, &store.CorruptError{
			Path:   fileName(v.dir, found.orders, orderSuffix),
			Offset: int64(orderDataOff + used), Err: err,
		}
	}
	return end, nil
}

func (v *verifier) readFile(number uint64) (h orderHeader, m mark, slots []byte, err error) {
	name := fileName(v.dir, number, orderSuffix)
	raw, err := readWhole(v.fsys, name, 1<<40)
	if err != nil {
		return h, m, nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(raw) < orderDataOff {
		return h, m, nil, &store.CorruptError{Path: name, Err: io.ErrUnexpectedEOF}
	}
	if h, err = decodeOrderHeader(raw); err != nil {
		return h, m, nil, &store.CorruptError{Path: name, Err: err}
	}
	return h, decodeMarks(raw), raw[orderDataOff:], nil
}

// openSources opens the streams that are in the order, each up to its last record there.
func (v *verifier) openSources(end *encoder) error {
	decided, err := openDecisions(v.fsys, v.dir, true)
	if err != nil {
		return err
	}
	defer decided.close()
	for name, of := range end.streams {
		if of.last.Generation == 0 {
			continue
		}
		s, err := openSource(v.store, v.info(name), decided.of(name))
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

// checkFile makes one file again and compares.
func (v *verifier) checkFile(number uint64, end *encoder) error {
	name := fileName(v.dir, number, orderSuffix)
	h, _, raw, err := v.readFile(number)
	if err != nil {
		return err
	}
	if h != v.header {
		return &store.CorruptError{Path: name, Err: fmt.Errorf("header does not continue file %d", number-1)}
	}
	isLast := number == end.header.number
	if isLast {
		raw = raw[:min(len(raw), int(end.slots)*slotLen)]
	}
	var slots []byte
	at := 0
	for len(raw)-at > 0 {
		if err := v.ctx.Err(); err != nil {
			return err
		}
		s, err := v.core.next()
		if err != nil {
			return &store.CorruptError{Path: name, Offset: int64(orderDataOff + at), Err: err}
		}
		if s == nil {
			return &store.CorruptError{
				Path: name, Offset: int64(orderDataOff + at),
				Err: fmt.Errorf("entry %d: the streams have no further record for it", v.nextIndex),
			}
		}
		if v.isFull(s.info) {
			return &store.CorruptError{
				Path: name, Offset: int64(orderDataOff + at),
				Err: fmt.Errorf("file is longer than its %d slots", h.slotsMax),
			}
		}
		slots = v.encoder.add(slots[:0], &s.head, s.info)
		if !bytes.HasPrefix(raw[at:], slots) {
			return v.differs(name, at, raw[at:], &s.head)
		}
		v.hash(slots)
		at += len(slots)
		v.count(&s.head)
		if err := v.pullOrEnd(s); err != nil {
			return err
		}
	}
	if isLast {
		return nil
	}
	return v.checkCheckpoint(number)
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
func (v *verifier) differs(name string, at int, raw []byte, want *Entry) error {
	found := "bytes that are no entry"
	names := make(table, v.names)
	for n, of := range v.streams {
		if of.file == v.header.number {
			names[of.number-1] = n
		}
	}
	if got, isName, _, err := names.decode(raw, v.slots-1); err == nil && !isName {
		found = fmt.Sprintf("stream %s at %s, order time %d", got.Stream, got.Place, got.OrderNS)
	}
	return &store.CorruptError{Path: name, LSN: want.LSN, Offset: int64(orderDataOff + at), Err: fmt.Errorf(
		"entry %d is %s; the records and decisions give stream %s at %s, order time %d", v.nextIndex-1, found,
		want.Stream, want.Place, want.OrderNS)}
}

func (v *verifier) checkCheckpoint(number uint64) error {
	c, err := loadCheckpoint(v.fsys, v.dir, number, v.key)
	if err != nil {
		return err
	}
	if want := v.checkpoint(); !reflect.DeepEqual(c, want) {
		return &store.CorruptError{
			Path: fileName(v.dir, number, checkpointSuffix),
			Err:  errors.New("checkpoint does not describe its file"),
		}
	}
	v.encoder.next()
	return nil
}

// Remove takes the order away, to be made again from the records and the decisions, which stay. It is for an order that
// is damaged: what had been given out of it comes again in the same order, as long as every stream is there. Errors:
// store.ErrLocked.
func Remove(s *store.Store) error {
	fsys, dir := s.FS(), path.Join(s.Dir(), dirName)
	lock, err := fsys.Lock(path.Join(dir, "lock"), fmt.Sprintf("the merge of process %d", os.Getpid()))
	if err != nil {
		return fmt.Errorf("remove merged order %s: %w", dir, err)
	}
	defer lock.Close()
	return removeOrder(fsys, dir, files{})
}

// removeOrder takes away the files behind those that stay.
func removeOrder(fsys store.FS, dir string, staying files) error {
	names, err := fsys.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list %s: %w", dir, err)
	}
	for i := len(names) - 1; i >= 0; i-- { // from the end, so that no crash leaves a hole
		suffix := path.Ext(names[i])
		number, err := strconv.ParseUint(strings.TrimSuffix(names[i], suffix), 10, 64)
		if err == nil && (suffix == orderSuffix && number > staying.orders || suffix == checkpointSuffix &&
			number > staying.checkpoints) {
			if err := fsys.Remove(path.Join(dir, names[i])); err != nil {
				return fmt.Errorf("remove %s: %w", names[i], err)
			}
		}
	}
	return fsys.SyncDir(dir)
}

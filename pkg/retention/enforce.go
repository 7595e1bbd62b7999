package retention

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/farlog/farlog/pkg/merge"
	"github.com/farlog/farlog/pkg/store"
)

// Result is what is to be removed of one stream, or was.
type Result struct {
	Stream   string `json:"stream"`
	Segments int    `json:"segments"` // that go
	Before   uint64 `json:"before"`   // the first that stays
	Policy   string `json:"policy,omitempty"`
	Archive  string `json:"archive,omitempty"` // where the segments that go are; "" = nowhere
	Blocked  string `json:"blocked,omitempty"` // why no more goes, though the rules would let it
}

// Enforcer looks at the streams of one store.
type Enforcer struct {
	Store *store.Store
	Clock *Clock
	// Remove does it, with the stream's lock; nil = Store.RemoveBefore.
	Remove func(stream string, removal store.Removal) error
	// Unknown says of readers of which nobody knows how far they are; "" = there are none.
	Unknown string
}

// Plan says of each stream that a rule or a hold matches what may be removed now. Errors are those of the policy and of
// the store's list of streams: then nothing may.
func (e *Enforcer) Plan() ([]Result, error) {
	policy, err := Load(e.Store.Dir())
	if err != nil || len(policy.Rules)+len(policy.Holds) == 0 {
		return nil, err
	}
	streams, err := e.Store.Streams()
	if err != nil {
		return nil, err
	}
	var list []Result
	for _, stream := range streams {
		rules, holds := policy.matching(stream)
		if len(rules)+len(holds) == 0 {
			continue
		}
		result, err := e.plan(stream, rules, holds)
		if err != nil {
			result = Result{Stream: stream, Before: result.Before - uint64(result.Segments), Blocked: err.Error()}
		}
		list = append(list, result)
	}
	return list, nil
}

// Enforce removes what Plan says. What cannot be removed is in the results.
func (e *Enforcer) Enforce() ([]Result, error) {
	list, err := e.Plan()
	for i := range list {
		one := &list[i]
		if one.Segments == 0 {
			continue
		}
		removal := store.Removal{Before: one.Before, Policy: one.Policy, ArchivedAt: one.Archive}
		if removeErr := e.remove(one.Stream, removal); removeErr != nil {
			one.Segments, one.Blocked = 0, removeErr.Error()
		}
	}
	return list, err
}

func (e *Enforcer) remove(stream string, removal store.Removal) error {
	if e.Remove != nil {
		return e.Remove(stream, removal)
	}
	_, err := e.Store.RemoveBefore(stream, removal)
	return err
}

// plan counts the oldest segments that all rules let go, up to the first that a reader has not passed.
func (e *Enforcer) plan(stream string, rules []Rule, holds []Hold) (Result, error) {
	result := Result{Stream: stream}
	history, err := e.Store.History(stream)
	if err != nil {
		return result, err
	}
	result.Before = history.First
	if len(holds) > 0 {
		result.Blocked = fmt.Sprintf("held by %s since %s: %s", holds[0].Who, holds[0].At, holds[0].Why)
		return result, nil
	}
	due, doubt, err := e.countSurelyDue(history, rules)
	if result.Blocked = doubt; err != nil || due == 0 {
		return result, err
	}
	if e.Unknown != "" {
		result.Blocked = e.Unknown
		return result, nil
	}
	readers, err := e.readers(stream, rules)
	if err != nil {
		return result, err
	}
	archived, isNeeded, err := e.archived(stream, history.First, rules)
	if err != nil {
		return result, err
	}
	for i := range due {
		m, err := history.Manifest(i)
		if err != nil {
			return result, err
		}
		if by := readers.before(m.Last()); by != "" {
			result.Blocked = by
			break
		}
		if isNeeded && m.Segment > archived.Segment {
			result.Blocked = archived.behind(m.Segment)
			break
		}
		result.Segments, result.Before = i+1, m.Segment+1
	}
	texts := make([]string, len(rules))
	for i, rule := range rules {
		texts[i] = rule.String()
	}
	result.Policy, result.Archive = strings.Join(texts, "; "), archived.Archive
	return result, nil
}

// countSurelyDue counts the oldest segments that each of the rules lets go, however wrong the clock is. doubt: by the
// clock it were more.
func (e *Enforcer) countSurelyDue(history *store.History, rules []Rule) (due int, doubt string, err error) {
	sure, err := e.Clock.sure(e.Store)
	if err != nil {
		return 0, "", err
	}
	if due, err = countDue(history, rules, sure); err != nil || e.Clock.doubt(sure) == "" {
		return due, "", err
	}
	byClock, err := countDue(history, rules, e.Clock.Now())
	if err == nil && byClock > due {
		doubt = e.Clock.doubt(sure)
	}
	return due, doubt, err
}

// archived is how far the archive has the stream, where a rule needs it: an error when the archive has other segments
// than this store.
func (e *Enforcer) archived(stream string, first uint64, rules []Rule) (archived Archived, isNeeded bool, err error) {
	for _, rule := range rules {
		isNeeded = isNeeded || !rule.WithoutArchive
	}
	if !isNeeded {
		return archived, false, nil
	}
	archived, err = LoadArchived(e.Store, stream)
	if err == nil && archived.Segment >= first {
		err = archived.check(e.Store, e.Clock.Now())
	}
	return archived, true, err
}

// countDue counts the oldest segments that each of the rules lets go.
func countDue(history *store.History, rules []Rule, now time.Time) (int, error) {
	total := history.Behind
	for _, size := range history.Sizes {
		total += size
	}
	for i, size := range history.Sizes {
		m, err := history.Manifest(i)
		if err != nil {
			return 0, err
		}
		for _, rule := range rules {
			isDue, err := rule.isDue(m, total, now)
			if err != nil || !isDue {
				return i, err
			}
		}
		total -= size
	}
	return len(history.Sizes), nil
}

// isDue reports whether a rule lets a segment go when it is the oldest of so many bytes. Its age is that of its newest
// record, or of its sealing when that is later: a writer's clock that is behind makes nothing old.
func (r Rule) isDue(m store.Manifest, total int64, now time.Time) (bool, error) {
	if r.IsKept {
		return false, nil
	}
	sealed, err := time.Parse(time.RFC3339Nano, m.SealedAt)
	if err != nil {
		return false, fmt.Errorf("%w: segment %d: sealed_at %q", store.ErrCorrupt, m.Segment, m.SealedAt)
	}
	newest := time.Unix(0, int64(min(m.MaxTimestampNS, 1<<63-1)))
	if sealed.After(newest) {
		newest = sealed
	}
	age, err := r.age()
	if err != nil {
		return false, err
	}
	isOld := age > 0 && now.Sub(newest) > age
	return isOld || r.MaxBytes > 0 && uint64(max(total, 0)) > r.MaxBytes, nil
}

// readerAt is a reader and the last record that it has.
type readerAt struct {
	name  string
	place store.Place
}

type readersAt []readerAt

// before names a reader that has not got as far as a place; "" = all have.
func (r readersAt) before(last store.Place) string {
	for _, one := range r {
		if one.place.IsBefore(last) {
			return fmt.Sprintf("%s has got to %s, the segment goes on to %s", one.name, one.place, last)
		}
	}
	return ""
}

// readers finds out how far everybody is who must have passed. One who cannot be asked is an error.
func (e *Enforcer) readers(stream string, rules []Rule) (list readersAt, err error) {
	for _, rule := range rules {
		for _, reader := range rule.Readers {
			at, isOf, err := readPlace(reader, stream)
			if err != nil {
				return nil, fmt.Errorf("reader %s: %w", reader, err)
			}
			if isOf {
				list = append(list, readerAt{reader, at})
			}
		}
	}
	places, err := merge.Passed(e.Store)
	if err != nil {
		return nil, fmt.Errorf("merged order: %w", err)
	}
	if places != nil {
		list = append(list, readerAt{"the merged order", places[stream]})
	}
	return list, nil
}

// readPlace asks a reader. isOf is false for one of another stream.
func readPlace(reader, stream string) (at store.Place, isOf bool, err error) {
	name, kind := cutKind(reader)
	if kind == kindStore {
		replica, err := store.Open(name, store.Options{})
		if err != nil {
			return at, false, err
		}
		at, err = replica.LastSealed(stream)
		return at, true, err
	}
	raw, err := os.ReadFile(name)
	if err != nil {
		return at, false, err
	}
	position, err := store.ParsePosition(raw)
	if err != nil {
		return at, false, fmt.Errorf("position %q: %w", name, err)
	}
	return position.Place(), position.Stream == stream, nil
}

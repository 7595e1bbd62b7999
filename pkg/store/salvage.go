package store

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"
)

const (
	salvageSuffix = ".salvage" // of the directory while it is being made
	salvageName   = "salvage.json"
)

// SalvageOptions say how a store is salvaged.
type SalvageOptions struct {
	By, Why string // who does it, and why: they come into the GAP records
	// WithTail takes records that lie behind a damaged one and beyond the last mark of a stream as well: without it
	// they are left to the ring, which may still have them all.
	WithTail bool
}

// SalvageReport is what was done with one stream.
type SalvageReport struct {
	Stream  string       `json:"stream"`
	Records uint64       `json:"records"` // copied, PADs left out
	Gaps    []SalvageGap `json:"gaps"`
	Notes   []string     `json:"notes,omitempty"`   // what else was wrong
	Failure string       `json:"failure,omitempty"` // what is not proved to be whole, and why
}

// SalvageGap is a range that could not be read.
type SalvageGap struct {
	Segment string `json:"segment"`
	Offset  int64  `json:"offset"`
	LSN     uint64 `json:"lsn"`
	NextLSN uint64 `json:"next_lsn"`
	Records uint64 `json:"records"`
	Cause   string `json:"cause"`
}

// salvageFile is what STORE/salvage.json says of where a store came from.
type salvageFile struct {
	Salvage   json.RawMessage `json:"salvage"`
	Signature string          `json:"signature"`
}

type salvageStatement struct {
	StoreUUID string          `json:"store_uuid"`
	From      string          `json:"from_store_uuid"`
	By        string          `json:"by"`
	Why       string          `json:"why"`
	At        string          `json:"at"`
	Streams   []SalvageReport `json:"streams"`
}

// Salvage copies what is sound of a damaged store into a new one in dir, also what lies behind damage. In the place of
// each record that cannot be read comes a GAP record with the cause and who did it, so that the new store is whole: a
// drain goes on in it. The damaged store is only read, and locked against those who append. The new store is made
// beside dir and gets its name when it is complete and verified: what a crash leaves is gone on with. Errors:
// ErrInvalid (dir is there), ErrLocked, ErrCorrupt (the new store does not verify), those of Open with the options, or
// of the file system.
func (s *Store) Salvage(ctx context.Context, dir string, options Options, how SalvageOptions) ([]SalvageReport, error) {
	dir = path.Clean(dir)
	if _, err := s.fsys.ReadDir(dir); !isNotExist(err) {
		return nil, errors.Join(fmt.Errorf("%w: salvage store %s: %s is there: expected the name of a new directory",
			ErrInvalid, s.dir, dir), err)
	}
	options.Create, options.FS, options.Now = true, s.fsys, s.options.Now
	into, err := Open(dir+salvageSuffix, options)
	if err != nil {
		return nil, err
	}
	streams, err := s.Streams()
	if err != nil {
		return nil, err
	}
	var reports []SalvageReport
	for _, stream := range streams {
		one := &salvager{
			ctx: ctx, from: s, into: into, how: how, of: "store " + s.uuid.String(),
			report: SalvageReport{Stream: stream, Gaps: []SalvageGap{}},
		}
		if err := one.run(); err != nil {
			return reports, fmt.Errorf("salvage stream %s: %w", stream, err)
		}
		reports = append(reports, one.report)
	}
	if err := into.finishSalvage(ctx, s, how, reports); err != nil {
		return reports, err
	}
	if err := s.fsys.Rename(dir+salvageSuffix, dir); err != nil {
		return reports, wrap("rename", dir+salvageSuffix, err)
	}
	return reports, wrap("sync", path.Dir(dir), s.fsys.SyncDir(path.Dir(dir)))
}

// finishSalvage verifies the new store, and says in it where it came from.
func (s *Store) finishSalvage(ctx context.Context, from *Store, how SalvageOptions, reports []SalvageReport) error {
	report, err := s.Verify(ctx, VerifyOptions{})
	if err != nil {
		return err
	}
	for _, stream := range report.Streams {
		if stream.Failure != nil {
			return fmt.Errorf("%w: the salvaged stream %s: %s", ErrCorrupt, stream.Stream, stream.Failure)
		}
	}
	body, err := json.Marshal(salvageStatement{
		StoreUUID: s.uuid.String(), From: from.uuid.String(), By: how.By, Why: how.Why,
		At: s.options.Now().UTC().Format(time.RFC3339), Streams: reports,
	})
	if err != nil {
		return fmt.Errorf("encode %s: %w", salvageName, err)
	}
	signature, err := s.Sign(body)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(salvageFile{Salvage: body, Signature: hex.EncodeToString(signature)})
	if err != nil {
		return fmt.Errorf("encode %s: %w", salvageName, err)
	}
	if err := writeFile(s.fsys, path.Join(s.dir, salvageName), append(raw, '\n'), 0o440); err != nil {
		return err
	}
	return wrap("sync", s.dir, s.fsys.SyncDir(s.dir))
}

// survey finds the segments that are there, whatever is wrong with them, and of what ring each is.
func (v *salvager) survey() ([]found, error) {
	list, err := v.dir.list()
	if err != nil {
		return nil, err
	}
	base, err := v.from.begin(v.dir, list)
	var damage *CorruptError
	if errors.As(err, &damage) {
		v.note("%s: %s: the stream is taken from its first segment that is there", damage.Path, damage.Err)
	} else if err != nil {
		return nil, err
	}
	v.begins = base.firstSegment()
	for number := range list.manifests {
		v.ends = max(v.ends, number+1)
	}
	var segments []found
	for _, number := range list.behind(base.firstSegment()) {
		f, err := v.dir.look(number)
		if err != nil {
			return nil, err
		}
		f.isSealed = list.manifests[number]
		segments = append(segments, f)
	}
	segments, _ = splitBegun(segments)
	for i := range segments {
		if err := v.identify(segments, i); err != nil {
			return nil, err
		}
	}
	return segments, nil
}

func (v *salvager) note(format string, args ...any) {
	v.report.Notes = append(v.report.Notes, fmt.Sprintf(format, args...))
}

// doneRings are the rings of which the new store has all: an attempt before went on to another one.
func (v *salvager) doneRings() (map[string]bool, error) {
	reader, err := v.into.OpenReader(v.report.Stream, ReaderOptions{IncludeSuperseded: true, IsOpenFast: true})
	if errors.Is(err, ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	done, all := map[string]bool{}, reader.Generations()
	for i := range all {
		if i < len(all)-1 {
			done[all[i].RingUUID.String()] = true
		}
	}
	return done, nil
}

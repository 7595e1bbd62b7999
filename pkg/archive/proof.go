package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

const (
	// proofFile says that a probe proved the bucket's lock. The credentials of the first run should not be able to
	// delete, and prove nothing then.
	proofFile = probePrefix + "proved.json"
	// proofAge is how long that counts.
	proofAge = 24 * time.Hour

	proofFormat  = "farlog-archive-probe"
	proofVersion = 1
)

// proof is the content of proofFile.
type proof struct {
	Format   string `json:"format"`
	Version  int    `json:"version"`
	ProvedAt string `json:"proved_at"`
	Endpoint string `json:"endpoint"` // of the storage: a copy of the bucket elsewhere is not proved
	Bucket   string `json:"bucket"`
	ProbeReport
}

// prove probes the bucket, once in the life of a Writer: each probe leaves objects. Where the credentials prove
// nothing, the note of a probe that could counts; a storage that was refused is refused until a later probe notes that
// it is mended. Errors: those of wasProved and Probe, ErrRefused, ErrNotProved.
func (w *Writer) prove(ctx context.Context) error {
	if w.notProved == nil {
		report, err := w.bucket.Probe(ctx)
		if err != nil {
			return err
		}
		if w.notProved = report.Err(); !errors.Is(w.notProved, ErrNotProved) {
			return w.notProved
		}
	}
	err := w.bucket.wasProved(ctx)
	if errors.Is(err, ErrNotProved) {
		err = errors.Join(w.notProved, err)
	}
	return err
}

// noteProof puts the report of a probe that proved the lock, or that it is none.
func (b *Bucket) noteProof(ctx context.Context, report ProbeReport) error {
	now := time.Now().UTC()
	raw, err := json.Marshal(proof{
		proofFormat, proofVersion, now.Format(time.RFC3339Nano), b.Endpoint, b.Bucket, report,
	})
	if err != nil {
		return err
	}
	o, err := newObject(b.key(proofFile), bytes.NewReader(raw), int64(len(raw)), nil)
	if err != nil {
		return err
	}
	o.isDerived = true // beside those of former probes
	_, err = b.put(ctx, o, now.Add(probeLock).Truncate(time.Second))
	return err
}

// wasProved reports whether a probe, with whatever credentials, proved the lock in the last day: by the newest version
// of its note. Errors: ErrNotProved, ErrRefused (that probe destroyed a locked object), those of calls.
func (b *Bucket) wasProved(ctx context.Context) error {
	list, err := b.versions(ctx, b.key(proofFile))
	if err != nil {
		return err
	}
	if len(list) == 0 || list[len(list)-1].IsMarker {
		return fmt.Errorf("%w: %s has no %s", ErrNotProved, b.Location, proofFile)
	}
	newest := list[len(list)-1]
	age := time.Since(newest.ModifiedAt)
	if age > proofAge || age < -clockSkewMax {
		return fmt.Errorf("%w: %s/%s is of %s, expected of the last %s", ErrNotProved, b.Location, proofFile,
			newest.ModifiedAt.UTC().Format(time.RFC3339), proofAge)
	}
	raw, err := b.read(ctx, newest, 1<<20)
	if err != nil {
		return err
	}
	var p proof
	err = json.Unmarshal(raw, &p)
	if err != nil || p.Format != proofFormat || p.Version != proofVersion || p.Archive != b.Location.String() ||
		p.Endpoint != b.Endpoint || p.Bucket != b.Bucket || len(p.Findings) == 0 {
		return errors.Join(fmt.Errorf("%w: %s/%s is no note of a probe of %s at %s", ErrNotProved, b.Location,
			proofFile, b.Location, withoutUser(b.Endpoint)), err)
	}
	at, err := time.Parse(time.RFC3339Nano, p.ProvedAt)
	if age := time.Since(at); err != nil || age > proofAge || age < -clockSkewMax {
		return errors.Join(fmt.Errorf("%w: %s/%s says that it was proved at %q, expected in the last %s", ErrNotProved,
			b.Location, proofFile, p.ProvedAt, proofAge), err)
	}
	return p.Err()
}

package store_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/farlog/farlog/pkg/store"
)

// verify is the last word on a world: no crash is planned any more.
func (w *world) verify() error {
	w.fs.CrashAfter(-1)
	if err := w.open(); err != nil {
		return fmt.Errorf("last open: %w", err)
	}
	if err := w.checkOpened(); err != nil {
		return err
	}
	if err := w.feedOne(); err != nil {
		return err
	}
	if err := w.app.Sync(); err != nil {
		return err
	}
	if anchor, ok := w.app.Anchor(); ok {
		w.anchors = append(w.anchors, anchor)
	}
	if err := w.app.Close(); err != nil {
		return err
	}
	report, err := w.store.Verify(context.Background(), store.VerifyOptions{Anchors: w.anchors})
	if err != nil {
		return err
	}
	for _, s := range report.Streams {
		if s.Failure != nil || s.Duplicates != 0 || s.Tail != nil || len(s.Anchors)+s.RemovedAnchors != len(w.anchors) {
			return fmt.Errorf("verify: %s (duplicates %d, tail %+v)", s.Statement(), s.Duplicates, s.Tail)
		}
		total := s.Records + s.ControlRecords + s.Superseded
		there, err := w.there()
		if err != nil {
			return err
		}
		var want uint64
		for _, rec := range there {
			if !rec.Flags.IsPad() {
				want++
			}
		}
		if total != want {
			return fmt.Errorf("verify counts %d records, expected %d", total, want)
		}
	}
	return nil
}

// feedOne appends the next record that the store has not, which moves away what a crash left behind the last one.
func (w *world) feedOne() error {
	w.ring.Append(1, 100)
	last := w.app.Last()
	for _, rec := range w.ring.Records {
		if !last.OK || !w.isStored(rec, last) {
			w.accepted = append(w.accepted, rec)
			_, _, err := w.app.Append(rec.Raw)
			return err
		}
	}
	return errors.New("the ring has nothing that the store has not")
}

package store

import (
	"fmt"
	"slices"

	"github.com/farlog/farlog/pkg/record"
)

// Unsealed is what Verify found in segments without a manifest: the store has signed their headers, and not their
// records.
type Unsealed struct {
	Segments int    `json:"segments"`
	FirstTS  uint64 `json:"first_ts_ns"` // the least first_ts_ns of their headers
	// Epoch is the one that begins in them and goes back furthest behind the end of the sealed segments: sealed records
	// from lsn BackTo up to SealedTo are superseded. That is legal, for these were never acknowledged, and is not
	// signed. 0: there is none.
	Epoch    uint32 `json:"epoch,omitempty"`
	BackTo   uint64 `json:"back_to_lsn,omitempty"`
	SealedTo uint64 `json:"sealed_to_lsn,omitempty"`
}

// statement names an epoch that supersedes sealed records; "" = there is none.
func (u *Unsealed) statement() string {
	if u == nil || u.Epoch == 0 {
		return ""
	}
	return fmt.Sprintf("; epoch %d, in a segment without a manifest, supersedes sealed records from lsn %d up to %d, "+
		"which is not signed", u.Epoch, u.BackTo, u.SealedTo)
}

func (v *verifier) unsealed() *Unsealed {
	if v.report.Unsealed == nil {
		v.report.Unsealed = &Unsealed{}
	}
	return v.report.Unsealed
}

// noteUnsealed counts a segment without a manifest.
func (v *verifier) noteUnsealed(f found) {
	u := v.unsealed()
	if u.Segments == 0 || f.header.FirstTS < u.FirstTS {
		u.FirstTS = f.header.FirstTS
	}
	u.Segments++
}

// noteBack notes an epoch that goes back behind the end of the sealed segments, which the signed header of the first
// segment without a manifest says.
func (v *verifier) noteBack(at found, first record.Header) {
	i := slices.IndexFunc(v.begun, func(f found) bool { return !f.isSealed })
	if v.store == nil || at.isSealed || i < 0 {
		return // v.store: one segment by itself
	}
	h := v.begun[i].header
	if h.Generation != at.header.Generation || first.LSN >= h.PrevNextLSN {
		return
	}
	if u := v.unsealed(); u.Epoch == 0 || first.LSN < u.BackTo {
		u.Epoch, u.BackTo, u.SealedTo = first.Epoch, first.LSN, h.PrevNextLSN
	}
}

// checkIndex compares the index of a sealed segment, which nobody signs, with the records. One that no reader would
// believe is none.
func (v *verifier) checkIndex(f found) error {
	name := v.dir.file(f.number, indexSuffix)
	raw, err := readFile(v.dir.fsys, name, indexBytesMax)
	if isNotExist(err) {
		return nil
	}
	if err != nil {
		return wrap("read", name, err)
	}
	x, err := decodeIndex(raw, f.header, v.lastWalk.end)
	if err != nil {
		return nil
	}
	if !slices.Equal(x.entries, v.lastWalk.sum.entries()) || !slices.Equal(x.marks, v.lastWalk.sum.marks) {
		return fail(name, f.header.FirstLSN, 0, "index does not describe its segment: remove it, it is made again "+
			"from the records where it is needed")
	}
	return nil
}

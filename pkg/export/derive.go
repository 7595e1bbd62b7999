package export

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"

	"github.com/farlog/farlog/pkg/query"
	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
)

// outputs take what is derived from the evidence: files that are written, or files that are compared.
type outputs interface {
	create(name string) (output, error)
	parquet(name string) (query.Encoder, output, error)
}

// output is a file of them. isWhole: all that belongs into it was written.
type output interface {
	io.Writer
	close(isWhole bool) error
}

// derivation makes all files of a bundle that are derived from its evidence.
type derivation struct {
	encoders []query.Encoder
	gaps     *table
	clock    *clockEvidence
	report   *report // nil: no profile
	streams  map[string]*Stream
	sealed   map[string]uint64 // the last sealed segment of each stream
	rows     uint64
	files    []output
}

// derived is what a derivation counted.
type derived struct {
	rows, report uint64
	streams      []Stream
}

// derive goes through the evidence, which was verified, once. Errors: ErrInvalid, store.ErrCorrupt, of the filter and
// the profile with the record, and of the outputs.
func derive(ctx context.Context, evidence *store.Store, verified store.Report, request query.Request, mapping *Mapping,
	constants map[string]string, to outputs, look func(Progress),
) (result derived, err error) {
	d := derivation{streams: map[string]*Stream{}, sealed: map[string]uint64{}}
	if err := d.survey(evidence, verified); err != nil {
		return result, err
	}
	defer func() {
		for _, one := range d.files {
			err = errors.Join(err, one.close(err == nil))
		}
	}()
	if err := d.open(to, mapping, constants); err != nil {
		return result, err
	}
	request.Observe = func(row *query.Row) error { return d.observe(row, request.Window) }
	q, err := query.Open([]*store.Store{evidence}, request)
	if err != nil {
		return result, err
	}
	defer q.Close()
	_, err = q.Run(ctx, func(row *query.Row) error { return d.row(ctx, row) }, func(p query.Progress) {
		look(Progress{"go through the evidence", p.Bytes, max(p.Total, p.Bytes)})
	})
	if err != nil {
		return result, err
	}
	if err := d.end(); err != nil {
		return result, err
	}
	names, err := evidence.Streams()
	for _, name := range names {
		result.streams = append(result.streams, *d.streams[name])
	}
	result.rows = d.rows
	if d.report != nil {
		result.report = d.report.rows
	}
	return result, err
}

// survey counts what the evidence has of each stream.
func (d *derivation) survey(evidence *store.Store, verified store.Report) error {
	for _, s := range verified.Streams {
		sealed, err := evidence.Sealed(s.Stream)
		if err != nil {
			return err
		}
		if n := len(sealed.Segments); n > 0 {
			d.sealed[s.Stream] = sealed.Segments[n-1]
		}
		one := &Stream{
			Stream: s.Stream, Segments: s.Segments - s.CutSegments, CutSegments: s.CutSegments,
			SealedSegments: s.SealedSegments, Records: s.Records, Generations: s.Generations,
			Unsealed: s.Unsealed,
		}
		if one.Generations == nil {
			one.Generations = []store.GenerationReport{}
		}
		if s.Base != nil {
			one.Removed = s.Base.Statement()
		}
		d.streams[s.Stream] = one
	}
	return nil
}

func (d *derivation) open(to outputs, mapping *Mapping, constants map[string]string) (err error) {
	for _, one := range []struct{ name, format string }{{csvFile, query.FormatCSV}, {jsonFile, query.FormatJSON}} {
		file, err := to.create(one.name)
		if err != nil {
			return err
		}
		d.files = append(d.files, file)
		encoder, err := query.NewEncoder(one.format, file, fields())
		if err != nil {
			return err
		}
		d.encoders = append(d.encoders, encoder)
	}
	encoder, file, err := to.parquet(parquetFile)
	if err != nil {
		return err
	}
	d.encoders, d.files = append(d.encoders, encoder), append(d.files, file)
	if d.gaps, err = d.table(to, gapsFile, "stream", "generation", "epoch", "lsn", "seq", "time", "missing", "from",
		"to", "why"); err != nil {
		return err
	}
	if d.clock, err = d.openClock(to); err != nil || mapping == nil {
		return err
	}
	d.report, err = d.openReport(to, mapping, constants)
	return err
}

// observe takes each record that is near the window.
func (d *derivation) observe(row *query.Row, window store.Window) error {
	if row.Flags.IsPad() {
		return nil
	}
	s := d.streams[row.Stream]
	isIn := window.Has(row.TimestampNS)
	if isIn && !row.Flags.IsControl() && row.Segment > d.sealed[row.Stream] {
		if s.Unsigned == 0 {
			s.UnsignedFrom = row.LSN
		}
		s.Unsigned++
	}
	if row.Flags&record.FlagGap != 0 {
		s.Gaps++
		return d.gap(row)
	}
	if !isIn {
		return nil
	}
	return d.clock.observe(row)
}

func (d *derivation) gap(row *query.Row) error {
	missing, from, to, why := "", "", "", "it cannot be decoded"
	if gap, err := record.DecodeGapPayload(row.Payload); err == nil {
		missing, why = fmt.Sprint(gap.Count), gap.String()
		if !gap.IsRefused {
			from, to = timeText(gap.FromTime), timeText(gap.ToTime)
		}
	}
	return d.gaps.write(row.Stream, row.Generation, row.Epoch, row.LSN, row.Seq, timeText(row.Time()), missing, from,
		to, why)
}

// row takes a record that was asked for.
func (d *derivation) row(ctx context.Context, row *query.Row) error {
	for _, encoder := range d.encoders {
		if err := encoder.Write(row); err != nil {
			return err
		}
	}
	d.rows++
	d.streams[row.Stream].Rows++
	if d.report == nil {
		return nil
	}
	return d.report.record(ctx, row)
}

// end writes what is known at the end alone.
func (d *derivation) end() error {
	if err := d.clock.end(d.report); err != nil {
		return err
	}
	for _, encoder := range d.encoders {
		if err := encoder.Close(); err != nil {
			return err
		}
	}
	tables := []*table{d.gaps, d.clock.rows, d.clock.events}
	if d.report != nil {
		tables = append(tables, d.report.table)
	}
	for _, one := range tables {
		if one.out.Flush(); one.out.Error() != nil {
			return one.out.Error()
		}
	}
	return nil
}

// table is a file of CSV.
type table struct {
	out    *csv.Writer
	values []string
}

func (d *derivation) table(to outputs, name string, head ...string) (*table, error) {
	file, err := to.create(name)
	if err != nil {
		return nil, err
	}
	d.files = append(d.files, file)
	t := &table{out: csv.NewWriter(file)}
	return t, t.out.Write(head)
}

// write writes a line, with all bytes printable.
func (t *table) write(values ...any) error {
	t.values = t.values[:0]
	for _, value := range values {
		t.values = append(t.values, query.Escape(fmt.Append(nil, value)))
	}
	return t.out.Write(t.values)
}

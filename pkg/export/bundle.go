// Package export makes the bundle that an auditor is handed: records of a store that were asked for, as CSV, JSON Lines
// and Parquet, with an excerpt of the store that proves them, clock evidence, gaps, and a statement of what is in and
// what is missing; and it verifies a bundle with nothing but the bundle (docs/reference/bundle.md).
//
// All files of a bundle but the excerpt are derived from the excerpt. So Verify derives them again, and compares.
package export

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/farlog/farlog/pkg/control/pattern"
	"github.com/farlog/farlog/pkg/query"
	"github.com/farlog/farlog/pkg/store"
)

const (
	bundleFormat   = "farlog-bundle"
	bundleVersion  = 1
	bundleBytesMax = 256 << 20
)

// Names of files in a bundle.
const (
	BundleFile       = "bundle.json"
	SealFile         = "seal.json"
	CoverFile        = "cover.html"
	EvidenceDir      = "evidence"
	csvFile          = "records.csv"
	jsonFile         = "records.jsonl"
	parquetFile      = "records.parquet"
	gapsFile         = "gaps.csv"
	clockFile        = "clock.csv"
	clockEventsFile  = "clock-events.csv"
	profileFile      = "profile.yaml"
	reportFile       = "report.csv"
	reportFieldsFile = "report-fields.csv"
)

// ErrInvalid: what was asked for makes no sense.
var ErrInvalid = errors.New("invalid request")

// Bundle is what bundle.json says.
type Bundle struct {
	Format  string   `json:"format"`
	Version int      `json:"version"`
	Program string   `json:"program"` // that has made it
	MadeAt  string   `json:"made_at"` // by the clock of its host, RFC 3339
	MadeBy  string   `json:"made_by"`
	Why     string   `json:"why"`
	Source  Source   `json:"source"`
	Request Request  `json:"request"`
	Profile *Applied `json:"profile,omitempty"`
	Rows    uint64   `json:"rows"` // of each file of records
	Report  uint64   `json:"report_rows"`
	Streams []Stream `json:"streams"`
	Missing []string `json:"missing"` // what was asked for, or may have been, and is not in
	Files   []File   `json:"files"`   // all but this one and seal.json
}

// Source is the store that the records are of.
type Source struct {
	Path       string   `json:"path"` // as it was given
	StoreUUID  string   `json:"store_uuid"`
	PublicKeys []string `json:"public_keys"` // hexadecimal
}

// Request is what was asked for.
type Request struct {
	Streams []string `json:"streams"` // patterns; none: all
	From    string   `json:"from"`    // RFC 3339; "" = the begin
	To      string   `json:"to"`      // the first time that is not asked for; "" = no end
	Classes []uint16 `json:"classes"`
	Keys    []string `json:"keys"`
	Filter  string   `json:"filter"` // CEL
}

// Applied is the profile that the report was made by.
type Applied struct {
	Name      string            `json:"name"`
	Version   int               `json:"version"`
	Constants map[string]string `json:"constants"`
}

// Stream says what the bundle has of a stream.
type Stream struct {
	Stream         string                   `json:"stream"`
	Rows           uint64                   `json:"rows"`
	Segments       int                      `json:"segments"`     // in the evidence with their records
	CutSegments    int                      `json:"cut_segments"` // of which it has header and manifest alone
	SealedSegments int                      `json:"sealed_segments"`
	Records        uint64                   `json:"records"` // in the evidence, wanted or not
	Generations    []store.GenerationReport `json:"generations"`
	Gaps           uint64                   `json:"gaps"`
	UnsignedFrom   uint64                   `json:"unsigned_from_lsn"`
	Unsigned       uint64                   `json:"unsigned_records"` // in segments without a manifest
	Unsealed       *store.Unsealed          `json:"unsealed"`         // nil: all segments have manifests
	Removed        string                   `json:"removed"`
}

// File is one of a bundle.
type File struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// encode gives the one form that a file of JSON in a bundle has.
func encode(value any) ([]byte, error) {
	raw, err := json.MarshalIndent(value, "", " ")
	return append(raw, '\n'), err
}

// decode reads a file of JSON in a bundle: every byte of it counts.
func decode(raw []byte, value any) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(value); err != nil {
		return fmt.Errorf("damaged: %w", err)
	}
	again, err := encode(value)
	if err == nil && !bytes.Equal(raw, again) {
		err = errors.New("damaged: it is not what its fields encode to")
	}
	return err
}

// normalize makes of a bundle what is read back: text that is not UTF-8 changes in JSON.
func (b *Bundle) normalize() error {
	raw, err := encode(b)
	if err != nil {
		return err
	}
	*b = Bundle{}
	return decode(raw, b)
}

// checkForm says whether this program understands a bundle.
func (b *Bundle) checkForm() error {
	if b.Format != bundleFormat || b.Version != bundleVersion {
		return fmt.Errorf("format %q version %d, expected %q version %d", b.Format, b.Version, bundleFormat,
			bundleVersion)
	}
	return nil
}

func parseTime(name, text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if ns := at.UnixNano(); err != nil || ns <= 0 || !time.Unix(0, ns).Equal(at) {
		return 0, fmt.Errorf("%w: %s %q: expected an RFC 3339 time from 1970 to 2262, such as "+
			"2026-11-20T14:30:00Z", ErrInvalid, name, text)
	}
	return uint64(at.UnixNano()), nil
}

// query is the request as pkg/query has it. Errors: ErrInvalid.
func (r Request) query() (q query.Request, err error) {
	q = query.Request{Streams: r.Streams, Classes: r.Classes, Keys: r.Keys}
	for _, one := range r.Streams {
		if err := pattern.Check(one); err != nil {
			return q, fmt.Errorf("%w: stream: %w", ErrInvalid, err)
		}
	}
	if q.Window.From, err = parseTime("from", r.From); err != nil {
		return q, err
	}
	if q.Window.To, err = parseTime("to", r.To); err != nil {
		return q, err
	}
	if q.Window.To != 0 && q.Window.From >= q.Window.To {
		return q, fmt.Errorf("%w: from %q to %q: expected the first to be earlier", ErrInvalid, r.From, r.To)
	}
	for _, key := range r.Keys {
		if !utf8.ValidString(key) {
			return q, fmt.Errorf("%w: key %q: expected UTF-8", ErrInvalid, key)
		}
	}
	if r.Filter == "" {
		return q, nil
	}
	q.Filter, err = newFilter("filter", r.Filter)
	return q, err
}

// newFilter compiles an expression over what a bundle holds of a record.
func newFilter(what, text string) (*query.Filter, error) {
	f, err := query.NewFilter(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInvalid, what, err)
	}
	if f.Uses("store") {
		return nil, fmt.Errorf("%w: %s %q: a bundle is of one store, and does not know its directory: expected "+
			"an expression without store", ErrInvalid, what, text)
	}
	return f, nil
}

// fields are the columns of records: all but the directory of the store.
func fields() []query.Field {
	list, err := query.Fields([]string{
		"stream", "generation", "lsn", "seq", "epoch", "time", "ts_ns", "clock_err_ns", "class", "key", "len",
		"payload",
	})
	if err != nil {
		panic(err) // names of this program
	}
	return list
}

package main

import (
	"bufio"
	"encoding/json"
	"math"
	"time"
	"unicode/utf8"

	"github.com/farlog/farlog/pkg/merge"
	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
)

// replayed is a record on its way out of a store.
type replayed struct {
	store.Item
	at     time.Time // what the replay goes by
	stream string
	merged *merge.Item // nil: of one stream
}

// timestamp is at, as records have it.
func (r *replayed) timestamp() uint64 {
	if r.merged != nil {
		return r.merged.Entry.OrderNS
	}
	return r.TimestampNS
}

// replayReader is a stream, or all of them in one order. Next gives io.EOF at the present end.
type replayReader interface {
	Next() (replayed, error)
	// SeekWindow goes to the first record of a window. Records that are near it may come too.
	SeekWindow(store.Window) error
	SeekStart() error
	// Bases are those of the streams that have one.
	Bases() ([]*store.Base, error)
	Close() error
}

func openReplayed(s *store.Store, options replayOptions) (replayReader, error) {
	decrypter, err := options.decrypt.openStream()
	if err != nil {
		return nil, err
	}
	if options.isMerged {
		decrypter.IsClearRefused = false // of other streams
		reader, err := merge.OpenReader(s)
		return &mergedReplay{reader, s, decrypter}, err
	}
	reader, err := s.OpenReader(options.stream, store.ReaderOptions{})
	return &streamReplay{reader, s, options.stream, decrypter}, err
}

type streamReplay struct {
	*store.Reader
	store     *store.Store
	stream    string
	decrypter *record.Decrypter
}

func (r *streamReplay) SeekWindow(w store.Window) error {
	reader, err := r.store.OpenReader(r.stream, store.ReaderOptions{Window: w})
	if err != nil {
		return err
	}
	before := r.Reader
	r.Reader = reader
	return before.Close()
}

func (r *streamReplay) Next() (replayed, error) {
	item, err := r.Reader.Next()
	if err == nil {
		item.Record, err = r.decrypter.Decrypt(item.Record)
	}
	return replayed{Item: item, at: item.Time(), stream: r.stream}, err
}

func (r *streamReplay) Bases() ([]*store.Base, error) {
	if base := r.Base(); base != nil {
		return []*store.Base{base}, nil
	}
	return nil, nil
}

type mergedReplay struct {
	*merge.Reader
	store     *store.Store
	decrypter *record.Decrypter
}

// Next gives the application's records that count.
func (r *mergedReplay) Next() (replayed, error) {
	for {
		item, err := r.Reader.Next()
		if err != nil {
			return replayed{}, err
		}
		if item.Record.IsSuperseded || item.Record.Flags.IsControl() {
			continue
		}
		if item.Record.Record, err = r.decrypter.Decrypt(item.Record.Record); err != nil {
			return replayed{}, err
		}
		return replayed{Item: item.Record, at: item.OrderTime(), stream: item.Stream, merged: &item}, nil
	}
}

func (r *mergedReplay) SeekWindow(w store.Window) error {
	return r.SeekTime(time.Unix(0, int64(min(w.From, math.MaxInt64))))
}

func (r *mergedReplay) SeekStart() error {
	reader, err := merge.OpenReader(r.store)
	if err != nil {
		return err
	}
	before := r.Reader
	r.Reader = reader
	return before.Close()
}

func (r *mergedReplay) Bases() (bases []*store.Base, err error) {
	streams, err := r.store.Streams()
	if err != nil {
		return nil, err
	}
	for _, stream := range streams {
		base, err := r.store.Base(stream)
		if err != nil {
			return nil, err
		}
		if base != nil {
			bases = append(bases, base)
		}
	}
	return bases, nil
}

// replayLine is what --format json prints of a record.
type replayLine struct {
	Index      *uint64    `json:"index,omitempty"` // in the merged order
	OrderTime  *time.Time `json:"order_time,omitempty"`
	Why        string     `json:"order_time_is,omitempty"` // late, early or clock-back: why it is not the record's own
	Time       time.Time  `json:"time"`
	Stream     string     `json:"stream"`
	Generation uint64     `json:"generation"`
	Epoch      uint32     `json:"epoch"`
	LSN        uint64     `json:"lsn"`
	Seq        uint64     `json:"seq"`
	Class      uint16     `json:"class"`
	Key        string     `json:"key,omitempty"`
	Payload    string     `json:"payload,omitempty"`
	// PayloadBytes is base64, in place of Payload, when the payload is not UTF-8.
	PayloadBytes []byte `json:"payload_base64,omitempty"`
}

func (r replayed) writeJSON(out *bufio.Writer) error {
	line := replayLine{
		Time: r.Time(), Stream: r.stream, Generation: r.Generation, Epoch: r.Epoch, LSN: r.LSN,
		Seq: r.Seq, Class: r.Class, Key: string(r.Key),
	}
	if r.merged != nil {
		line.Index, line.OrderTime, line.Why = &r.merged.Index, &r.at, r.merged.Entry.Flags.String()
	}
	if utf8.Valid(r.Payload) {
		line.Payload = string(r.Payload)
	} else {
		line.PayloadBytes = r.Payload
	}
	raw, err := json.Marshal(line)
	if err == nil {
		_, err = out.Write(append(raw, '\n'))
	}
	return err
}

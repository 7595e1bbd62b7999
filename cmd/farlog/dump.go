package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
)

const (
	payloadText = "text"
	payloadHex  = "hex"
	payloadNone = "none"
)

type dumpOptions struct {
	payload  string
	stream   string
	from, to uint64
	limit    uint64
	decrypt  decryptOptions
}

func newDumpCommand(env *environment) *cobra.Command {
	var options dumpOptions
	command := &cobra.Command{
		Use:   "dump PATH|MEMBERS [flags]",
		Short: "Print the records of a ring image, a segment or a store, one a line",
		Long: `Prints every record, farlog's own included: lsn, seq, epoch, time, flags, class, key, length and
payload. Records that a later epoch replaced carry SUPERSEDED. A dump of a ring image begins at the head. It needs no
daemon. With --output json each line is one JSON object, whose payload and key are the bytes of the record: as a
string where they are UTF-8, else as payload_base64 and key_base64. The payloads of EPOCH and GAP records are decoded.
Text output replaces unprintable bytes; SOH is shown as |. That records of a store were removed by retention is said on
standard error, in every format.

Encrypted records are decrypted with the keys of --decrypt-key. Without any, their line gives the id of the key in the
place of payload and key.

Of a stream with several members ("members:K URI URI ...", of rings or the paths of their images) it prints the log
that the next writer would recover. It only reads, and fences no writer. Rings on other hosts (ofi:, verbs:) are read
by a reader's grant, which the control plane gives for the stream that --stream names.` + archivePathText,
		Example: `  farlog dump data/rings/orders.ring --limit 10
  farlog dump "members:2 mem:/t1/orders.ring mem:/t2/orders.ring mem:/t3/orders.ring"
  farlog dump data/store --stream desk7/orders --from 4096 --to 8192 --payload hex`,
		Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := options.validate(); err != nil {
				return err
			}
			return runDump(cmd.Context(), env, args[0], options)
		},
	}
	flags := options.decrypt.register(command)
	flags.StringVar(&options.payload, "payload", payloadText, "`form` of payload and key: text, hex or none")
	flags.StringVar(&options.stream, "stream", "", "`name` of the one stream of a store (default: all), or of the "+
		"stream whose rings on other hosts MEMBERS names")
	flags.Uint64Var(&options.from, "from", 0, "first `lsn`")
	flags.Uint64Var(&options.to, "to", math.MaxUint64, "`lsn` to stop before")
	flags.Uint64Var(&options.limit, "limit", 0, "`count` of records to print; 0 = all")
	return command
}

func (o dumpOptions) validate() error {
	switch {
	case o.payload != payloadText && o.payload != payloadHex && o.payload != payloadNone:
		return usageErrorf("--payload %q: expected text, hex or none", o.payload)
	case o.from >= o.to:
		return usageErrorf("--from %d --to %d: expected the first to be less", o.from, o.to)
	}
	return nil
}

func runDump(ctx context.Context, env *environment, path string, options dumpOptions) error {
	kind, err := detectKind(path)
	if err != nil {
		return err
	}
	if kind != kindStore && kind != kindMembers && options.stream != "" {
		return usageErrorf("dump %s: a %s: --stream is for a store", path, kind)
	}
	keys, err := options.decrypt.read()
	if err != nil {
		return err
	}
	d := &dumper{
		keys: keys, decrypter: record.NewDecrypter(keys),
		ctx: ctx, env: env, out: bufio.NewWriterSize(env.stdout, 64<<10), options: options,
		isJSON: env.isJSON(),
	}
	switch kind {
	case kindStore:
		err = d.store(path)
	case kindSegment:
		err = d.segment(path)
	case kindRing:
		err = d.ring(path)
	case kindMembers:
		err = d.members(path)
	}
	if errors.Is(err, errDumpLimit) {
		err = nil
	}
	if flushErr := d.out.Flush(); err == nil {
		err = flushErr
	}
	return err
}

var errDumpLimit = errors.New("enough records are printed")

// dumper prints records.
type dumper struct {
	ctx     context.Context
	env     *environment
	out     *bufio.Writer
	options dumpOptions
	isJSON  bool
	count   uint64
	line    []byte

	keys      []record.EncryptionKey
	decrypter *record.Decrypter
}

func (d *dumper) store(path string) error {
	opened, err := openToRead(path)
	if err != nil {
		return err
	}
	streams := []string{d.options.stream}
	if d.options.stream == "" {
		if streams, err = opened.Streams(); err != nil {
			return err
		}
	}
	for _, stream := range streams {
		if err := d.streamOf(opened, stream); err != nil {
			return err
		}
	}
	return nil
}

func (d *dumper) streamOf(opened *store.Store, stream string) error {
	reader, err := opened.OpenReader(stream, store.ReaderOptions{IncludeControl: true, IncludeSuperseded: true})
	if err != nil {
		return err
	}
	defer reader.Close()
	if base := reader.Base(); base.HasRemovedLSN(d.options.from) {
		d.env.noteRemoved(base)
	}
	for {
		item, err := reader.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := d.print(stream, item.Record, item.IsSuperseded); err != nil {
			return err
		}
	}
}

func (d *dumper) segment(path string) error {
	return store.WalkSegment(store.OS, filepath.Clean(path), func(stream string, rec record.Record) error {
		return d.print(stream, rec, false)
	})
}

func (d *dumper) ring(path string) error {
	image, file, err := openImage(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return d.walk(path, image.Superblock.StreamName, image.Walk())
}

func (d *dumper) walk(path, stream string, walk *record.Walker) error {
	for {
		rec, err := walk.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := d.print(stream, rec, false); err != nil {
			return err
		}
	}
}

// dumpLine is one record in JSON.
type dumpLine struct {
	Stream       string  `json:"stream"`
	LSN          uint64  `json:"lsn"`
	Seq          uint64  `json:"seq"`
	Epoch        uint32  `json:"epoch"`
	Time         string  `json:"time"`
	TimestampNS  uint64  `json:"ts_ns"`
	ClockErrNS   *uint32 `json:"clock_err_ns"` // null: unknown
	Flags        string  `json:"flags"`
	IsSuperseded bool    `json:"superseded,omitempty"`
	Class        uint16  `json:"class"`
	Key          string  `json:"key,omitempty"`
	KeyRaw       []byte  `json:"key_base64,omitempty"` // instead of key
	KeyID        string  `json:"encryption_key_id,omitempty"`
	Len          int     `json:"len"`
	Payload      string  `json:"payload,omitempty"`
	PayloadRaw   []byte  `json:"payload_base64,omitempty"` // instead of payload
}

// exact gives the bytes as a string of JSON where they are UTF-8: nothing but the escapes of JSON stands for them.
// Others go as base64.
func exact(raw []byte) (text string, rest []byte) {
	if utf8.Valid(raw) {
		return string(raw), nil
	}
	return "", raw
}

func (d *dumper) print(stream string, rec record.Record, isSuperseded bool) error {
	if err := d.ctx.Err(); err != nil {
		return err
	}
	if rec.LSN < d.options.from || rec.LSN >= d.options.to {
		return nil
	}
	if d.options.limit > 0 && d.count >= d.options.limit {
		return errDumpLimit
	}
	d.count++
	keyID := rec.KeyID()
	rec, err := d.decrypt(rec)
	if err != nil {
		return fmt.Errorf("stream %s: %w", stream, err)
	}
	line := dumpLine{
		KeyID:  keyID,
		Stream: stream, LSN: rec.LSN, Seq: rec.Seq, Epoch: rec.Epoch, TimestampNS: rec.TimestampNS,
		Time: rec.Time().Format("2006-01-02T15:04:05.000000000Z"), Flags: rec.Flags.String(),
		IsSuperseded: isSuperseded,
		Class:        rec.Class, Key: d.form(rec.Key), Len: len(rec.Payload), Payload: d.payload(rec),
	}
	if rec.ClockErrNS != record.ClockErrUnknown {
		line.ClockErrNS = &rec.ClockErrNS
	}
	if d.isJSON {
		if d.options.payload == payloadText {
			line.Key, line.KeyRaw = exact(rec.Key)
			if rec.Flags&(record.FlagEpoch|record.FlagGap) == 0 {
				line.Payload, line.PayloadRaw = exact(rec.Payload)
			}
		}
		encoder := json.NewEncoder(d.out)
		encoder.SetEscapeHTML(false)
		return encoder.Encode(line)
	}
	flags := line.Flags
	if isSuperseded {
		flags += "|SUPERSEDED"
	}
	d.line = fmt.Appendf(d.line[:0], "%s lsn=%d seq=%d epoch=%d %s flags=%s class=%d", stream, line.LSN, line.Seq,
		line.Epoch, line.Time, flags, line.Class)
	if line.Key != "" {
		d.line = fmt.Appendf(d.line, " key=%s", line.Key)
	}
	if line.KeyID != "" {
		d.line = fmt.Appendf(d.line, " encryption_key=%s", line.KeyID)
	}
	d.line = fmt.Appendf(d.line, " len=%d", line.Len)
	if line.Payload != "" {
		d.line = append(append(d.line, ' '), line.Payload...)
	}
	d.line = append(d.line, '\n')
	_, err = d.out.Write(d.line)
	return err
}

// decrypt takes the payload from an encrypted record that there are no keys for at all.
func (d *dumper) decrypt(rec record.Record) (record.Record, error) {
	if len(d.keys) == 0 {
		if rec.IsEncrypted() {
			rec.Key, rec.Payload = nil, nil
		}
		return rec, nil
	}
	return d.decrypter.Decrypt(rec)
}

// payload spells an EPOCH and a GAP record out; what others hold is the application's.
func (d *dumper) payload(rec record.Record) string {
	if rec.Flags&record.FlagGap != 0 && d.options.payload == payloadText {
		if p, err := record.DecodeGapPayload(rec.Payload); err == nil {
			return p.String()
		}
	}
	if rec.Flags&record.FlagEpoch != 0 && d.options.payload == payloadText {
		if p, err := record.DecodeEpochPayload(rec.Payload); err == nil {
			return fmt.Sprintf("prev_epoch=%d start_lsn=%d ring=%s", p.PrevEpoch, p.StartLSN, p.RingUUID)
		}
	}
	return d.form(rec.Payload)
}

func (d *dumper) form(raw []byte) string {
	switch d.options.payload {
	case payloadHex:
		return hex.EncodeToString(raw)
	case payloadText:
		return string(appendText(nil, raw))
	}
	return ""
}

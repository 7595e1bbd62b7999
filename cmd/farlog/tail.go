//go:build cgo

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	apiv1 "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/record"
)

const (
	tailBatchBytes   = 1 << 20
	tailPollInterval = 5 * time.Millisecond
	formatJSON       = "json"
	formatRaw        = "raw"
	fromHead         = "head"
	fromEnd          = "end"
)

type tailOptions struct {
	stream, ring string
	format, from string
	isFollowing  bool
}

func newTailCommand(env *environment) *cobra.Command {
	var options tailOptions
	command := &cobra.Command{
		Use:   "tail {--stream NAME | --ring URI} [flags]",
		Short: "Print the undrained records of a ring, and follow it",
		Long: `Prints the records that lie in the ring: those that were appended and not yet drained. What was drained is in the
store (farlog dump, farlog replay). With -f it goes on with what is appended.

A line is: time, seq, class, key, payload; the FIX separator is shown as |. --format raw writes payloads alone, each with a
newline. tail holds nothing up: when the drain releases records before they were printed, it says on stderr which
it missed, and goes on.`,
		Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := options.validate(env); err != nil {
				return err
			}
			return runTail(cmd.Context(), env, options)
		},
	}
	flags := command.Flags()
	flags.StringVar(&options.stream, "stream", "", "`name` of the stream; the control plane knows its ring")
	flags.StringVar(&options.ring, "ring", "", "`URI` of a ring, mem:/path; needs no control plane")
	flags.StringVar(&options.format, "format", formatLines, "lines, json or raw")
	flags.StringVar(&options.from, "from", fromHead, "where to begin: head (the oldest undrained record) or end")
	flags.BoolVarP(&options.isFollowing, "follow", "f", false, "go on with what is appended")
	return command
}

func (o *tailOptions) validate(env *environment) error {
	if (o.stream == "") == (o.ring == "") {
		return usageErrorf("tail: expected either --stream NAME or --ring URI")
	}
	if env.isJSON() {
		o.format = formatJSON
	}
	if !isOneOf(o.format, []string{formatLines, formatJSON, formatRaw}) {
		return usageErrorf("--format %q: expected lines, json or raw", o.format)
	}
	if !isOneOf(o.from, []string{fromHead, fromEnd}) {
		return usageErrorf("--from %q: expected head or end", o.from)
	}
	return nil
}

// ringOfStream asks the control plane where the stream's ring is.
func ringOfStream(ctx context.Context, env *environment, name string) (string, error) {
	var uri string
	err := withControl(ctx, env, 10*time.Second, func(ctx context.Context, client apiv1.ControlServiceClient) error {
		response, err := client.GetStream(ctx, &apiv1.GetStreamRequest{Name: name})
		if err != nil {
			return err
		}
		for _, ring := range response.GetStream().GetRings() {
			if uri = ring.GetUri(); uri != "" {
				return nil
			}
		}
		return fmt.Errorf("stream %q has no ring yet: %s", name, response.GetStream().GetReason())
	})
	return uri, err
}

// explainMissing tells that the ring of a stream is on the target's host.
func explainMissing(err error, stream string) error {
	if stream != "" && errors.Is(err, farlog.ErrNotFound) {
		return fmt.Errorf("%w: the ring of stream %q is on its target's host: run farlog tail there; what was drained is in the store (farlog dump, farlog replay)", err, stream)
	}
	return err
}

// tailer prints one ring.
type tailer struct {
	uri     string
	reader  *farlog.Reader
	align   uint32
	nextLSN uint64
	buf     []byte
	printer recordPrinter
}

func runTail(ctx context.Context, env *environment, options tailOptions) error {
	uri := options.ring
	if options.stream != "" {
		found, err := ringOfStream(ctx, env, options.stream)
		if err != nil {
			return err
		}
		uri = found
	}
	if isFarURI(uri) {
		return usageErrorf("--ring %q is on another host, and what lies in it is only read there: run farlog tail on the target's host; what was drained is in the store (farlog dump, farlog replay)", uri)
	}
	start := farlog.StartHead
	if options.from == fromEnd {
		start = farlog.StartTail
	}
	t := &tailer{
		uri:     uri,
		buf:     make([]byte, tailBatchBytes),
		printer: recordPrinter{format: options.format, writer: bufio.NewWriterSize(env.stdout, 64<<10)},
	}
	if err := t.open(start); err != nil {
		return explainMissing(err, options.stream)
	}
	defer func() { t.reader.Close() }()
	for ctx.Err() == nil {
		isMore, err := t.step(env)
		if err != nil {
			return err
		}
		if isMore {
			continue
		}
		if err := t.printer.writer.Flush(); err != nil || !options.isFollowing {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(tailPollInterval):
		}
	}
	return t.printer.writer.Flush()
}

func (t *tailer) open(start farlog.Start) error {
	reader, err := farlog.OpenReader(t.uri, farlog.ReaderOptions{Start: start})
	if err != nil {
		return asUsage(err)
	}
	status, err := reader.Status()
	if err != nil {
		reader.Close()
		return fmt.Errorf("read status of ring %q: %w", t.uri, err)
	}
	t.reader, t.align = reader, status.Align
	return nil
}

// step prints one batch. False: there is nothing new.
func (t *tailer) step(env *environment) (bool, error) {
	batch, err := t.reader.Read(t.buf)
	var large *farlog.TooLargeError
	switch {
	case errors.Is(err, farlog.ErrNotYet):
		return false, nil
	case errors.As(err, &large):
		t.buf = make([]byte, large.Need)
		return true, nil
	case errors.Is(err, farlog.ErrOverrun):
		return true, t.skip(env)
	case err != nil:
		return false, fmt.Errorf("read ring %q at lsn %d: %w", t.uri, batch.FirstLSN, err)
	}
	if t.nextLSN != 0 && batch.FirstLSN > t.nextLSN {
		fmt.Fprintf(env.stderr, "missed lsn %d to %d: drained before it could be printed; it is in the store\n", t.nextLSN, batch.FirstLSN)
	}
	if batch.Rewound {
		fmt.Fprintf(env.stderr, "a power cut undid unacknowledged records from lsn %d on; epoch %d goes on there\n", batch.FirstLSN,
			batch.LastEpoch)
	}
	t.nextLSN = batch.NextLSN
	return true, t.print(batch.Bytes)
}

// skip opens the ring again at its head; the next batch says what was missed.
func (t *tailer) skip(env *environment) error {
	if err := t.printer.writer.Flush(); err != nil {
		return err
	}
	if t.nextLSN == 0 {
		fmt.Fprintln(env.stderr, "the first records were drained before they could be printed; they are in the store")
	}
	t.reader.Close()
	return t.open(farlog.StartHead)
}

func (t *tailer) print(batch []byte) error {
	for len(batch) > 0 {
		header, err := record.ParseHeader(batch)
		if err != nil {
			return fmt.Errorf("batch of ring %q: %w", t.uri, err)
		}
		length := header.StoredLen(t.align)
		if !header.Flags.IsPad() {
			keyEnd := record.HeaderLen + uint64(header.KeyLen)
			key, payload := batch[record.HeaderLen:keyEnd], batch[keyEnd:keyEnd+uint64(header.PayloadLen)]
			if err := t.printer.print(header, key, payload); err != nil {
				return err
			}
		}
		batch = batch[length:]
	}
	return nil
}

// recordPrinter writes records for people or programs.
type recordPrinter struct {
	format string
	writer *bufio.Writer
	line   []byte
}

type recordJSON struct {
	Time    time.Time `json:"time"`
	Epoch   uint32    `json:"epoch"`
	LSN     uint64    `json:"lsn"`
	Seq     uint64    `json:"seq"`
	Flags   string    `json:"flags,omitempty"`
	Class   uint16    `json:"class"`
	Key     string    `json:"key,omitempty"`
	Payload string    `json:"payload,omitempty"`
	// PayloadBytes is base64, in place of Payload, when the payload is not UTF-8.
	PayloadBytes []byte `json:"payload_base64,omitempty"`
}

func (p *recordPrinter) print(header record.Header, key, payload []byte) error {
	switch p.format {
	case formatRaw:
		if header.Flags.IsControl() {
			return nil
		}
		p.line = append(append(p.line[:0], payload...), '\n')
	case formatJSON:
		p.line = append(encodeRecord(header, key, payload), '\n')
	default:
		p.line = append(header.Time().AppendFormat(p.line[:0], "2006-01-02T15:04:05.000000000Z"), ' ')
		p.line = strconv.AppendUint(p.line, header.Seq, 10)
		p.line = fmt.Appendf(p.line, " %d %s %s\n", header.Class, orDash(printable(key)), lineText(header, payload))
	}
	_, err := p.writer.Write(p.line)
	return err
}

func encodeRecord(header record.Header, key, payload []byte) []byte {
	shown := recordJSON{Time: header.Time(), Epoch: header.Epoch, LSN: header.LSN, Seq: header.Seq, Class: header.Class,
		Key: string(key)}
	if header.Flags.IsControl() {
		shown.Flags = header.Flags.String()
	}
	if utf8.Valid(payload) {
		shown.Payload = string(payload)
	} else {
		shown.PayloadBytes = payload
	}
	raw, _ := json.Marshal(shown) // of these types it cannot fail
	return raw
}

// lineText shows a payload on one line; of farlog's own records it says what they are.
func lineText(header record.Header, payload []byte) string {
	switch {
	case header.Flags&record.FlagEpoch != 0:
		return fmt.Sprintf("[EPOCH %d begins]", header.Epoch)
	case header.Flags.IsControl():
		return "[" + header.Flags.String() + "]"
	}
	return printable(payload)
}

// printable shows the FIX separator as |, and escapes whatever would break the line or the terminal.
func printable(raw []byte) string {
	var text strings.Builder
	for _, r := range string(raw) {
		switch {
		case r == 0x01:
			text.WriteByte('|')
		case r == '\\' || strconv.IsPrint(r) && r != utf8.RuneError:
			text.WriteRune(r)
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			text.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return text.String()
}

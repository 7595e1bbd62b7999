package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/farlog/farlog/pkg/config"
	"github.com/farlog/farlog/pkg/merge"
	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
)

type verifyOptions struct {
	stream     string
	publicKeys []string
	against    string
	anchors    []string

	isAnchored bool
}

func newVerifyCommand(env *environment) *cobra.Command {
	var options verifyOptions
	command := &cobra.Command{
		Use:   "verify PATH|MEMBERS [--stream NAME] [--against STORE] [--anchored] [--anchor FILE]...",
		Short: "Prove that nothing is missing, altered or out of order",
		Long: `Reads a store, a segment file or a ring image from its first byte to its last and checks every record
(CRC, lsn, seq, epoch) and, in a store, every segment header and the chain of signed manifests. Says between which
positions nothing is missing, altered or out of order, or names the first place where that fails: segment, lsn,
offset, reason. It needs no daemon, and may run beside a drain. Where the store has a merged order (farlog merge),
verify rebuilds it from the records and compares every entry, byte for byte.

A store alone does not prove where a stream ends: a store whose last segments were removed with their manifests looks as
if they had never been written, also with --public-key, and with --against if the other store has lost the same
segments. An anchor proves it: a commitment that is kept elsewhere. With --anchor verify fails if the store ends before
an anchor, lacks a manifest that it had, or holds other records than at that time, also if all of it was signed again
with the store's own key. --anchored takes the anchors that drains have reported to the control plane, up to a minute
old; it fails when the control plane does not answer, or knows no anchor of a stream. --output json prints the anchors
of the present ends in "anchors": keep that output where programs that write the store cannot write, and give it to
--anchor. Without an anchor, compare the last lsn that verify prints with the head of the stream's ring (farlog ring
show; "stored" in farlog status): it must not be lower.

--against compares the store with another one, such as that of another site (farlogd replica), record for record, and
names the first difference; one that has fewer records of a stream is behind, not different.

Of a stream with several members ("members:K URI URI ...", of rings or the paths of their images) it reads them all,
finds the log that the next writer would recover, and says which members agree with it, which records the others lack,
and which records a superblock cuts off. It only reads, and fences no writer; while a writer appends, it reads the
members at different times. A member that is behind is no failure. Too few members, a member that has lost records,
and two records of one epoch at one lsn are failures.

Rings on other hosts (ofi:, verbs:) are read by a reader's grant, which the control plane gives for the stream that
--stream names.

Exit code 0: nothing is missing, altered or out of order up to the printed ends. 1: something is, or PATH could not be
read. 2: the command line is wrong.` + archivePathText,
		Example: `  farlog verify data/store
  farlog verify data/store --stream desk7/orders --output json
  farlog verify data/store --against /mnt/site-b/store
  farlog verify "members:2 mem:/t1/orders.ring mem:/t2/orders.ring mem:/t3/orders.ring"
  farlog verify "members:2 ofi:tcp://t1:7000/orders ofi:tcp://t2:7000/orders ofi:tcp://t3:7000/orders" \
      --stream desk7/orders
  farlog verify data/store --public-key /secure/place/signing.pub
  farlog verify data/store --anchored
  farlog verify data/store --anchor /secure/place/anchors.json`,
		Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runVerify(cmd.Context(), env, args[0], options)
		},
	}
	flags := command.Flags()
	flags.StringVar(&options.stream, "stream", "", "`name` of the one stream of a store to verify (default: all), or "+
		"of the stream whose rings on other hosts MEMBERS names")
	flags.StringVar(&options.against, "against", "",
		"`directory` of another store of the same streams, to compare with")
	flags.BoolVar(&options.isAnchored, "anchored", false,
		"get anchors from the control plane; fail when it does not answer, or a stream has none")
	flags.StringArrayVar(&options.anchors, "anchor", nil,
		"`file` with anchors that the store must agree with (repeatable)")
	flags.StringArrayVar(&options.publicKeys, "public-key", nil, "`file` with a public key to trust instead of the "+
		"store's own (PEM); repeatable: of a store whose key was rotated, each that signed")
	return command
}

// verifyResult is what --output json prints.
type verifyResult struct {
	Kind    pathKind             `json:"kind"`
	Path    string               `json:"path"`
	OK      bool                 `json:"ok"`
	Store   string               `json:"store_uuid,omitempty"`
	Key     string               `json:"key_failure,omitempty"` // why signing.pub is not the store's key
	NoKey   bool                 `json:"key_missing,omitempty"` // there is no signing.pub
	Streams []store.StreamReport `json:"streams,omitempty"`
	Anchors []store.Anchor       `json:"anchors,omitempty"` // of the ends of the streams, to be kept elsewhere
	Merged  *merge.Report        `json:"merged,omitempty"`
	Against string               `json:"against,omitempty"`
	Compare []store.Comparison   `json:"compare,omitempty"`
	Ring    *ringReport          `json:"ring,omitempty"`
	Members *membersReport       `json:"members,omitempty"`
}

// ringReport is what a walk over a ring image found.
type ringReport struct {
	RingUUID       string    `json:"ring_uuid"`
	Stream         string    `json:"stream"`
	WriterEpoch    uint32    `json:"writer_epoch"`
	HeadLSN        uint64    `json:"head_lsn"`
	TailLSN        uint64    `json:"tail_lsn"`
	DurableHintLSN uint64    `json:"durable_hint_lsn"`
	HeadSeq        uint64    `json:"head_seq"`
	NextSeq        uint64    `json:"next_seq"`
	Records        uint64    `json:"records"`
	ControlRecords uint64    `json:"control_records"`
	Bytes          uint64    `json:"bytes"`
	FirstTime      time.Time `json:"first_time"`
	LastTime       time.Time `json:"last_time"`
	TailReason     string    `json:"tail_reason"`
	Failure        string    `json:"failure,omitempty"`
}

func runVerify(ctx context.Context, env *environment, path string, options verifyOptions) error {
	kind, err := detectKind(path)
	if err != nil {
		return err
	}
	if kind != kindStore && (options.stream != "" && kind != kindMembers || len(options.publicKeys) > 0 ||
		options.against != "" || options.isAnchored || len(options.anchors) > 0) {
		return usageErrorf(
			"verify %s: a %s: --stream, --public-key, --against, --anchored and --anchor are for a store",
			path,
			kind,
		)
	}
	result := verifyResult{Kind: kind, Path: path}
	progress, clear := verifyProgress(env)
	switch kind {
	case kindStore:
		err = verifyStore(ctx, env, &result, options, progress)
	case kindSegment:
		var report store.StreamReport
		report, err = store.VerifySegment(ctx, store.OS, path, progress)
		result.Streams, result.OK = []store.StreamReport{report}, report.Failure == nil
	case kindRing:
		err = verifyRing(ctx, &result)
	case kindMembers:
		err = verifyMembers(ctx, env, &result, options.stream)
	}
	clear()
	if err != nil {
		return err
	}
	if env.isJSON() {
		err = writeJSON(env.stdout, result)
	} else {
		err = result.writeTable(env.stdout)
	}
	if err == nil && !result.OK {
		err = result.failure()
	}
	return err
}

// verifyProgress writes one line over itself when somebody looks.
func verifyProgress(env *environment) (progress func(store.VerifyProgress), clear func()) {
	if !isTerminal(env.stderr) {
		return nil, func() {}
	}
	progress = func(p store.VerifyProgress) {
		fmt.Fprintf(env.stderr, "\r%s: segment %d, %d MiB, %d records\x1b[K", p.Stream, p.Segment, p.Bytes>>20,
			p.Records)
	}
	return progress, func() { fmt.Fprint(env.stderr, "\r\x1b[K") }
}

func verifyStore(ctx context.Context, env *environment, result *verifyResult, options verifyOptions,
	progress func(store.VerifyProgress),
) error {
	opened, err := openToRead(result.Path)
	if err != nil {
		return err
	}
	wanted := store.VerifyOptions{Stream: options.stream, Progress: progress}
	if wanted.PublicKeys, err = readPublicKeys(options.publicKeys); err != nil {
		return err
	}
	if wanted.Anchors, err = gatherAnchors(ctx, env, opened, options); err != nil {
		return err
	}
	report, err := opened.Verify(ctx, wanted)
	result.Store, result.Streams, result.OK = report.StoreUUID, report.Streams, report.OK()
	result.Key, result.NoKey = report.KeyFailure, report.IsKeyMissing
	result.keepEnds()
	if options.isAnchored {
		result.requireAnchors()
	}
	if err == nil && result.OK && options.against != "" {
		err = result.compare(ctx, opened, options)
	}
	if err != nil || options.stream != "" || !result.OK {
		return err
	}
	result.Merged, err = merge.Verify(ctx, opened, wanted.PublicKeys)
	result.OK = result.Merged == nil || result.Merged.Failure == nil
	return err
}

// readPublicKeys reads the files that --public-key names.
func readPublicKeys(files []string) (keys []ed25519.PublicKey, err error) {
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, pathError(file, err)
		}
		key, err := store.ParsePublicKey(raw)
		if err != nil {
			return nil, fmt.Errorf("--public-key %s: %w", file, err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

func verifyRing(ctx context.Context, result *verifyResult) error {
	image, file, err := openImage(result.Path)
	if err != nil {
		return err
	}
	defer file.Close()
	sb := image.Superblock
	r := &ringReport{
		RingUUID: sb.RingUUID.String(), Stream: sb.StreamName, WriterEpoch: sb.WriterEpoch,
		HeadLSN: image.Head.HeadLSN, HeadSeq: image.Head.HeadSeq, DurableHintLSN: image.DurableHintLSN,
	}
	result.Ring = r
	walk := image.Walk()
	for ctx.Err() == nil {
		var rec record.Record
		if rec, err = walk.Next(); err != nil {
			break
		}
		r.count(rec)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.TailLSN, r.NextSeq, r.TailReason = walk.Tail().LSN, walk.Tail().Seq, walk.Reason().Error()
	r.Bytes = r.TailLSN - r.HeadLSN
	switch {
	case errors.Is(err, record.ErrLost):
		r.Failure = err.Error()
	case err != io.EOF:
		return fmt.Errorf("%s: %w", result.Path, err)
	}
	result.OK = r.Failure == ""
	return nil
}

func (r *ringReport) count(rec record.Record) {
	switch {
	case rec.Flags.IsPad():
		return
	case rec.Flags.IsControl():
		r.ControlRecords++
	default:
		r.Records++
	}
	if r.FirstTime.IsZero() {
		r.FirstTime = rec.Time()
	}
	r.LastTime = rec.Time()
}

// failure is the first failure as one line for stderr.
func (v verifyResult) failure() error {
	for _, s := range v.Streams {
		if s.Failure != nil {
			return fmt.Errorf("verify %s: stream %s: %s", v.Path, s.Stream, s.Failure)
		}
	}
	if v.Key != "" {
		return fmt.Errorf("verify %s: %s", v.Path, v.Key)
	}
	for _, one := range v.Compare {
		if one.Difference != "" {
			return fmt.Errorf("verify %s against %s: stream %s: %s", v.Path, v.Against, one.Stream, one.Difference)
		}
	}
	if v.Merged != nil {
		return fmt.Errorf("verify %s: merged order: %s", v.Path, v.Merged.Failure)
	}
	if v.Members != nil {
		return fmt.Errorf("verify %s: %s", v.Path, v.Members.Failure)
	}
	return fmt.Errorf("verify %s: %s", v.Path, v.Ring.Failure)
}

func (v verifyResult) writeTable(w io.Writer) error {
	if v.Members != nil {
		return v.Members.writeTable(w)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if v.Ring != nil {
		v.Ring.writeTable(table)
		return table.Flush()
	}
	fmt.Fprintln(table, "STREAM\tSEGMENTS\tSEALED\tRECORDS\tCONTROL\tSUPERSEDED\tDUPLICATES\tBYTES\tFIRST\tLAST")
	for _, s := range v.Streams {
		tableRow(table, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n", s.Stream, s.Segments, s.SealedSegments, s.Records,
			s.ControlRecords, s.Superseded, s.Duplicates, config.FormatSize(uint64(s.Bytes)),
			recordTimeText(s.FirstTime), recordTimeText(s.LastTime))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	switch {
	case v.Key != "":
		fmt.Fprintf(w, "FAILED: %s\n", v.Key)
	case v.NoKey:
		fmt.Fprintln(w,
			"the store has no signing.pub, its public key to be kept elsewhere: that of store.json was taken")
	}
	if len(v.Streams) == 0 {
		_, err := fmt.Fprintln(w, "the store has no streams")
		return err
	}
	for _, s := range v.Streams {
		if _, err := fmt.Fprintf(w, "%s: %s\n", s.Stream, s.Statement()); err != nil {
			return err
		}
		if s.Tail != nil {
			fmt.Fprintf(w, "%s: behind that, %d bytes that are no whole record, or lie behind one that is not: "+
				"segment %s, offset %d: %s\n", s.Stream, s.Tail.Bytes, s.Tail.Segment, s.Tail.Offset, s.Tail.Reason)
		}
		if len(s.MovedTails) > 0 {
			fmt.Fprintf(w, "%s: kept from crashes before, beside the segments: %s\n", s.Stream,
				strings.Join(s.MovedTails, ", "))
		}
	}
	for _, one := range v.Compare {
		if _, err := fmt.Fprintf(w, "%s: %s\n", one.Stream, comparisonText(one, v.Against)); err != nil {
			return err
		}
	}
	if v.Merged != nil {
		_, err := fmt.Fprintf(w, "merged order: %s\n", v.Merged.Statement())
		return err
	}
	return nil
}

func (r *ringReport) writeTable(w io.Writer) {
	fmt.Fprintln(w, "RING\tSTREAM\tEPOCH\tHEAD\tTAIL\tRECORDS\tCONTROL\tFIRST\tLAST")
	fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\n", r.RingUUID, r.Stream, r.WriterEpoch, r.HeadLSN, r.TailLSN,
		r.Records, r.ControlRecords, recordTimeText(r.FirstTime), recordTimeText(r.LastTime))
	if r.Failure != "" {
		fmt.Fprintf(w, "FAILED: %s\n", r.Failure)
		return
	}
	fmt.Fprintf(w, "between lsn %d and %d nothing is missing, altered or out of order\n", r.HeadLSN, r.TailLSN)
}

// recordTimeText shows a timestamp of a record, - when there is none.
func recordTimeText(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02T15:04:05.000000Z")
}

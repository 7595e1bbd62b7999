package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farlog/farlog/pkg/config"
	"github.com/farlog/farlog/pkg/control/pattern"
	"github.com/farlog/farlog/pkg/query"
	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
)

const (
	formatTable           = "table"
	queryReadLimitDefault = 16 << 30
)

type queryOptions struct {
	streams   []string
	from, to  string
	records   recordFilter
	fields    []string
	isMerged  bool
	limit     uint64
	readLimit uint64
	format    string
	decrypt   decryptOptions

	request query.Request
	columns []query.Field
}

func newQueryCommand(env *environment) *cobra.Command {
	options := queryOptions{readLimit: queryReadLimitDefault}
	command := &cobra.Command{
		Use:   "query STORE... [flags]",
		Short: "Find records of stores by stream, time, class, key and an expression",
		Long: `Prints the application's records that count and that all of --stream, --from, --to, --class, --key and
--filter select; each of these may be left out. It only reads what was synced, and needs no daemon. Of sealed segments
it reads the parts that have records of the time: their signed manifests and their indexes say which.

Records come stream by stream, by name, or with --merged in one order by time. --filter is an expression of CEL over
store, stream, generation, epoch, lsn, seq, time, ts_ns, class, key, len, payload (bytes), text (the payload as text)
and fix (the fields of a FIX message by tag). A record for which it cannot be evaluated, such as fix['55'] of a message
without that tag, is a failure: '55' in fix asks first. So is fix of a malformed message.

Formats are table; json, an object a line as farlog dump prints it; csv, where bytes of no printable UTF-8 are \xNN
and a backslash is \\; and parquet, a file on standard output. All but table are exact. What retention has removed of
the time, and GAP records for what may be of it, are named on standard error. Damage in what has to be read is a
failure, exit code 1, and so are a stream that no store has and a query that has to read more than --read-limit.`,
		Example: `  farlog query data/store --stream 'desk7/**' --from -15m --class 3
  farlog query data/store --filter "fix['35'] == '8' && '150' in fix && fix['150'] == 'F'" --fields time,key,payload
  farlog query data/store --from 2026-11-20T14:30:00Z --to 2026-11-20T14:31:00Z --merged -o parquet > minute.parquet`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageErrorf("query: expected the directories of one store or more: %s", cmd.UseLine())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := options.complete(env, len(args), time.Now()); err != nil {
				return err
			}
			return runQuery(cmd.Context(), env, args, &options)
		},
	}
	flags := options.decrypt.register(command)
	flags.StringArrayVar(
		&options.streams,
		"stream",
		nil,
		"only of this stream: a `name`, or a pattern such as desk7/**; "+
			"several times: of any of them",
	)
	flags.StringVar(
		&options.from,
		"from",
		"",
		"first `time`: RFC 3339, nanoseconds since 1970, or -15m for a quarter of "+
			"an hour ago",
	)
	flags.StringVar(&options.to, "to", "", "`time` to stop before")
	options.records.declare(flags)
	flags.StringSliceVar(&options.fields, "fields", nil, "`names` of what is printed, of "+
		strings.Join(query.FieldNames(), ", "))
	flags.BoolVar(&options.isMerged, "merged", false, "in one order by time; each stream keeps its own order")
	flags.Uint64Var(&options.limit, "limit", 0, "`count` of records to print; 0 = all")
	flags.Var(
		(*config.SizeValue)(&options.readLimit),
		"read-limit",
		"most that may be read of the stores; 0 = no limit",
	)
	flags.StringVarP(&options.format, "output", "o", formatTable, "output `format`: table, json, csv or parquet")
	return command
}

// complete checks the options, and makes a request of them.
func (o *queryOptions) complete(env *environment, stores int, now time.Time) (err error) {
	if !slices.Contains([]string{formatTable, query.FormatJSON, query.FormatCSV, query.FormatParquet}, o.format) {
		return usageErrorf("--output %q: expected table, json, csv or parquet", o.format)
	}
	if o.format == query.FormatParquet && isTerminal(env.stdout) {
		return usageErrorf("--output parquet: standard output is a terminal: expected a file: > records.parquet")
	}
	for _, one := range o.streams {
		if err := pattern.Check(one); err != nil {
			return usageErrorf("--stream: %s", err)
		}
	}
	o.request = query.Request{
		Streams: o.streams, IsMerged: o.isMerged, Limit: o.limit,
		ReadLimit: int64(min(o.readLimit, math.MaxInt64)),
	}
	if o.request.Window, err = queryWindow(o.from, o.to, now); err != nil {
		return err
	}
	if err := o.records.complete(&o.request); err != nil {
		return err
	}
	return o.completeFields(stores)
}

func (o *queryOptions) completeFields(stores int) (err error) {
	names := o.fields
	if len(names) == 0 {
		names = query.FieldNames()
		if o.format == formatTable {
			names = []string{"store", "time", "stream", "lsn", "class", "key", "payload"}
		}
		if stores == 1 {
			names = slices.DeleteFunc(names, func(name string) bool { return name == "store" })
		}
	}
	if o.columns, err = query.Fields(names); err != nil {
		return usageErrorf("--fields: %s", err)
	}
	return nil
}

// queryWindow is the time from --from to --to.
func queryWindow(from, to string, now time.Time) (store.Window, error) {
	first, err := queryTime("--from", from, now)
	if err != nil {
		return store.Window{}, err
	}
	end, err := queryTime("--to", to, now)
	if err != nil {
		return store.Window{}, err
	}
	return windowOf(timeBound{from, first}, timeBound{to, end})
}

// timeBound is what --from or --to says; the text is empty where it is not given.
type timeBound struct {
	text string
	at   time.Time
}

// windowOf is the time from one bound to another. A time outside of those that records can have is the first or the
// last that there is.
func windowOf(from, to timeBound) (w store.Window, err error) {
	if from.text != "" && to.text != "" && !from.at.Before(to.at) {
		return w, usageErrorf("--from %q --to %q: expected the first to be earlier", from.text, to.text)
	}
	if last := time.Unix(0, math.MaxInt64); to.text != "" && !to.at.After(last) {
		w.To = max(record.TimestampOf(to.at), 1) // 0 is none
	}
	if from.text != "" {
		w.From = max(record.TimestampOf(from.at), 1)
	}
	return w, nil
}

// queryTime is the zero time when there is no text.
func queryTime(flag, text string, now time.Time) (time.Time, error) {
	at, err := parseReplayTime(text, now, time.Time{})
	if err != nil || strings.HasPrefix(text, "+") {
		return time.Time{}, usageErrorf(
			"%s %q: expected an RFC 3339 time, nanoseconds since 1970, or a duration such as -15m",
			flag,
			text,
		)
	}
	return at, nil
}

func runQuery(ctx context.Context, env *environment, paths []string, options *queryOptions) error {
	stores := make([]*store.Store, len(paths))
	for i, path := range paths {
		var err error
		if stores[i], err = openToRead(path); err != nil {
			return err
		}
	}
	began := time.Now()
	decrypter, err := options.decrypt.open()
	if err != nil {
		return err
	}
	options.request.Decrypter = decrypter
	q, err := query.Open(stores, options.request)
	if err != nil {
		return err
	}
	defer q.Close()
	for _, base := range q.Bases() {
		env.noteRemoved(base)
	}
	encoder, err := options.encoder(env.stdout)
	if err != nil {
		return err
	}
	look, clear := queryProgress(env)
	isLimited, err := q.Run(ctx, encoder.Write, look)
	clear()
	if err == nil || options.format != query.FormatParquet { // half a file of Parquet must not look like a whole one
		err = errors.Join(err, encoder.Close())
	}
	for _, gaps := range q.Gaps() {
		fmt.Fprintf(env.stderr, "farlog: stream %s has %s for what may be of the time, the first at lsn %d: %s\n",
			plain(gaps.Stream), counted(uint64(gaps.Count), "GAP record", "GAP records"), gaps.LSN, plain(gaps.First))
	}
	if err == nil {
		noteQuery(env, q, isLimited, time.Since(began))
	}
	return err
}

// noteQuery says what was read for the answer.
func noteQuery(env *environment, q *query.Query, isLimited bool, took time.Duration) {
	p := q.Progress()
	extent, known := q.Extent()
	text := ""
	if isLimited {
		text = ", and there are more (--limit)"
	}
	fmt.Fprintf(env.stderr, "%s%s, of %s: read %s, %d of %d segments, in %s\n", counted(p.Rows, "record", "records"),
		text, counted(uint64(q.Streams()), "stream", "streams"), humanBytes(uint64(p.Bytes)), extent.Segments, known,
		took.Round(time.Millisecond))
}

func (o *queryOptions) encoder(out io.Writer) (query.Encoder, error) {
	if o.format == formatTable {
		return newQueryTable(out, o.columns, terminalColumns(out)), nil
	}
	return query.NewEncoder(o.format, out, o.columns)
}

const progressInterval = 200 * time.Millisecond

// queryProgress writes one line over itself when somebody looks, as long as no rows do.
func queryProgress(env *environment) (look func(query.Progress), clear func()) {
	if !isTerminal(env.stderr) {
		return nil, func() {}
	}
	isShared, last := isTerminal(env.stdout), time.Now()
	look = func(p query.Progress) {
		if time.Since(last) < progressInterval || isShared && p.Rows > 0 {
			return
		}
		last = time.Now()
		fmt.Fprintf(env.stderr, "\rread %s of %s (%d %%), %s records found\x1b[K", humanBytes(uint64(p.Bytes)),
			humanBytes(uint64(p.Total)), 100*p.Bytes/max(p.Total, p.Bytes, 1), humanCount(p.Rows))
	}
	return look, func() { fmt.Fprint(env.stderr, "\r\x1b[K") }
}

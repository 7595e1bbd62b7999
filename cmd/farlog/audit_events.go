package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farlog/farlog/pkg/control/pattern"
	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
)

// auditEvent is a record of the audit stream, as far as this command reads it.
type auditEvent struct {
	ID      string    `json:"id"`
	Time    time.Time `json:"time"`
	Who     string    `json:"who"`
	What    string    `json:"what"`
	Stream  string    `json:"stream"`
	Changes []string  `json:"changes"`
	Outcome string    `json:"outcome"`
	Error   string    `json:"error"`
}

type auditOptions struct {
	auditStream              string
	what, who, streams, from string

	since time.Time
}

func newAuditCommand(env *environment) *cobra.Command {
	var options auditOptions
	command := &cobra.Command{
		Use:   "audit STORE [flags]",
		Short: "Show what was done to the control plane, when and by whom",
		Long: `Reads the audit stream from the store that it is drained into, and prints a line for each audit event:
streams and routes created, changed, deleted, grants, takeovers, members replaced, losses accepted, backups, each such
call that was refused, and what drains report: anchors of their stores and removals of segments. An event that was
recorded twice is shown once. --output json prints each event as it was recorded, a JSON object a line. It says on
standard error when events of the time asked for were removed by retention. It needs no daemon.`,
		Example: `  farlog audit data/store --from -24h
  farlog audit data/store --what AcceptLoss --stream 'desk7/*'`,
		Args: exactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := options.validate(); err != nil {
				return err
			}
			return runAudit(env, args[0], options)
		},
	}
	flags := command.Flags()
	flags.StringVar(&options.what, "what", "",
		"only calls of this `name`, such as CreateStream, ReplaceMember or Acquire*")
	flags.StringVar(&options.who, "who", "", "only calls by an identity whose certificate id contains this `text`")
	flags.StringVar(&options.streams, "stream", "",
		"only those on this stream or route: a `name`, or a pattern such as desk7/*")
	flags.StringVar(&options.from, "from", "", "only those since this `time`: RFC 3339, or -24h for a day ago")
	flags.StringVar(&options.auditStream, "audit-stream", "farlog/audit", "`name` of the stream that has them")
	return command
}

func (o *auditOptions) validate() error {
	if _, err := path.Match(o.what, ""); err != nil {
		return usageErrorf("--what %q: expected the name of a call, such as ReplaceMember or Acquire*", o.what)
	}
	if o.streams != "" {
		if err := pattern.Check(o.streams); err != nil {
			return usageErrorf("--stream %q: %v", o.streams, err)
		}
	}
	since, err := parseReplayTime(o.from, time.Now(), time.Time{})
	if err != nil || strings.HasPrefix(o.from, "+") {
		return usageErrorf("--from %q: expected an RFC 3339 time, or a duration such as -24h", o.from)
	}
	o.since = since
	return nil
}

func (o *auditOptions) isWanted(one auditEvent) bool {
	isCall := o.what == ""
	if !isCall {
		isCall, _ = path.Match(o.what, one.What) // a bad pattern was refused
	}
	return isCall && strings.Contains(one.Who, o.who) &&
		(o.streams == "" || pattern.Covers([]string{o.streams}, one.Stream)) && !one.Time.Before(o.since)
}

func runAudit(env *environment, dir string, options auditOptions) error {
	opened, err := openStore(dir)
	if err != nil {
		return err
	}
	reader, err := opened.OpenReader(options.auditStream, store.ReaderOptions{})
	if errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("store %s has no stream %q: expected the store that the audit stream is drained into "+
			"(farlog stream show %s names it)", dir, options.auditStream, options.auditStream)
	}
	if err != nil {
		return err
	}
	defer reader.Close()
	if base := reader.Base(); base.HasRemovedTime(record.TimestampOf(options.since)) {
		env.noteRemoved(base)
	}
	table := env.newTable()
	if !env.isJSON() {
		fmt.Fprintln(table, "TIME\tWHO\tWHAT\tON\tOUTCOME\tRESULT")
	}
	for seen := map[string]bool{}; ; {
		record, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return table.Flush()
		}
		if err != nil {
			return errors.Join(err, table.Flush())
		}
		var one auditEvent
		if err := json.Unmarshal(record.Payload, &one); err != nil {
			return errors.Join(fmt.Errorf("stream %q, lsn %d: expected an audit event: %w", options.auditStream,
				record.LSN, err), table.Flush())
		}
		if seen[one.ID] || !options.isWanted(one) {
			continue
		}
		seen[one.ID] = true
		if env.isJSON() {
			fmt.Fprintf(env.stdout, "%s\n", record.Payload)
			continue
		}
		tableRow(table, "%s\t%s\t%s\t%s\t%s\t%s\n", one.Time.Format(time.RFC3339), textOr(one.Who, "-"), one.What,
			textOr(one.Stream, "-"), one.Outcome, textOr(one.result(), "-"))
	}
}

// result is the error or the changes, in one line.
func (e *auditEvent) result() string {
	if e.Error != "" {
		return oneLine(errors.New(e.Error))
	}
	return strings.Join(e.Changes, "; ")
}

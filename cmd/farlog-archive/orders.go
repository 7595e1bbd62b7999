package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/farlog/farlog/pkg/archive"
)

const ordersText = `Orders are kept in the archive itself, under PREFIX/journal/, each locked, with who gave it and
why, and bound to the one before by its hash: none can be altered, or taken from between others, unnoticed. The last
ones only their locks keep, which run, hold and retention extend: as long as those of store.json, and 15 days ahead at
least. Orders lengthen the locks of what is archived, and never shorten one. What cannot be read or extended is named,
holds up nothing else, and is tried again; a segment whose manifest cannot be read counts as one of any time. farlog
archive run looks at them once a day and whenever it archives; hold add and retention set extend at once; verify
compares every lock with them.`

const holdText = `A legal hold keeps the archived segments of streams that have a record of a time range, whatever their
retention: their locks are extended for 30 days again and again, until the hold is removed. farlog archive run does so
once a day, half of the time ahead; so it has to run.

`

func newHoldCommand(env *environment) *cobra.Command {
	group := &cobra.Command{
		Use: "hold", Short: "Legal holds of an archive: add, list, remove", Long: holdText + ordersText,
		Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return &usageError{"hold: expected add, list or remove (--help says more)"}
		},
	}
	group.AddCommand(newHoldAddCommand(env), newHoldListCommand(env), newHoldRemoveCommand(env))
	return group
}

// declareOrder adds the flags that every order has.
func declareOrder(command *cobra.Command, order *archive.Entry) *cobra.Command {
	command.Flags().StringVar(&order.Who, "who", "", "`name` of who orders it")
	command.Flags().StringVar(&order.Why, "why", "", "`reason`")
	return command
}

func newHoldAddCommand(env *environment) *cobra.Command {
	order := archive.Entry{IsHold: true}
	command := declareOrder(&cobra.Command{
		Use: "add PATTERN --who WHO --why WHY [--from T] [--to T]", Short: "Keep what is archived of streams",
		Example: `  farlog archive hold add 'desk7/**' --from 2026-03-01T00:00:00Z --to 2026-04-01T00:00:00Z \
    --who 'J. Doe' --why 'inquiry 2026-17'`,
		Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			order.Pattern = args[0]
			return giveOrder(cmd.Context(), env, order)
		},
	}, &order)
	command.Flags().StringVar(&order.From, "from", "", "RFC 3339 `time` of the first record (default: the begin)")
	command.Flags().StringVar(&order.To, "to", "", "RFC 3339 `time` behind the last record (default: no end)")
	return command
}

func newHoldRemoveCommand(env *environment) *cobra.Command {
	var order archive.Entry
	return declareOrder(&cobra.Command{
		Use: "remove NUMBER --who WHO --why WHY", Short: "End a legal hold; locks that it has set stay",
		Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if order.Release, err = strconv.ParseUint(args[0], 10, 64); err != nil || order.Release == 0 {
				return &usageError{fmt.Sprintf("hold remove %q: expected the number of a hold", args[0])}
			}
			return giveOrder(cmd.Context(), env, order)
		},
	}, &order)
}

func newHoldListCommand(env *environment) *cobra.Command {
	var isAll bool
	command := &cobra.Command{
		Use: "list", Short: "Print the legal holds", Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			j, err := readJournal(cmd.Context(), env)
			if err != nil {
				return err
			}
			if isAll {
				return printOrders(env, j.Entries)
			}
			return printOrders(env, j.Holds())
		},
	}
	command.Flags().BoolVar(&isAll, "all", false, "all orders that were ever given, those of retention too")
	return command
}

const retentionText = `Says for streams how long segments stay locked, from when each was put: 5y or 7y for MiFID II, 6y
for SEC 17a-4. The longest of run --retain and all orders that match a stream counts. An order can be followed by a
longer one only.

`

func newRetentionCommand(env *environment) *cobra.Command {
	group := &cobra.Command{
		Use: "retention", Short: "How long streams stay locked: set, list, apply", Long: retentionText + ordersText,
		Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return &usageError{"retention: expected set, list or apply (--help says more)"}
		},
	}
	var order archive.Entry
	group.AddCommand(declareOrder(&cobra.Command{
		Use: "set PATTERN PERIOD --who WHO --why WHY", Short: "Lock streams for a period, or a longer one",
		Example: `  farlog archive retention set 'desk7/**' 7y --who 'J. Doe' --why 'MiFID II, RTS 6'`,
		Args:    exactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			order.Pattern, order.Retain = args[0], args[1]
			return giveOrder(cmd.Context(), env, order)
		},
	}, &order), &cobra.Command{
		Use: "list", Short: "Print the orders", Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			j, err := readJournal(cmd.Context(), env)
			if err != nil {
				return err
			}
			var list []archive.Entry
			for _, one := range j.Entries {
				if one.Retain != "" {
					list = append(list, one)
				}
			}
			return printOrders(env, list)
		},
	}, &cobra.Command{
		Use: "apply", Short: "Extend locks now, as run does once a day", Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error { return extend(cmd.Context(), env) },
	})
	return group
}

func readJournal(ctx context.Context, env *environment) (archive.Journal, error) {
	bucket, err := env.open()
	if err != nil {
		return archive.Journal{}, err
	}
	return bucket.ReadJournal(ctx)
}

// giveOrder writes an order and carries it out.
func giveOrder(ctx context.Context, env *environment, order archive.Entry) error {
	bucket, err := env.open()
	if err != nil {
		return err
	}
	if order, err = bucket.Order(ctx, order); err != nil {
		return err
	}
	if !env.isJSON() {
		if err := printOrders(env, []archive.Entry{order}); err != nil {
			return err
		}
	}
	if err := extend(ctx, env); err != nil {
		return fmt.Errorf("order %d is given, and not carried out yet: run farlog archive retention apply: %w",
			order.Number, err)
	}
	return nil
}

func extend(ctx context.Context, env *environment) error {
	bucket, err := env.open()
	if err != nil {
		return err
	}
	done, failure := archive.Extend(ctx, bucket) // of some objects, perhaps
	if env.isJSON() {
		return errors.Join(failure, env.writeJSON(done))
	}
	until := "no order is of a segment"
	if !done.Until.IsZero() {
		until = "the last one until " + done.Until.UTC().Format(time.RFC3339)
	}
	_, err = fmt.Fprintf(env.stdout, "%d of %d segments are kept by orders, %d locks were extended: %s\n", done.Ordered,
		done.Segments, done.Extended, until)
	return errors.Join(failure, err)
}

func printOrders(env *environment, list []archive.Entry) error {
	if env.isJSON() {
		return env.writeJSON(list)
	}
	table := tabwriter.NewWriter(env.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "NUMBER\tORDER\tSTREAMS\tFROM\tTO\tAT\tWHO\tWHY")
	for _, one := range list {
		what := "hold"
		switch {
		case one.Retain != "":
			what = "retain " + one.Retain
		case one.Release != 0:
			what = fmt.Sprintf("end of hold %d", one.Release)
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%s\t%q\t%q\n", one.Number, what, orDash(one.Pattern),
			orDash(one.From), orDash(one.To), one.At, one.Who, one.Why)
	}
	return table.Flush()
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

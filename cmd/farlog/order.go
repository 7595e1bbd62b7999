package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/farlog/farlog/pkg/audit"
)

type orderOptions struct {
	store, stream string
	decrypt       decryptOptions
}

func newOrderCommand(env *environment) *cobra.Command {
	var options orderOptions
	command := &cobra.Command{
		Use:   "order KEY --store DIR --stream NAME",
		Short: "Show the life of an order, message by message",
		Long: `Reads a stream of FIX messages from a store and shows what happened to one order: each message with its
time, what it says, and the quantities after it. KEY is any ClOrdID that the order has had, or its OrderID. Cancel and
replace requests, which give an order new ids, are followed in both directions.

What contradicts the order state rules of FIX is named below the table: a fill after a cancel, a quantity that goes
back, a report that is missing. It needs no daemon. An order that is not in the stream is a failure, exit code
1.` + archivePathText,
		Example: `  farlog order D7-000056 --store data/store --stream desk7/orders
  farlog order X100056 --store data/store --stream desk7/orders --output json | jq .anomalies`,
		Args: exactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if options.store == "" || options.stream == "" {
				return usageErrorf("order: --store %q, --stream %q: expected both, a directory and a stream's name",
					options.store, options.stream)
			}
			return runOrder(env, args[0], options)
		},
	}
	flags := options.decrypt.register(command)
	flags.StringVar(&options.store, "store", "", "`directory` of the store")
	flags.StringVar(&options.stream, "stream", "", "`name` of the stream")
	return command
}

func runOrder(env *environment, key string, options orderOptions) error {
	opened, err := openToRead(options.store)
	if err != nil {
		return err
	}
	decrypter, err := options.decrypt.openStream()
	if err != nil {
		return err
	}
	order, err := audit.FindOrder(audit.StreamSource(opened, options.stream, decrypter), key)
	if isBegunBefore(order, err) { // the base is read last: one that comes meanwhile counts as well
		base, baseErr := opened.Base(options.stream)
		if baseErr != nil {
			return baseErr
		}
		if base != nil {
			env.noteRemoved(base)
		}
	}
	if errors.Is(err, audit.ErrNotFound) {
		return fmt.Errorf("order %q: not in stream %q of store %s: expected a ClOrdID or an OrderID of a FIX message "+
			"there", key, options.stream, options.store)
	}
	if err != nil {
		return err
	}
	if env.isJSON() {
		encoder := json.NewEncoder(env.stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(order)
	}
	return order.WriteTable(env.stdout)
}

// isBegunBefore reports whether messages of an order may lie before all that was read: it was not found, or its first
// message is missing.
func isBegunBefore(order *audit.Order, err error) bool {
	if err != nil {
		return errors.Is(err, audit.ErrNotFound)
	}
	return slices.ContainsFunc(order.Anomalies, func(a audit.Anomaly) bool { return a.Kind == audit.MissingOrder })
}

package main

import (
	"fmt"
	"os/user"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/farlog/farlog/pkg/config"
	"github.com/farlog/farlog/pkg/retention"
	"github.com/farlog/farlog/pkg/store"
)

const retentionText = `The rules and holds lie in the store, in retention.json; the drain of the store removes by them
once a minute, whole sealed segments, the oldest first. Where several rules match a stream, what any of them keeps is
kept. A segment goes only when it is archived (farlog archive run), or when its rules say --without-archive: what is
removed is gone then. And it goes only when every reader that a rule names (--reader) has passed it, and the merged
order, where the store has one. What cannot be read, or is not known, keeps everything. A stream begins at its base
manifest then; farlog verify prints what was removed.`

func newStoreCommand(env *environment) *cobra.Command {
	rules := newGroup("retention", "How long the streams of a store are kept",
		newRetentionSetCommand(env), newRetentionUnsetCommand(env), newRetentionListCommand(env),
		newRetentionHoldCommand(env), newRetentionReleaseCommand(env), newRetentionApplyCommand(env))
	rules.Long = retentionText
	return newGroup("store", "Keep, hold, remove and salvage what is in a store; its keys", rules,
		newStoreKeyCommand(env), newStoreSalvageCommand(env))
}

func newRetentionSetCommand(env *environment) *cobra.Command {
	var rule retention.Rule
	age, hasNoReaders := time.Duration(0), false
	command := &cobra.Command{
		Use:   "set STORE PATTERN (--max-age|--max-size|--never) (--reader|--no-readers)",
		Short: "Say how long streams are kept; replaces the rule of the same pattern",
		Long:  retentionText,
		Example: `  farlog store retention set data/store 'desk7/**' --max-age 720h --without-archive \
    --reader consumer:state/risk.json
  farlog store retention set data/store desk7/orders --never --no-readers`,
		Args: exactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			if hasNoReaders == (len(rule.Readers) > 0) {
				return usageErrorf("store retention set: expected --reader for each who must have read what is " +
					"removed, or --no-readers")
			}
			if age != 0 {
				rule.MaxAge = age.String()
			}
			rule.Pattern, rule.SetBy, rule.SetAt = args[1], userName(), time.Now().UTC().Format(time.RFC3339)
			if err := rule.Check(); err != nil {
				return usageErrorf("%s", err)
			}
			return changeRetention(args[0], func(p *retention.Policy) error {
				p.Rules = append(withoutRule(p.Rules, rule.Pattern), rule)
				fmt.Fprintf(env.stdout, "%s\n", rule)
				return nil
			})
		},
	}
	flags := command.Flags()
	flags.Var((*config.DurationValue)(&age), "max-age", "remove segments whose newest record is older")
	flags.Var((*config.SizeValue)(&rule.MaxBytes), "max-size", "remove the oldest segments of a stream that has more")
	flags.BoolVar(&rule.IsKept, "never", false, "keep everything")
	flags.BoolVar(&rule.WithoutArchive, "without-archive", false, "also what is not archived: it is gone then")
	flags.StringArrayVar(&rule.Readers, "reader", nil, "`who` must have passed what is removed: consumer:FILE, the "+
		"position of a named consumer, or store:DIR, the store of a replica (repeatable)")
	flags.BoolVar(&hasNoReaders, "no-readers", false, "nobody reads these streams but the merge of this store")
	return command
}

func withoutRule(rules []retention.Rule, pattern string) []retention.Rule {
	return slices.DeleteFunc(rules, func(r retention.Rule) bool { return r.Pattern == pattern })
}

func newRetentionUnsetCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use: "unset STORE PATTERN", Short: "Take a rule away", Args: exactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			return changeRetention(args[0], func(p *retention.Policy) error {
				before := len(p.Rules)
				p.Rules = withoutRule(p.Rules, args[1])
				if len(p.Rules) == before {
					return fmt.Errorf("store %s has no retention rule %q; farlog store retention list names them",
						args[0], args[1])
				}
				fmt.Fprintf(env.stdout, "retention of %s: no rule\n", args[1])
				return nil
			})
		},
	}
}

func newRetentionHoldCommand(env *environment) *cobra.Command {
	var hold retention.Hold
	command := &cobra.Command{
		Use:     "hold STORE PATTERN --who WHO --why WHY",
		Short:   "Keep streams whatever the rules say (legal hold)",
		Example: `  farlog store retention hold data/store 'desk7/**' --who 'J. Doe' --why 'inquiry 2026-17'`,
		Args:    exactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			hold.Pattern, hold.At = args[1], time.Now().UTC().Format(time.RFC3339)
			if err := hold.Check(); err != nil {
				return usageErrorf("%s", err)
			}
			return changeRetention(args[0], func(p *retention.Policy) error {
				p.Holds = append(p.Holds, hold)
				fmt.Fprintf(env.stdout, "%s is held by %s: %s\n", hold.Pattern, hold.Who, hold.Why)
				return nil
			})
		},
	}
	command.Flags().StringVar(&hold.Who, "who", "", "`name` of who orders it")
	command.Flags().StringVar(&hold.Why, "why", "", "`reason`")
	return command
}

func newRetentionReleaseCommand(env *environment) *cobra.Command {
	var who string
	command := &cobra.Command{
		Use: "release STORE PATTERN --who WHO", Short: "End a legal hold", Args: exactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			return changeRetention(args[0], func(p *retention.Policy) error {
				before := len(p.Holds)
				p.Holds = slices.DeleteFunc(p.Holds, func(h retention.Hold) bool {
					return h.Pattern == args[1] && h.Who == who
				})
				if len(p.Holds) == before {
					return fmt.Errorf("store %s has no hold of %q by %q; farlog store retention list names them",
						args[0], args[1], who)
				}
				fmt.Fprintf(env.stdout, "%s is no longer held by %s\n", args[1], who)
				return nil
			})
		},
	}
	command.Flags().StringVar(&who, "who", "", "`name` of who ordered it")
	return command
}

func newRetentionListCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use: "list STORE", Short: "Print rules and holds, what may go now, and what keeps it", Args: exactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			opened, err := openStore(args[0])
			if err != nil {
				return err
			}
			policy, err := retention.Load(args[0])
			if err != nil {
				return err
			}
			results, err := (&retention.Enforcer{Store: opened, Clock: retention.NewClock()}).Plan()
			if err != nil {
				return err
			}
			if env.isJSON() {
				return env.writeJSON(struct {
					retention.Policy
					Streams []retention.Result `json:"streams"`
				}{policy, results})
			}
			for _, rule := range policy.Rules {
				fmt.Fprintf(env.stdout, "%s, readers %q\n", rule, rule.Readers)
			}
			for _, hold := range policy.Holds {
				fmt.Fprintf(env.stdout, "hold of %s by %s since %s: %s\n", hold.Pattern, hold.Who, hold.At, hold.Why)
			}
			return printRetention(env, results)
		},
	}
}

func newRetentionApplyCommand(env *environment) *cobra.Command {
	var keys storeKeys
	clock := retention.NewClock()
	command := &cobra.Command{
		Use: "apply STORE", Short: "Remove now what may go, in a store that no drain writes", Args: exactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			opened, err := openSigningStore(args[0], &keys)
			if err != nil {
				return err
			}
			results, err := (&retention.Enforcer{Store: opened, Clock: clock}).Enforce()
			if err != nil {
				return err
			}
			return printRetention(env, results)
		},
	}
	keys.declare(command.Flags())
	command.Flags().BoolVar(&clock.IsChecked, "clock-checked", false,
		"this host's clock is right: ages count by it, and not by the newest record of the store")
	return command
}

func printRetention(env *environment, results []retention.Result) error {
	if env.isJSON() {
		return env.writeJSON(results)
	}
	table := env.newTable()
	fmt.Fprintln(table, "STREAM\tSEGMENTS\tBEGINS AT\tKEPT BECAUSE")
	for _, one := range results {
		fmt.Fprintf(table, "%s\t%d\t%d\t%s\n", one.Stream, one.Segments, one.Before, one.Blocked)
	}
	return table.Flush()
}

// changeRetention changes the policy of a store that is there.
func changeRetention(dir string, change func(p *retention.Policy) error) error {
	if _, err := store.Open(dir, store.Options{}); err != nil {
		return err
	}
	return retention.Change(dir, change)
}

func userName() string {
	if who, err := user.Current(); err == nil {
		return who.Username
	}
	return "unknown"
}

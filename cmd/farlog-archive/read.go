package main

import (
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/farlog/farlog/pkg/archive"
	"github.com/farlog/farlog/pkg/store"
)

const probeText = `Puts a locked object and tries to destroy it: delete, with bypass, in the call that deletes several;
shorten its retention, downgrade it to GOVERNANCE; suspend the bucket's versioning; overwrite it. After each attempt it
looks whether the object is as it was. Fails when any attempt succeeds: such a storage must not be trusted with an
archive. It also says whether the storage enforces conditional puts and checksums, which an archive can do without. The
object stays for ten minutes, under PREFIX/probe/.

A refusal proves the lock only when a policy is not its cause. So each attempt is made first, with the same credentials,
on another object whose lock does not forbid it, and has to succeed there (of suspending: versioning is enabled once
more). Where that fails the result is "not proved", and the exit code 3. The credentials need s3:PutObject,
s3:PutObjectRetention, s3:DeleteObjectVersion, s3:BypassGovernanceRetention and s3:PutBucketVersioning beside those to
read; those of farlog archive run do not need the last three: where its own probe proves nothing it believes the note of
the last probe that proved or refuted all (PREFIX/probe/proved.json), for a day.`

func newProbeCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use: "probe", Short: "Try to destroy a locked object of the bucket", Long: probeText, Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			bucket, err := env.open()
			if err != nil {
				return err
			}
			if err := bucket.Check(cmd.Context(), archive.Period{}); err != nil {
				return err
			}
			report, err := bucket.Probe(cmd.Context())
			if err != nil {
				return err
			}
			if env.isJSON() {
				if err := env.writeJSON(report); err != nil {
					return err
				}
			} else {
				table := tabwriter.NewWriter(env.stdout, 0, 8, 2, ' ', 0)
				for _, one := range report.Findings {
					fmt.Fprintf(table, "%s\t%s\t%s\n", one.Attempt, one.Result, one.Detail)
				}
				if err := table.Flush(); err != nil {
					return err
				}
			}
			return report.Err()
		},
	}
}

const verifyText = `Proves an archive from the bucket alone: every object that counts is there, in one version, locked
as long as its manifest says (--retain: as long as that, from the sealing of its segment on), and every stream is whole
by the rules of farlog verify, which reads every byte of the segments. The orders of its journal (hold, retention) are
whole, locked, and carried out. Further versions with the same bytes are counted
apart: an answer was lost. Other bytes, a delete marker, and objects that no manifest names are failures.`

func newVerifyCommand(env *environment) *cobra.Command {
	var options archive.VerifyOptions
	var keep archive.Period
	var publicKeys []string
	command := &cobra.Command{
		Use: "verify", Short: "Prove an archive from the bucket alone", Long: verifyText, Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if keep != (archive.Period{}) {
				options.Keep = &keep
			}
			for _, name := range publicKeys {
				raw, err := os.ReadFile(name)
				if err != nil {
					return fmt.Errorf("--public-key: %w", err)
				}
				key, err := store.ParsePublicKey(raw)
				if err != nil {
					return fmt.Errorf("--public-key %s: %w", name, err)
				}
				options.Store.PublicKeys = append(options.Store.PublicKeys, key)
			}
			bucket, err := env.open()
			if err != nil {
				return err
			}
			report, err := archive.Verify(cmd.Context(), bucket, options)
			if err != nil {
				return err
			}
			return printReport(env, report)
		},
	}
	flags := command.Flags()
	flags.StringArrayVar(
		&publicKeys,
		"public-key",
		nil,
		"`file` with a public key, kept elsewhere, to trust instead of "+
			"the store's own (repeatable)",
	)
	flags.StringVar(&options.Store.Stream, "stream", "", "read the records of this `stream` only")
	flags.Var(&keep, "retain", "expect every object to be locked so long from its segment's sealing on, such as 6y")
	return command
}

func printReport(env *environment, report archive.Report) error {
	if env.isJSON() {
		if err := env.writeJSON(report); err != nil {
			return err
		}
	} else {
		for _, s := range report.Store.Streams {
			result := fmt.Sprintf("%d records, nothing is missing, altered or out of order", s.Records)
			if s.Failure != nil {
				result = s.Failure.String()
			}
			fmt.Fprintf(env.stdout, "stream %s: %d segments, %s\n", s.Stream, s.Segments, result)
		}
		for _, failure := range report.Failures {
			fmt.Fprintf(env.stdout, "FAILED: %s\n", failure)
		}
		if report.Store.KeyFailure != "" {
			fmt.Fprintf(env.stdout, "FAILED: %s\n", report.Store.KeyFailure)
		}
		fmt.Fprintf(env.stdout, "%s: %d segments, %d objects, %d bytes; %d orders, %d duplicates, "+
			"%d uncommitted\n",
			report.Archive, report.Segments, report.Objects, report.Bytes, report.Orders,
			report.Duplicates, report.Uncommitted)
	}
	if !report.OK() {
		return errReported
	}
	return nil
}

const restoreText = `Makes a store of an archive in a directory that is missing or empty, and verifies it. Run again
after an interruption it resumes. The signing key is not in the archive: who appends to the store has to have it
(--store-keys).`

func newRestoreCommand(env *environment) *cobra.Command {
	var options archive.RestoreOptions
	command := &cobra.Command{
		Use: "restore DIR", Short: "Make a store of an archive", Long: restoreText, Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			bucket, err := env.open()
			if err != nil {
				return err
			}
			restored, err := archive.Restore(cmd.Context(), bucket, args[0], options)
			if err != nil {
				return err
			}
			report, err := restored.Verify(cmd.Context(), store.VerifyOptions{})
			if err != nil {
				return err
			}
			for _, s := range report.Streams {
				fmt.Fprintf(env.stdout, "stream %s: %d segments, %d records\n", s.Stream, s.Segments, s.Records)
				if s.Failure != nil {
					fmt.Fprintf(env.stdout, "FAILED: %s\n", s.Failure)
				}
			}
			if !report.OK() {
				return errReported
			}
			return nil
		},
	}
	command.Flags().StringVar(&options.Stream, "stream", "", "restore this `stream` only")
	return command
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/config"
)

func newApplyCommand(env *environment) *cobra.Command {
	path, isDryRun, isPrune, wait := "", false, false, time.Duration(0)
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Create and change targets, drains, streams and routes until they are as a file declares them",
		Long: `Reads a file of targets, drains, streams and routes (docs/reference/fabric.md has its keys), shows
what differs, and applies the changes. Running it again changes nothing. What the file does not declare stays as it
is, unless --prune deletes it: as farlog stream delete does, all of it or nothing. A file with mistakes changes
nothing; all mistakes are printed, each with its line and column.

Declared objects that do not run yet are shown with the reason: a host without a target, a stream without its ring or
drain. Of new streams only those are shown that no target accepts; of many, the first and their count. --wait waits
until everything runs.

Exit code 0: applied. With --wait 0: applied, and everything runs, 3: applied, and the printed objects do not run yet.
With --dry-run 0: nothing to change, and everything runs, 1: there are changes, 3: nothing to change, and some objects
do not run. 2: the file has mistakes.`,
		Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if path == "" {
				return usageErrorf("apply: expected -f FILE (- for standard input)")
			}
			if isDryRun && cmd.Flags().Changed("wait") {
				return usageErrorf("--wait: expected none with --dry-run, which changes nothing that would become so")
			}
			return applyFabric(cmd.Context(), env, applying{path, isDryRun, isPrune, wait})
		},
	}
	cmd.Flags().StringVarP(&path, "file", "f", "",
		"YAML `file` of targets, drains, streams and routes; - for standard input")
	cmd.Flags().BoolVar(&isDryRun, "dry-run", false, "show what differs and change nothing")
	cmd.Flags().Var((*config.DurationValue)(&wait), "wait",
		"how long to wait until all that is declared runs, such as 2m; progress is printed")
	cmd.Flags().BoolVar(&isPrune, "prune", false,
		"delete what the file does not declare: streams that nobody writes and whose records are stored")
	return cmd
}

// applying is how a file is applied.
type applying struct {
	path              string
	isDryRun, isPrune bool
	wait              time.Duration // 0: not at all
}

func applyFabric(ctx context.Context, env *environment, how applying) error {
	raw, err := readWhole(env, how.path)
	if err != nil {
		return err
	}
	file := readFabric(raw)
	client, err := env.dialControl()
	if err != nil {
		return err
	}
	defer client.Close()
	calls, cancel := context.WithTimeout(ctx, client.timeout)
	defer cancel()
	answer, err := askAndApply(calls, env, client, file, how)
	if err != nil {
		return err
	}
	if len(file.problems) > 0 {
		return printProblems(env, how.path, file, "changed")
	}
	isSo := len(answer.Changes) == 0
	if how.wait > 0 {
		return waitApplied(ctx, env, client, file.fabric, answer, how)
	}
	if err := showChanges(env, answer, how.isDryRun); err != nil {
		return err
	}
	switch {
	case how.isDryRun && !isSo:
		return &exitError{code: exitFailure}
	case how.isDryRun && len(answer.Drift) > 0:
		return &exitError{code: exitDrift}
	}
	return nil
}

// askAndApply asks what would be done first, so that all that is wrong is told before anything is, and then has it
// done. What the control plane itself changes in between, such as the drain of a stream, is no reason to give up: it is
// asked again.
func askAndApply(ctx context.Context, env *environment, client *controlClient, file *fabricFile, how applying,
) (*api.ApplyFabricResponse, error) {
	for {
		answer, err := client.ApplyFabric(ctx, &api.ApplyFabricRequest{
			Fabric: file.fabric, DryRun: true,
			Prune: how.isPrune,
		})
		if err != nil {
			problems, more := problemsIn(err)
			if len(problems) == 0 && len(file.problems) == 0 {
				return nil, client.explain(ctx, "", err)
			}
			if len(problems) == 0 {
				fmt.Fprintf(env.stderr, "farlog: the control plane was not asked what else is wrong: %s\n",
					oneLine(client.explain(ctx, "", err)))
			}
			file.addProblems(problems)
			file.more = more
		}
		if len(file.problems) > 0 || how.isDryRun || len(answer.Changes) == 0 {
			return answer, nil
		}
		done, err := client.ApplyFabric(ctx, &api.ApplyFabricRequest{
			Fabric: file.fabric, Revision: answer.Revision,
			Prune: how.isPrune,
		})
		if status.Code(err) == codes.Aborted && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return nil, client.explain(ctx, "", err)
		}
		return done, nil
	}
}

// waitApplied shows what was changed, and waits until all that is declared is so.
func waitApplied(ctx context.Context, env *environment, client *controlClient, fabric *api.Fabric,
	answer *api.ApplyFabricResponse, how applying,
) (err error) {
	if !env.isJSON() {
		shown := &api.ApplyFabricResponse{Changes: answer.Changes, Undeclared: answer.Undeclared}
		if err := showChanges(env, shown, false); err != nil {
			return err
		}
	}
	begun := time.Now()
	if answer.Drift, err = waitSo(ctx, env, client, fabric, how.wait); err != nil {
		return err
	}
	if env.isJSON() {
		err = env.writeProto(answer)
	} else {
		showDrift(env, answer.Drift)
	}
	if len(answer.Drift) > 0 {
		fmt.Fprintf(env.stderr, "%d of the declared objects do not run after %s\n", len(answer.Drift), how.wait)
		return cmp.Or(err, error(&exitError{code: exitDrift}))
	}
	fmt.Fprintf(env.stderr, "everything declared runs after %s\n", time.Since(begun).Round(time.Millisecond))
	return err
}

func readWhole(env *environment, path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(env.stdin)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, usageErrorf("file %q: %s", path, errors.Unwrap(err))
	}
	return raw, nil
}

// problemsIn takes the details out of an error, and how many others are wrong that it does not tell.
func problemsIn(err error) (problems []*api.Problem, more int) {
	for _, detail := range status.Convert(err).Details() {
		if list, ok := detail.(*api.Problems); ok {
			return list.Problems, int(list.More)
		}
	}
	return nil, 0
}

// problemsTold is how many are told: by then a reader sees what is wrong, as far as one mistake has made many.
const problemsTold = 100

func printProblems(env *environment, path string, file *fabricFile, undone string) error {
	told := file.problems[:min(len(file.problems), problemsTold)]
	count := len(file.problems) + file.more
	if env.isJSON() {
		if err := env.writeJSON(map[string]any{"file": path, "problems": told, "more": count - len(told)}); err != nil {
			return err
		}
	}
	for _, one := range told {
		fmt.Fprintf(env.stderr, "%s:%d:%d: %s\n", path, one.Line, one.Column, one.text())
	}
	things := counted(uint64(count), "problem", "problems")
	if len(told) < count {
		things += fmt.Sprintf(" of which %d are shown", len(told))
	}
	return usageErrorf("%s: %s, nothing is %s", path, things, undone)
}

func showChanges(env *environment, answer *api.ApplyFabricResponse, isDryRun bool) error {
	if env.isJSON() {
		return env.writeProto(answer)
	}
	created, changed, deleted := 0, 0, 0
	for _, change := range answer.Changes {
		sign := "~"
		switch {
		case change.Created:
			sign = "+"
			created++
		case change.Deleted:
			sign = "-"
			deleted++
		default:
			changed++
		}
		fmt.Fprintln(env.stdout, plain(strings.TrimSpace(fmt.Sprintf("%s %s %s  %s", sign, change.Kind, change.Name,
			fieldsText(change)))))
	}
	deletedText := ""
	if deleted > 0 {
		deletedText = fmt.Sprintf(", %d to be deleted", deleted)
	}
	showDrift(env, answer.Drift)
	if len(answer.Undeclared) > 0 {
		fmt.Fprintf(env.stderr, "not declared, stays as it is: %s\n", strings.Join(answer.Undeclared, ", "))
	}
	switch {
	case created+changed+deleted == 0 && len(answer.Drift) > 0:
		fmt.Fprintf(env.stderr, "nothing to change; %d of the declared objects do not run\n", len(answer.Drift))
	case created+changed+deleted == 0:
		fmt.Fprintln(env.stderr, "nothing to change")
	case isDryRun:
		fmt.Fprintf(env.stderr, "%d to create, %d to change%s; nothing is changed\n", created, changed, deletedText)
	case len(answer.Drift) > 0:
		fmt.Fprintf(env.stderr, "%d created, %d changed%s; %d of the declared objects do not run\n", created, changed,
			deletedText, len(answer.Drift))
	default:
		fmt.Fprintf(env.stderr, "%d created, %d changed%s\n", created, changed, deletedText)
	}
	return nil
}

// fieldsText is what of it is another, by the keys and in the units of the file that declares it. A field that this
// program does not know keeps its name.
func fieldsText(change *api.Change) string {
	texts := make([]string, 0, len(change.Fields))
	for _, field := range change.Fields {
		key, before, after := field.Name, field.Before, field.After
		if known, ok := fieldNamed(change.Kind, field.Name); ok {
			key = known.key
			if known.fromAPI != nil {
				before, after = known.fromAPI(before), known.fromAPI(after)
			}
		}
		if change.Created {
			texts = append(texts, key+" "+after)
			continue
		}
		texts = append(texts, fmt.Sprintf("%s %s -> %s", key, dashed(before), dashed(after)))
	}
	return strings.Join(texts, ", ")
}

func newExportCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "export",
		Short: "Print the targets, drains, streams and routes that are declared, as a file for farlog apply",
		Args:  exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer, err := ask(cmd.Context(), env, "", &api.GetFabricRequest{}, (*controlClient).GetFabric)
			if err != nil {
				return err
			}
			raw, err := writeFabric(answer.Fabric)
			if err != nil {
				return err
			}
			if env.isJSON() { // the same keys: apply reads JSON as well
				var values any
				if err := yaml.Unmarshal(raw, &values); err != nil {
					return err
				}
				return env.writeJSON(values)
			}
			_, err = env.stdout.Write(raw)
			return err
		},
	}
}

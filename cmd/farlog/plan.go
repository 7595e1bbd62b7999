package main

import (
	"fmt"

	"github.com/spf13/cobra"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/plan"
)

func newPlanCommand(env *environment) *cobra.Command {
	path := ""
	cmd := &cobra.Command{
		Use: "plan -f FILE",
		Short: "Compute ring sizes, link loads, media wear and minimum latencies for declared rates, and say what " +
			"does not fit",
		Long: `Computes, for a fabric.yaml with a section plan (what is appended where, sites, links, media): the ring
that an outage needs, the load of each link and card, the wear of media in a year, the minimum latency of an append to
each stream and route over fibre and network devices, and how long drains need to catch up. Rings are where the
control plane would place them in an empty fabric. It needs no daemon and measures nothing; docs/reference/plan.md has
the keys and the formulas.

Exit code 0: the plan holds. 1: it does not; all reasons are printed. 2: the file has mistakes; all are printed, each
with its line and column.`,
		Args: exactArgs(0),
		RunE: func(*cobra.Command, []string) error {
			if path == "" {
				return usageErrorf("plan: expected -f FILE, a fabric.yaml with a section plan, as " +
					"docs/reference/plan.md has it (- for standard input)")
			}
			return runPlan(env, path)
		},
	}
	cmd.Flags().StringVarP(&path, "file", "f", "", "fabric.yaml `file` with a section plan; - for standard input")
	return cmd
}

func runPlan(env *environment, path string) error {
	raw, err := readWhole(env, path)
	if err != nil {
		return err
	}
	file := readFabric(raw)
	if err := file.checkPlan(); err != nil {
		return err
	}
	if len(file.problems) == 0 && !file.hasPlan {
		return usageErrorf("%s has no section plan: docs/reference/plan.md has its keys", path)
	}
	if len(file.problems) > 0 {
		return printProblems(env, path, file, "planned")
	}
	made := plan.Make(file.planned)
	file.addProblems(problemsOfPlan(made.Problems))
	if env.isJSON() {
		err = env.writeJSON(struct {
			plan.Plan
			Problems []fileProblem `json:"problems"`
		}{made, file.problems})
	} else {
		err = printPlan(env.stdout, made)
	}
	if err != nil {
		return err
	}
	for _, one := range file.problems {
		fmt.Fprintf(env.stderr, "%s:%d:%d: does not hold: %s\n", path, one.Line, one.Column, one.text())
	}
	if len(file.problems) > 0 {
		return &exitError{code: exitFailure}
	}
	return nil
}

// checkPlan finds what is wrong with a file by itself: all that the control plane would tell of it where nothing is
// yet, and of its section plan where it has one.
func (f *fabricFile) checkPlan() error {
	f.planned.Fabric = f.fabric
	find := plan.CheckFabric
	if f.hasPlan {
		find = plan.Check
	}
	problems, err := find(f.planned)
	f.addProblems(problemsOfPlan(problems))
	return err
}

func problemsOfPlan(problems []plan.Problem) (list []*api.Problem) {
	for _, one := range problems {
		list = append(list, &api.Problem{Field: one.Field, Value: one.Value, Rule: one.Rule})
	}
	return list
}

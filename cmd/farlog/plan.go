package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/farlog/farlog/pkg/plan"
)

func newPlanCommand(env *environment) *cobra.Command {
	path := ""
	cmd := &cobra.Command{
		Use:   "plan -f FILE",
		Short: "Work out rings, links, wear and latency floors for declared rates, and refuse what cannot hold",
		Long: "Work out, for the rates and record sizes in FILE (plan.yaml; - is standard input): the ring that an outage needs, the load of each link, the wear\n" +
			"of media in a year, the least that an append can take on its way with fibre and gear, and how long drains need to catch up. It asks no daemon and\n" +
			"measures nothing; docs/planning.md has the file's keys and the formulas.\n\n" +
			"Exit code 0: it holds. 1: it does not, and all reasons are told.",
		Args: exactArgs(0),
		RunE: func(*cobra.Command, []string) error {
			if path == "" {
				return usageErrorf("--file: expected a plan.yaml, as docs/planning.md has it")
			}
			return runPlan(env, path)
		},
	}
	cmd.Flags().StringVarP(&path, "file", "f", "", "`file` of rates, targets and drains; - is standard input")
	return cmd
}

func runPlan(env *environment, path string) error {
	var raw []byte
	var err error
	if path == "-" {
		raw, err = io.ReadAll(env.stdin)
	} else {
		raw, err = os.ReadFile(path)
	}
	if err != nil {
		return err
	}
	in, err := plan.Parse(raw)
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			fmt.Fprintf(env.stderr, "farlog: %s: %s\n", path, strings.TrimSpace(line))
		}
		return &exitError{code: exitUsage}
	}
	made := plan.Make(in)
	if env.isJSON() {
		err = env.writeJSON(made)
	} else {
		err = printPlan(env.stdout, made)
	}
	if err != nil {
		return err
	}
	for _, problem := range made.Problems {
		fmt.Fprintf(env.stderr, "farlog: does not hold: %s\n", problem)
	}
	if len(made.Problems) > 0 {
		return &exitError{code: exitFailure}
	}
	return nil
}

func printPlan(writer io.Writer, made plan.Plan) error {
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "STREAM\tRECORD\tRING\tBRIDGES\tLINK\tPEAK\tFIBRE\tGEAR\tAPPEND AT LEAST\tRECORDS/FLUSH\tCATCHES UP IN\tA YEAR")
	for _, s := range made.Streams {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.1f\t%s\t%s\n", s.Name, humanBytes(s.RecordBytes), humanBytes(s.RingBytes), humanSeconds(s.OutageSeconds),
			humanBits(s.WireBits), humanBits(s.PeakWireBits), humanSeconds(s.FibreSeconds), humanSeconds(s.GearSeconds), humanSeconds(s.FloorSeconds), s.RecordsPerFlush,
			humanSeconds(s.CatchUpSeconds), humanBytes(uint64(s.BytesPerYear)))
	}
	fmt.Fprintln(table, "\nTARGET\tRINGS\tLINK AT PEAK\tMEDIA AT PEAK\tWRITTEN A YEAR\tWEAR A YEAR\tLASTS")
	for _, t := range made.Targets {
		lasts := "does not wear"
		if t.LifeYears > 0 {
			lasts = fmt.Sprintf("%.1f years", t.LifeYears)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", t.Name, humanBytes(t.RingBytes), percent(t.LinkLoad), percent(t.MediaLoad), humanBytes(uint64(t.BytesPerYear)), percent(t.WearPerYear), lasts)
	}
	fmt.Fprintln(table, "\nDRAIN\tSTORE\tCATCHES UP IN")
	for _, d := range made.Drains {
		fmt.Fprintf(table, "%s\t%s\t%s\n", d.Name, percent(d.Load), humanSeconds(d.CatchUpSeconds))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := text.WriteTo(writer)
	return err
}

func percent(share float64) string {
	if share == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*share)
}

func humanBits(bits float64) string {
	if bits == 0 {
		return "-"
	}
	unit := 0
	units := []string{"bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"}
	for bits >= 1000 && unit < len(units)-1 {
		bits /= 1000
		unit++
	}
	return threeDigits(bits) + " " + units[unit]
}

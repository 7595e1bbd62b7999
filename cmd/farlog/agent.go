package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/config"
	"github.com/farlog/farlog/pkg/control/pattern"
)

// agentRow is a target or a drain, and what it has, as list and show print it.
type agentRow struct {
	ID       string     `json:"id"`
	Host     string     `json:"host"`
	Alive    bool       `json:"alive"`
	PID      uint32     `json:"pid"`
	Metrics  string     `json:"metrics,omitempty"`
	Reported time.Time  `json:"reported"`
	StoreDir string     `json:"store_dir,omitempty"` // of a drain
	Streams  []string   `json:"streams,omitempty"`   // of a drain: on which it has the role, where those are not all
	Spec     *agentSpec `json:"spec,omitempty"`      // of a target: what is declared of its host
	Media    []media    `json:"media,omitempty"`     // of a target: what its devices tell of their wear
	// of a target: what is declared of its host to be exported by NVMe over fabrics, as it reports it
	Namespaces []namespaceRow `json:"namespaces,omitempty"`
	Has        []agentHas     `json:"has"`
}

type agentSpec struct {
	CapacityBytes uint64 `json:"capacity_bytes"`
	Closed        bool   `json:"closed"`
	Rack          string `json:"rack,omitempty"`
	Site          string `json:"site,omitempty"`
	WearLimit     string `json:"wear_limit,omitempty"`
}

// namespaceRow is a namespace of a target.
type namespaceRow struct {
	Name         string `json:"name"`
	Subsystem    string `json:"subsystem"`
	Device       string `json:"device"`
	SizeBytes    uint64 `json:"size_bytes"`
	Exported     bool   `json:"exported"`
	Reservations bool   `json:"reservations"`
	Error        string `json:"error,omitempty"`
	FreeBytes    uint64 `json:"free_bytes"` // size of the largest ring that can be made there
	RingError    string `json:"ring_error,omitempty"`
}

// text is the namespace for people.
func (n namespaceRow) text() string {
	if !n.Exported {
		return "not exported: " + n.Error
	}
	fenced := "by the target, which evicts hosts"
	if n.Reservations {
		fenced = "by reservations from a ring with all of it, else by the target, which evicts them"
	}
	rings := config.FormatSize(n.FreeBytes) + " free"
	if n.RingError != "" {
		rings = "no stream: " + n.RingError
	}
	return fmt.Sprintf("%s, %s of %s, exported; hosts are fenced %s; %s", n.Device, config.FormatSize(n.SizeBytes),
		n.Subsystem, fenced, rings)
}

// media is a device below the rings of a target. Ratios are of 1.
type media struct {
	Device         string  `json:"device"`
	UsedRatio      float64 `json:"used_ratio"` // of its endurance
	SpareRatio     float64 `json:"spare_ratio"`
	ThresholdRatio float64 `json:"spare_threshold_ratio"`
	WrittenBytes   uint64  `json:"written_bytes"`
	Warning        uint32  `json:"critical_warning"`
}

// agentHas is a ring of a target, or a stream that a drain stores.
type agentHas struct {
	Stream     string `json:"stream"`
	Bytes      uint64 `json:"bytes"`       // a ring's size; what a drain has stored since its start
	LagBytes   uint64 `json:"lag_bytes"`   // of a ring
	LagRecords uint64 `json:"lag_records"` // of a ring
	Records    uint64 `json:"records"`     // that a drain has stored since its start
	Where      string `json:"where"`       // a ring's URI
	Error      string `json:"error,omitempty"`
}

func newTargetShowCommand(env *environment) *cobra.Command {
	return newAgentShowCommand(env, "target", targetRows, func(table *tabwriter.Writer, row agentRow) {
		if spec := row.Spec; spec != nil {
			tableRow(table, "capacity\t%s\n", textOr(sizeOrNothing(spec.CapacityBytes), "any"))
			tableRow(table, "closed\t%s\n", yesNo(spec.Closed))
			tableRow(table, "rack\t%s\n", textOr(spec.Rack, "-"))
			tableRow(table, "site\t%s\n", textOr(spec.Site, "-"))
			tableRow(table, "wear limit\t%s\n", textOr(spec.WearLimit, "none"))
		}
		for _, one := range row.Media {
			tableRow(table, "device\t%s: %.0f%% of its endurance used, %.0f%% of its spare capacity left (it warns "+
				"below "+
				"%.0f%%), %s written%s\n", one.Device, 100*one.UsedRatio, 100*one.SpareRatio,
				100*one.ThresholdRatio, config.FormatSize(one.WrittenBytes), warningText(one.Warning))
		}
		for _, one := range row.Namespaces {
			tableRow(table, "namespace %s\t%s\n", one.Name, one.text())
		}
		fmt.Fprintln(table, "\nSTREAM\tSIZE\tLAG\tRING")
		for _, ring := range row.Has {
			tableRow(table, "%s\t%s\t%d records, %s\t%s\n", ring.Stream, config.FormatSize(ring.Bytes), ring.LagRecords,
				config.FormatSize(ring.LagBytes), textOr(ring.Error, ring.Where))
		}
	})
}

func newDrainCommand(env *environment) *cobra.Command {
	return newGroup("drain", "List and show the drains",

		newAgentListCommand(env, "drain", drainRows, func(rows []agentRow) error {
			table := env.newTable()
			fmt.Fprintln(table, "DRAIN\tHOST\tSTATE\tSTREAMS\tRECORDS\tSTORE")
			for _, row := range rows {
				records := uint64(0)
				for _, one := range row.Has {
					records += one.Records
				}
				tableRow(table, "%s\t%s\t%s\t%d\t%d\t%s\n", row.ID, row.Host, row.state(), len(row.Has), records,
					row.StoreDir)
			}
			return table.Flush()
		}),
		newAgentShowCommand(env, "drain", drainRows, func(table *tabwriter.Writer, row agentRow) {
			tableRow(table, "store\t%s\n", row.StoreDir)
			tableRow(table, "may drain\t%s\n", textOr(strings.Join(row.Streams, ", "), "all"))
			fmt.Fprintln(table, "\nSTREAM\tRECORDS\tBYTES\tERROR")
			for _, one := range row.Has {
				tableRow(table, "%s\t%d\t%s\t%s\n", one.Stream, one.Records, config.FormatSize(one.Bytes),
					textOr(one.Error, "-"))
			}
		}))
}

func warningText(bits uint32) string {
	if bits == 0 {
		return ""
	}
	return fmt.Sprintf("; it gives a critical warning, 0x%02x", bits)
}

func (r agentRow) state() string {
	return map[bool]string{true: "alive", false: "gone"}[r.Alive]
}

func newAgentListCommand(env *environment, kind string, rowsOf func(*agents) []agentRow, print func([]agentRow) error,
) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: fmt.Sprintf("List the %ss that have reported to the control plane", kind),
		Args:  exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := env.agents(cmd.Context())
			if err != nil {
				return err
			}
			rows := rowsOf(all)
			if env.isJSON() {
				return env.writeJSON(map[string]any{kind + "s": rows})
			}
			return print(rows)
		},
	}
}

func newAgentShowCommand(env *environment, kind string, rowsOf func(*agents) []agentRow,
	print func(*tabwriter.Writer, agentRow),
) *cobra.Command {
	name := strings.ToUpper(kind)
	return &cobra.Command{
		Use:   "show " + name,
		Short: fmt.Sprintf("Show one %s, by its name or its host's, with what it has", kind),
		Args:  exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := env.agents(cmd.Context())
			if err != nil {
				return err
			}
			row, err := findAgent(rowsOf(all), kind, args[0])
			if err != nil {
				return err
			}
			if env.isJSON() {
				return env.writeJSON(row)
			}
			table := env.newTable()
			tableRow(table, "%s\t%s\n", kind, row.ID)
			tableRow(table, "host\t%s, pid %d\n", row.Host, row.PID)
			tableRow(table, "state\t%s, reported %s\n", row.state(), row.Reported.Format(time.RFC3339))
			tableRow(table, "metrics\t%s\n", textOr(row.Metrics, "-"))
			print(table, row)
			return table.Flush()
		},
	}
}

// findAgent takes a name, or a host that has one only.
func findAgent(rows []agentRow, kind, name string) (agentRow, error) {
	var found []agentRow
	ids := make([]string, len(rows))
	for i, row := range rows {
		if ids[i] = row.ID; row.ID == name {
			return row, nil
		}
		if row.Host == name {
			found = append(found, row)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return agentRow{}, fmt.Errorf("host %q has %d %ss: expected one of %s", name, len(found), kind,
			strings.Join(ids, ", "))
	case len(rows) == 0:
		return agentRow{}, fmt.Errorf("%s %q: there is none yet: farlogd %s starts one", kind, name, kind)
	}
	return agentRow{}, fmt.Errorf("%s %q: there is none of that name or on that host: expected one of %s", kind, name,
		strings.Join(ids, ", "))
}

// agents is all that is known of targets and drains.
type agents struct {
	*api.ListAgentsResponse
	specs map[string]*api.TargetSpec
}

func (e *environment) agents(ctx context.Context) (*agents, error) {
	client, err := e.dialControl()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, client.timeout)
	defer cancel()
	listed, err := client.ListAgents(ctx, &api.ListAgentsRequest{})
	if err != nil {
		return nil, client.explain(ctx, "", err)
	}
	declared, err := client.GetFabric(ctx, &api.GetFabricRequest{})
	if err != nil {
		return nil, client.explain(ctx, "", err)
	}
	all := &agents{listed, map[string]*api.TargetSpec{}}
	for _, spec := range declared.Fabric.Targets {
		all.specs[spec.Host] = spec
	}
	return all, nil
}

func rowOf(agent *api.Agent, reported time.Time, alive []string) agentRow {
	return agentRow{
		ID: agent.Id, Host: agent.Host, PID: agent.Pid, Metrics: agent.MetricsAddress, Reported: reported,
		Alive: slices.Contains(alive, agent.Id), Has: []agentHas{},
	}
}

func targetRows(all *agents) []agentRow {
	rows := []agentRow{}
	for _, target := range all.Targets {
		row := rowOf(target.Agent, target.ReportTime.AsTime(), all.TargetsAlive)
		if spec := all.specs[row.Host]; spec != nil {
			row.Spec = &agentSpec{
				spec.CapacityBytes, spec.Closed, spec.Rack, spec.Site,
				percentOrNothing(uint64(spec.WearLimitPercent)),
			}
		}
		for _, one := range target.Media {
			row.Media = append(row.Media, media{
				one.Device, one.UsedRatio, one.SpareRatio, one.SpareThresholdRatio,
				one.WrittenBytes, one.CriticalWarning,
			})
		}
		for _, one := range target.Namespaces {
			row.Namespaces = append(row.Namespaces, namespaceRow{
				one.Name, one.Subsystem, one.Device, one.SizeBytes, one.Exported, one.Reservations, one.Error,
				one.FreeBytes, one.RingError,
			})
		}
		for _, ring := range target.Rings {
			row.Has = append(row.Has, agentHas{
				Stream: ring.Stream, Bytes: ring.GetContract().GetSizeBytes(), LagBytes: ring.LagBytes,
				LagRecords: ring.LagRecords, Where: ring.Uri, Error: ring.Error,
			})
		}
		rows = append(rows, row)
	}
	return rows
}

func drainRows(all *agents) []agentRow {
	rows := []agentRow{}
	for _, drain := range all.Drains {
		row := rowOf(drain.Agent, drain.ReportTime.AsTime(), all.DrainsAlive)
		row.StoreDir, row.Streams = drain.Agent.StoreDir, drain.Agent.Streams
		if slices.Contains(row.Streams, pattern.All) {
			row.Streams = nil
		}
		for _, one := range drain.Progress {
			row.Has = append(row.Has, agentHas{
				Stream: one.Stream, Bytes: one.Bytes, Records: one.Records,
				Error: one.LastError,
			})
		}
		rows = append(rows, row)
	}
	return rows
}

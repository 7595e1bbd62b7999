package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// hostRow is a trading host, and how far it is to the targets, as list prints it.
type hostRow struct {
	Host     string    `json:"host"`
	Reported time.Time `json:"reported"`
	Paths    []pathRow `json:"paths"`
	// that the fabric declares for it
	Namespaces []connectionRow `json:"namespaces,omitempty"`
}

// connectionRow is a namespace that a host keeps connected.
type connectionRow struct {
	TargetHost string `json:"target_host"`
	Name       string `json:"name"`
	Subsystem  string `json:"subsystem"`
	Device     string `json:"device,omitempty"` // none: it is not connected
	Transport  string `json:"transport,omitempty"`
	Error      string `json:"error,omitempty"`
}

// pathRow is one way. Durations are in nanoseconds; 0 where none was measured.
type pathRow struct {
	Target   string        `json:"target"`
	Listener string        `json:"listener"`
	Least    time.Duration `json:"rtt_min_ns"`
	Median   time.Duration `json:"rtt_median_ns"`
	Count    uint32        `json:"count"` // measurements that they are of
	Measured time.Time     `json:"measured,omitzero"`
	Error    string        `json:"error,omitempty"` // of the last measurement, where that failed
}

func newHostListCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the hosts whose agents report, and the round-trip time to each target",
		Long: `Lists the hosts whose agents (farlogd host) report to the control plane, with a line for each listener
of a target on another host: the minimum and the median round-trip time of the last 32 TCP handshakes. Placement of a
stream with a writer_host uses the minimum. Below them are the namespaces of NVMe over fabrics that the fabric
declares for hosts, which their agents keep connected. A host that does not report any more is silent, and after a day
it is not listed.`,
		Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			rows, err := env.hosts(cmd.Context())
			if err != nil {
				return err
			}
			if env.isJSON() {
				return env.writeJSON(map[string]any{"hosts": rows})
			}
			return printHosts(env, rows)
		},
	}
}

func printHosts(env *environment, rows []hostRow) error {
	table := env.newTable()
	fmt.Fprintln(table, "HOST\tTARGET\tLISTENER\tRTT MIN\tMEDIAN\tOF\tREPORTED\tERROR")
	for _, row := range rows {
		reported := row.reportedText(time.Now())
		if len(row.Paths) == 0 {
			tableRow(table, "%s\t-\t-\t-\t-\t0\t%s\t-\n", row.Host, reported)
		}
		for _, path := range row.Paths {
			tableRow(
				table,
				"%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n",
				row.Host,
				path.Target,
				path.Listener,
				path.text(path.Least),
				path.text(path.Median),
				path.Count,
				reported,
				textOr(path.Error, "-"),
			)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return printConnections(env, rows)
}

// printConnections prints the namespaces that hosts keep connected, where there are any.
func printConnections(env *environment, rows []hostRow) error {
	if !slices.ContainsFunc(rows, func(row hostRow) bool { return len(row.Namespaces) > 0 }) {
		return nil
	}
	table := env.newTable()
	fmt.Fprintln(table, "\nHOST\tNAMESPACE\tOF\tDEVICE\tTRANSPORT\tURI\tERROR")
	for _, row := range rows {
		for _, one := range row.Namespaces {
			tableRow(table, "%s\t%s\t%s\t%s\t%s\tnvme:%s/1\t%s\n", row.Host, one.Name, one.TargetHost,
				orDash(one.Device), orDash(one.Transport), one.Subsystem, orDash(one.Error))
		}
	}
	return table.Flush()
}

// hostSilent is how old a host's last report may look while its agent reports: of one that measures the same again and
// again, other control planes than the one it reports to know what is five minutes old.
const hostSilent = 6 * time.Minute

// reportedText is when a host reported, and for how long it has not when that is too long.
func (h hostRow) reportedText(now time.Time) string {
	text := h.Reported.Format(time.RFC3339)
	if silent := now.Sub(h.Reported); silent > hostSilent {
		text += ", silent " + humanDuration(silent)
	}
	return text
}

func (p pathRow) text(duration time.Duration) string {
	if p.Count == 0 {
		return "-"
	}
	return duration.String()
}

func (e *environment) hosts(ctx context.Context) ([]hostRow, error) {
	all, err := listAll(ctx, e, new(api.ListHostsRequest), (*controlClient).ListHosts)
	if err != nil {
		return nil, err
	}
	rows := []hostRow{}
	for _, host := range all.Hosts {
		rows = append(rows, hostRowOf(host))
	}
	return rows, nil
}

func hostRowOf(host *api.HostState) hostRow {
	row := hostRow{Host: host.Host, Reported: host.ReportTime.AsTime(), Paths: []pathRow{}}
	for _, path := range host.Paths {
		one := pathRow{
			Target: path.Target, Listener: path.Listener, Least: path.RttMin.AsDuration(),
			Median: path.RttMedian.AsDuration(), Count: path.Count, Error: path.Error,
		}
		if path.MeasureTime != nil {
			one.Measured = path.MeasureTime.AsTime()
		}
		row.Paths = append(row.Paths, one)
	}
	for _, one := range host.Namespaces {
		row.Namespaces = append(row.Namespaces, connectionRow{
			one.TargetHost, one.Name, one.Subsystem, one.Device, one.Transport, one.Error,
		})
	}
	return row
}

// pathText is how far a stream's writer is from one of its targets.
func pathText(host string, path *api.NetworkPath) string {
	if path.RttMin == nil {
		return fmt.Sprintf("%s to %s: not measured: %s", host, path.Target, path.Error)
	}
	return fmt.Sprintf(
		"%s to %s: %s, median %s",
		host,
		path.Target,
		path.RttMin.AsDuration(),
		path.RttMedian.AsDuration(),
	)
}

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/config"
)

const (
	statusColumns         = 100
	statusIntervalDefault = time.Second
	clearScreen           = "\x1b[H\x1b[2J"
)

func newStatusCommand(env *environment) *cobra.Command {
	isWatch, interval := false, statusIntervalDefault
	cmd := &cobra.Command{
		Use:   "status [STREAM]",
		Short: "Show the state of the streams: writer, epoch, cursors, lag, latency",
		Long: `Show the state of the streams: writer, epoch, cursors, lag, latency.

Exit code 0: every stream is ok, warn, pending, has no writer, or continues without a member. 1: a stream is in alarm
or error, its drain or target is gone, or the control plane does not answer. --output json prints numbers in bytes,
records and seconds.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageErrorf("got %d arguments, expected: %s", len(args), cmd.UseLine())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if interval <= 0 {
				return usageErrorf("--interval %s: expected more than 0", interval)
			}
			if isWatch {
				return watchStatus(cmd.Context(), env, args, interval)
			}
			return printStatus(cmd.Context(), env, env.stdout, args)
		},
	}
	cmd.Flags().BoolVarP(&isWatch, "watch", "w", false, "refresh until interrupted")
	cmd.Flags().Var((*config.DurationValue)(&interval), "interval", "time between two refreshes with --watch")
	return cmd
}

// watchStatus goes on through everything but an interrupt: a control plane that is away is a state to be shown.
func watchStatus(ctx context.Context, env *environment, args []string, interval time.Duration) error {
	for {
		var screen bytes.Buffer
		err := printStatus(ctx, env, &screen, args)
		if ctx.Err() != nil {
			return nil
		}
		if isTerminal(env.stdout) {
			fmt.Fprint(env.stdout, clearScreen)
		}
		if _, err := screen.WriteTo(env.stdout); err != nil {
			return err
		}
		if err != nil && screen.Len() == 0 {
			exitCode(err, env.stderr)
		}
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return nil
		}
	}
}

func printStatus(ctx context.Context, env *environment, writer io.Writer, args []string) error {
	var streams []*api.StreamStatus
	var err error
	if len(args) == 1 {
		var one *api.StreamStatus
		one, err = env.streamStatus(ctx, args[0])
		streams = []*api.StreamStatus{one}
	} else {
		streams, err = fetchStreams(ctx, env)
	}
	if err != nil {
		return err
	}
	if err := renderStatus(env, writer, streams); err != nil {
		return err
	}
	for _, one := range streams {
		if isFailing(one.Condition) {
			return &exitError{code: exitFailure}
		}
	}
	return nil
}

// isFailing says which conditions a probe has to learn of.
func isFailing(condition api.Condition) bool {
	switch condition {
	case api.Condition_CONDITION_OK, api.Condition_CONDITION_WARN, api.Condition_CONDITION_PENDING,
		api.Condition_CONDITION_WRITER_GONE,
		api.Condition_CONDITION_MEMBER_GONE, api.Condition_CONDITION_MEMBER_NEW, api.Condition_CONDITION_DELETING:
		return false
	}
	return true
}

func renderStatus(env *environment, writer io.Writer, streams []*api.StreamStatus) error {
	if env.isJSON() {
		rows := make([]statusRow, 0, len(streams))
		for _, one := range streams {
			rows = append(rows, newStatusRow(one))
		}
		to := *env
		to.stdout = writer
		return to.writeJSON(map[string]any{"control": env.control, "insecure": env.isInsecure, "streams": rows})
	}
	var screen bytes.Buffer
	if env.isInsecure {
		fmt.Fprintf(&screen, "%s is %s\n\n", env.control, insecureText)
	}
	if len(streams) == 0 {
		fmt.Fprintf(&screen, "no streams at %s: farlog stream create NAME makes one\n", env.control)
	}
	for i, one := range streams {
		if i > 0 {
			screen.WriteString("\n")
		}
		newStatusRow(one).render(&screen, env.isWide())
	}
	_, err := screen.WriteTo(writer)
	return err
}

// statusRow is one stream as status shows it: what --output json prints, in bytes, records and seconds.
type statusRow struct {
	Stream string `json:"stream"`
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`

	Writer        string `json:"writer"`
	IsWriterHeld  bool   `json:"writer_held"`
	IsClosed      bool   `json:"writer_closed"` // it has said that it ended by itself
	Epoch         uint32 `json:"epoch"`
	EpochGranted  uint32 `json:"epoch_granted"`
	Level         string `json:"level"`
	LevelReached  string `json:"level_reached"`
	Region        string `json:"region"`
	Flush         string `json:"flush"`
	Attestation   string `json:"attestation,omitempty"`
	HeadLSN       uint64 `json:"head_lsn"`
	DurableLSN    uint64 `json:"durable_lsn"`
	AppendedLSN   uint64 `json:"appended_lsn"`
	CapacityBytes uint64 `json:"capacity_bytes"`

	FullRatio         float64  `json:"full_ratio"`
	TimeToFullSeconds *float64 `json:"time_to_full_seconds"`
	LagBytes          uint64   `json:"lag_bytes"`
	LagRecords        uint64   `json:"lag_records"`
	LagSeconds        float64  `json:"lag_seconds"`

	// Unconfirmed bytes and records are behind the lag: fewer members have them than are needed, and none is in flight.
	UnconfirmedBytes   uint64 `json:"unconfirmed_bytes,omitempty"`
	UnconfirmedRecords uint64 `json:"unconfirmed_records,omitempty"`

	AppendCount uint64  `json:"append_count"`
	AppendRate  float64 `json:"append_records_per_second"`
	// Latencies are null where nothing was appended, and where only the writer's host knows them.
	P50Seconds  *float64 `json:"append_p50_seconds"`
	P99Seconds  *float64 `json:"append_p99_seconds"`
	P999Seconds *float64 `json:"append_p999_seconds"`
	MaxSeconds  *float64 `json:"append_max_seconds"`

	// StalledSeconds is how long records have waited without an acknowledgement; 0: no record is known to wait.
	StalledSeconds float64 `json:"append_stalled_seconds"`

	FullCount    uint64 `json:"full_count"`
	UnknownCount uint64 `json:"unknown_count"`
	FencedCount  uint64 `json:"fenced_count"`

	Drain            string `json:"drain"`
	IsDrainAlive     bool   `json:"drain_alive"`
	StoredLSN        uint64 `json:"stored_lsn"`
	DrainedRecords   uint64 `json:"drained_records"`
	DrainDuplicates  uint64 `json:"drain_duplicates"`
	Target           string `json:"target"`
	IsTargetAlive    bool   `json:"target_alive"`
	URI              string `json:"uri"`
	ObservedUnixSecs int64  `json:"observed_unix_seconds"`

	ObservedAgeSeconds *float64 `json:"observed_age_seconds"` // null: never seen

	// WearRatio is the used share of the endurance of the most worn device below its rings; null: no device reports it.
	WearRatio    *float64 `json:"wear_ratio"`
	WearDevice   string   `json:"wear_device,omitempty"`
	WearTarget   string   `json:"wear_target,omitempty"` // that has the device
	WrittenBytes uint64   `json:"wear_written_bytes,omitempty"`

	Rings      int         `json:"rings"`             // that the stream has
	RingsReady int         `json:"rings_ready"`       // whose target lives and provides them
	Needed     int         `json:"needed"`            // of them for an acknowledgement
	Members    []memberRow `json:"members,omitempty"` // of a stream with several rings
	isFailing  bool

	SlowConsumers []slowRow `json:"slow_consumers,omitempty"`
}

func newStatusRow(status *api.StreamStatus) statusRow {
	row := statusRow{
		Stream: status.Stream.Spec.Name, State: shortName(status.Condition.String()), Reason: status.Reason,
		EpochGranted: status.EpochGranted, Level: shortName(status.Stream.Spec.Level.String()),
		Drain: status.Assignment.GetDrain(), IsDrainAlive: status.DrainAlive, StoredLSN: status.Drain.GetStoredLsn(),
		DrainedRecords: status.Drain.GetRecords(), DrainDuplicates: status.Drain.GetDuplicates(),
		Target: targetOf(status), IsTargetAlive: status.TargetAlive, Rings: memberCount(status),
		Needed: max(1, int(status.Stream.K)), Members: memberRows(status), isFailing: isFailing(status.Condition),
	}
	row.addWear(status)
	row.addSlow(status)
	for _, ring := range status.Rings {
		if slices.Contains(status.TargetsAlive, ring.Target) && len(ring.RingUuid) > 0 && ring.Error == "" {
			row.RingsReady++
		}
	}
	if ring := leadingRing(status); ring != nil {
		row.addRing(ring)
		row.IsClosed = !ring.WriterHeld && status.LastGrant.GetCloseTime() != nil &&
			status.LastGrant.Epoch == ring.WriterEpoch
		row.addMembers(status)
		row.addCounters(countersOf(status, ring))
		row.addStall(status.StalledFor.AsDuration())
		if !slices.Contains(status.TargetsAlive, ring.Target) {
			row.TimeToFullSeconds = nil // of before it was gone
		}
	}
	return row
}

func (r *statusRow) addRing(ring *api.RingState) {
	r.Writer, r.IsWriterHeld, r.Epoch = ring.WriterId, ring.WriterHeld, ring.WriterEpoch
	r.Region, r.Flush = ring.GetContract().GetKind(), ring.GetContract().GetFlushMethod()
	r.Attestation = ring.GetContract().GetAttestation()
	r.HeadLSN, r.DurableLSN, r.AppendedLSN, r.CapacityBytes = ring.HeadLsn, ring.DurableLsn, ring.AppendedLsn,
		ring.CapacityBytes
	r.LagBytes, r.LagRecords, r.LagSeconds = ring.LagBytes, ring.LagRecords, ring.LagAge.AsDuration().Seconds()
	if ring.CapacityBytes > 0 {
		r.FullRatio = float64(ring.AppendedLsn-ring.HeadLsn) / float64(ring.CapacityBytes)
	}
	if ring.TimeToFull != nil {
		seconds := ring.TimeToFull.AsDuration().Seconds()
		r.TimeToFullSeconds = &seconds
	}
	if ring.ObserveTime != nil {
		age := max(0, time.Since(ring.ObserveTime.AsTime()).Seconds())
		r.ObservedAgeSeconds = &age
	}
	r.URI, r.ObservedUnixSecs = ring.Uri, ring.ObserveTime.AsTime().Unix()
	if level := ring.GetContract().GetLevel(); level != 0 {
		r.LevelReached = shortName(level.String()) // what acknowledgements can reach, until a writer says what they do
	}
}

// countersOf gives those of the stream's writer. They are on its host: the target of any member may be there too, and
// where none is, the host's agent tells of them.
func countersOf(status *api.StreamStatus, leading *api.RingState) *api.WriterCounters {
	for _, ring := range status.Rings {
		if ring.WriterEpoch == leading.WriterEpoch && ring.Counters.GetLatencyCount() > 0 {
			return ring.Counters
		}
	}
	if status.Writer != nil && leading.WriterEpoch == status.LastGrant.GetEpoch() {
		return status.Writer
	}
	return leading.Counters
}

func (r *statusRow) addCounters(counters *api.WriterCounters) {
	if counters == nil {
		return
	}
	if counters.Level != 0 {
		r.LevelReached = shortName(counters.Level.String())
	}
	r.AppendCount, r.AppendRate = counters.LatencyCount, counters.AppendRateRecords
	if counters.LatencyCount > 0 {
		seconds := func(d *durationpb.Duration) *float64 { return new(d.AsDuration().Seconds()) }
		r.P50Seconds, r.P99Seconds = seconds(counters.LatencyP50), seconds(counters.LatencyP99)
		r.P999Seconds, r.MaxSeconds = seconds(counters.LatencyP999), seconds(counters.LatencyMax)
	}
	r.FullCount, r.UnknownCount, r.FencedCount = counters.Full, counters.Unknown, counters.Fenced
}

// addStall has the longest wait show one that lasts.
func (r *statusRow) addStall(stalled time.Duration) {
	r.StalledSeconds = stalled.Seconds()
	if r.StalledSeconds >= stalledShown && (r.MaxSeconds == nil || *r.MaxSeconds < r.StalledSeconds) {
		r.MaxSeconds = new(r.StalledSeconds)
	}
}

func (r *statusRow) addWear(status *api.StreamStatus) {
	if status.Worn != nil {
		used := status.Worn.UsedRatio
		r.WearRatio, r.WearDevice, r.WearTarget, r.WrittenBytes = &used, status.Worn.Device, status.WornTarget,
			status.Worn.WrittenBytes
	}
}

// wearPercent is what the most worn device below its rings has used of its endurance; "-" where none tells.
func wearPercent(r statusRow) string {
	if r.WearRatio == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100**r.WearRatio)
}

func (r statusRow) wearText() string {
	if r.WearRatio == nil {
		return "-"
	}
	return fmt.Sprintf("%s of its endurance, %s written  %s of %s", wearPercent(r), humanBytes(r.WrittenBytes),
		r.WearDevice, r.WearTarget)
}

// render writes one stream as a few lines of at most statusColumns.
func (r statusRow) render(screen *bytes.Buffer, isWide bool) {
	line := func(format string, args ...any) {
		text := plain(fmt.Sprintf(format, args...))
		if !isWide {
			text = cut(text, statusColumns)
		}
		screen.WriteString(strings.TrimRight(text, " ") + "\n")
	}
	line("%-32s %s%s", r.Stream, strings.ToUpper(r.State), r.ageText())
	for i, part := range wrap(r.Reason, statusColumns-11, isWide) {
		line("  %-8s %s", []string{"reason", ""}[min(i, 1)], part)
	}
	line("  writer   %s  epoch %d", r.writerText(), r.Epoch)
	line("  level    %s, %s requested  (%s, %s)", dashed(r.LevelReached), r.Level, dashed(r.Region), dashed(r.Flush))
	for i, part := range wrap(r.Attestation, statusColumns-11, isWide) {
		line("  %-8s %s", []string{"attested", ""}[min(i, 1)], part)
	}
	line("  cursors  head %s  durable %s  appended %s", humanCount(r.HeadLSN), humanCount(r.DurableLSN),
		humanCount(r.AppendedLSN))
	line("  ring     %s, %.1f %% full%s", humanBytes(r.CapacityBytes), r.FullRatio*100, r.fillText())
	line("  lag      %s  %s records  %s", humanBytes(r.LagBytes), humanCount(r.LagRecords), humanSeconds(r.LagSeconds))
	r.renderUnconfirmed(line)
	line("  append   %s, %.0f/s", r.latencyText(), r.AppendRate)
	if r.StalledSeconds >= stalledShown {
		line("  stalled  no acknowledgement for %s", humanSeconds(r.StalledSeconds))
	}
	r.renderSlow(line)
	line("  drain    %s", r.drainText())
	line("  wear     %s", r.wearText())
	r.renderMembers(line)
	if isWide {
		line("  outcomes full %s  unknown %s  fenced %s", humanCount(r.FullCount), humanCount(r.UnknownCount),
			humanCount(r.FencedCount))
		line("  target   %s %s  ring %s", r.Target, aliveText(r.IsTargetAlive), dashed(r.URI))
	}
}

// latencyText says what appends took, or why that is not known.
func (r statusRow) latencyText() string {
	switch {
	case r.P50Seconds != nil:
		return fmt.Sprintf("p50 %s  p99 %s  p99.9 %s  max %s  of %s", humanSeconds(*r.P50Seconds),
			humanSeconds(*r.P99Seconds),
			humanSeconds(*r.P999Seconds), humanSeconds(*r.MaxSeconds), humanCount(r.AppendCount))
	case r.MaxSeconds != nil:
		return "p50 -  p99 -  p99.9 -  max " + humanSeconds(*r.MaxSeconds)
	case r.Writer == "":
		return "p50 -  p99 -  p99.9 -  max -"
	}
	return "p50 to p99.9 and max: no host agent reports this writer"
}

// ageText says how old the picture is: what happened since its target last looked is not in it.
func (r statusRow) ageText() string {
	if r.ObservedAgeSeconds == nil {
		return ""
	}
	return "  as of " + humanSeconds(*r.ObservedAgeSeconds) + " ago"
}

func (r statusRow) writerText() string {
	switch {
	case r.Writer == "":
		return "none yet"
	case r.IsWriterHeld:
		return cut(r.Writer, statusColumns-30)
	}
	if r.IsClosed {
		return "closed, was " + cut(r.Writer, statusColumns-40)
	}
	return "gone, was " + cut(r.Writer, statusColumns-40)
}

func (r statusRow) fillText() string {
	if r.TimeToFullSeconds == nil {
		return ""
	}
	return ", full in " + humanSeconds(*r.TimeToFullSeconds)
}

func (r statusRow) drainText() string {
	if r.Drain == "" {
		return "none"
	}
	return fmt.Sprintf("%s %s  stored %s  %s records", r.Drain, aliveText(r.IsDrainAlive), humanCount(r.StoredLSN),
		humanCount(r.DrainedRecords))
}

func aliveText(isAlive bool) string {
	if isAlive {
		return "alive"
	}
	return "gone"
}

func humanSeconds(seconds float64) string {
	return humanDuration(time.Duration(seconds * float64(time.Second)))
}

func dashed(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

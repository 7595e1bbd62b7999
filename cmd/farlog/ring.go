//go:build cgo

package main

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farlog/farlog/pkg/config"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/record"
)

const (
	ringSizeDefault = 64 << 20
	fenceStepMax    = 1 << 16 // a fence above the ring's epoch, at most
)

func newRingCommand(env *environment) *cobra.Command {
	return newGroup("ring", "Format, show, fence, drain, salvage, list and remove rings, without the control plane",
		newRingFormatCommand(env), newRingShowCommand(env), newRingFenceCommand(env), newRingCutCommand(env),
		newRingDrainCommand(env), newRingSalvageCommand(env), newRingListCommand(env), newRingRemoveCommand(env))
}

func newRingFormatCommand(env *environment) *cobra.Command {
	size, recordLenMax, align := uint64(ringSizeDefault), uint64(0), uint64(0)
	var options farlog.FormatOptions
	var encryption string
	command := &cobra.Command{
		Use:   "format URI",
		Short: "Make a new, empty ring in a region",
		Example: `  farlog ring format mem:/var/lib/farlog/orders.ring --size 64MiB --stream desk7/orders
  farlog ring format mem:/dev/dax0.0
  farlog ring format nvme:/dev/nvme2n1 --stream desk7/orders
  farlog ring format mem:/mnt/a/orders.ring --stream desk7/orders --salt 0x7a31c59d  # a member: all have one salt
  farlog ring format 'nvme:/dev/nvme3n1?ring=desk7/fills' --size 256MiB --stream desk7/fills`,
		Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := checkRingSizes(size, recordLenMax, align)
			if err != nil {
				return err
			}
			if options.Encryption, err = record.ParseEncryption(encryption); err != nil {
				return usageErrorf("--encryption: %s", err)
			}
			options.SizeBytes, options.RecordLenMax, options.Align = size, uint32(recordLenMax), uint32(align)
			if !cmd.Flags().Changed("size") && hasOwnSize(args[0]) {
				options.SizeBytes = 0
			}
			if err := formatRing(env, args[0], options); err != nil {
				return asUsage(err)
			}
			return showRing(env, args[0])
		},
	}
	flags := command.Flags()
	flags.Var((*config.SizeValue)(&size), "size",
		"of the region, a multiple of 4KiB; a device or an existing file determines its own")
	flags.Var((*config.SizeValue)(&recordLenMax), "record-len-max",
		"largest extent of one record; 0 = 1MiB, or a quarter of the ring")
	flags.Var((*config.SizeValue)(&align), "align", "where records begin: a power of two from 64 to 4096; 0 = 64")
	flags.StringVar(&options.StreamName, "stream", "", "`name` of the stream, under which a drain stores the records")
	flags.Uint32Var(&options.StreamID, "stream-id", 0, "`number` of the stream, written into each record")
	flags.Var((*saltValue)(&options.Salt), "salt", "`number` that seeds the CRCs of records, such as 0x7a31c59d: the "+
		"same for all members of a stream; 0 = random")
	flags.StringVar(&encryption, "encryption", record.EncryptionNone.String(), "of the records that applications "+
		"append, for good: none or aes-256-gcm, with which a writer needs a key (FARLOG_KEY_FILE)")
	flags.BoolVar(&options.Force, "force", false, "format although a ring is there; its undrained records are lost")
	return command
}

// saltValue is a salt on the command line, in any base of Go's.
type saltValue uint64

func (v *saltValue) String() string { return fmt.Sprintf("%#x", uint64(*v)) }
func (v *saltValue) Type() string   { return "number" }

func (v *saltValue) Set(text string) error {
	value, err := strconv.ParseUint(text, 0, 64)
	if err != nil || value != 0 && uint32(value) == 0 {
		return fmt.Errorf("expected a number of 64 bits whose lower 32 are not 0, such as 0x7a31c59d")
	}
	*v = saltValue(value)
	return nil
}

// formatRing tells what is lost before it is.
func formatRing(env *environment, uri string, options farlog.FormatOptions) error {
	isForced := options.Force
	options.Force = false
	err := farlog.Format(uri, options)
	if err == nil || !isForced || !errors.Is(err, farlog.ErrExists) && !errors.Is(err, farlog.ErrHeld) {
		return err
	}
	found, _, _ := strings.Cut(strings.ReplaceAll(err.Error(), "; formatting destroys", "; --force destroys"),
		"; add --force")
	if status, err := farlog.Inspect(uri); err == nil && status.LagRecords > 0 {
		found += fmt.Sprintf(", with %d records that are not drained", status.LagRecords)
	}
	fmt.Fprintln(env.stderr, found)
	options.Force = true
	return farlog.Format(uri, options)
}

func checkRingSizes(size, recordLenMax, align uint64) error {
	for _, part := range []struct {
		flag  string
		value uint64
	}{{"record-len-max", recordLenMax}, {"align", align}} {
		if part.value > 1<<32-1 {
			return usageErrorf("--%s %s: expected less than 4GiB", part.flag, config.FormatSize(part.value))
		}
	}
	if size%4096 != 0 || size == 0 {
		return usageErrorf("--size %d: expected a multiple of 4096 bytes", size)
	}
	return nil
}

// hasOwnSize reports whether the region is there and has a size, which format then takes.
func hasOwnSize(uri string) bool {
	contract, err := farlog.Probe(uri)
	return err == nil && contract.SizeBytes > 0
}

func newRingShowCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "show URI",
		Short: "Show identity, contract, cursors and lag of a ring",
		Args:  exactArgs(1),
		RunE:  func(_ *cobra.Command, args []string) error { return showRing(env, args[0]) },
	}
}

func newRingFenceCommand(env *environment) *cobra.Command {
	var epochMin uint32
	command := &cobra.Command{
		Use:   "fence URI",
		Short: "Order that writers of lower epochs stop",
		Long: `Persists a fence in the ring: writers of lower epochs may not append. A live writer sees the fence at
its next call, on a block device within a few milliseconds. It has stopped for sure only when another writer has
opened the ring.`,
		Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return fenceRing(env, args[0], epochMin, cmd.Flags().Changed("epoch-min"))
		},
	}
	command.Flags().Uint32Var(&epochMin, "epoch-min", 0,
		"lowest `epoch` that may write (default: one above the present writer's)")
	return command
}

// fenceRing says the epoch that is in force afterwards: a fence is never lowered.
func fenceRing(env *environment, uri string, epochMin uint32, isGiven bool) error {
	status, err := farlog.Inspect(uri)
	if err != nil {
		return asUsage(err)
	}
	if !isGiven {
		epochMin = status.WriterEpoch + 1
	}
	if highest := uint64(status.WriterEpoch) + fenceStepMax; uint64(epochMin) > highest {
		return usageErrorf("--epoch-min %d: expected at most %d, which is %d above the ring's epoch: a higher one "+
			"would use up the epochs of the ring",
			epochMin, highest, fenceStepMax)
	}
	if err := farlog.Fence(uri, epochMin); err != nil {
		return asUsage(err)
	}
	if status, err = farlog.Inspect(uri); err != nil {
		return err
	}
	fmt.Fprintf(env.stdout, "ring %s: writers below epoch %d are fenced\n", uri, status.EpochMin)
	return nil
}

// asUsage makes a mistake in the command line of an argument that the core refuses: a URI, an option of it, a size.
// What a region holds is none: those errors begin with the region.
func asUsage(err error) error {
	if errors.Is(err, farlog.ErrInvalid) && !strings.HasPrefix(err.Error(), "region ") &&
		!strings.HasPrefix(err.Error(), "target ") {
		return &usageError{text: err.Error()}
	}
	return err
}

func showRing(env *environment, uri string) error {
	status, err := farlog.Inspect(uri)
	if err != nil {
		return asUsage(err)
	}
	if env.isJSON() {
		return json.NewEncoder(env.stdout).Encode(ringJSON(uri, status))
	}
	table := env.newTable()
	for _, line := range ringLines(uri, status, env.isWide()) {
		tableRow(table, "%s\t%s\n", line[0], line[1])
	}
	return table.Flush()
}

func ringLines(uri string, s farlog.Status, isWide bool) [][2]string {
	decimal := func(n uint64) string { return strconv.FormatUint(n, 10) }
	lines := [][2]string{
		{"ring", uri},
		{"stream", fmt.Sprintf("%s (id %d)", orDash(s.StreamName), s.StreamID)},
		{"uuid", hex.EncodeToString(s.RingUUID[:])},
		{"contract", fmt.Sprintf("%s, flush %s, gives %s at most: %s", s.Contract.Kind, s.Contract.FlushMethod,
			s.Contract.Level, s.Contract.Probe)},
		{"capacity", decimal(s.CapacityBytes) + " bytes"},
		{"record-len-max", decimal(uint64(s.RecordLenMax)) + " bytes"},
		{"encryption", s.Encryption.String()},
		{"writer", writerText(s)},
		{"drain", heldText(s.DrainHeld)},
		{"head", fmt.Sprintf("lsn %d, seq %d, last epoch %d", s.HeadLSN, s.HeadSeq, s.LastEpoch)},
		{"appended", "lsn " + decimal(s.AppendedLSN)},
		{"durable", "lsn " + decimal(s.DurableLSN)},
		{"lag", lagText(s)},
	}
	if isWide {
		lines = append(lines,
			[2]string{"align", decimal(uint64(s.Align)) + " bytes"},
			[2]string{"credit", "lsn " + decimal(s.CreditLSN)},
			[2]string{"epoch-min", decimal(uint64(s.EpochMin))},
			[2]string{"epoch-start", fmt.Sprintf("lsn %d, seq %d, at %s", s.EpochStartLSN, s.EpochStartSeq,
				timeText(s.EpochOpened))},
			[2]string{"created", timeText(s.Created)},
		)
	}
	return lines
}

func writerText(s farlog.Status) string {
	if s.WriterEpoch == 0 {
		return "never had one"
	}
	return fmt.Sprintf("epoch %d, %s: %s", s.WriterEpoch, heldText(s.WriterHeld), s.WriterID)
}

func heldText(isHeld bool) string {
	if isHeld {
		return "alive"
	}
	return "none"
}

func lagText(s farlog.Status) string {
	text := fmt.Sprintf("%d bytes, %d records", s.LagBytes, s.LagRecords)
	if !s.OldestRecord.IsZero() {
		text += fmt.Sprintf(", oldest %s old", time.Since(s.OldestRecord).Round(time.Millisecond))
	}
	return text
}

func timeText(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.Format(time.RFC3339Nano)
}

// ringJSON has the names and units of the metrics.
func ringJSON(uri string, s farlog.Status) map[string]any {
	fields := map[string]any{
		"uri": uri, "ring_uuid": hex.EncodeToString(s.RingUUID[:]), "stream": s.StreamName, "stream_id": s.StreamID,
		"kind": s.Contract.Kind, "flush_method": s.Contract.FlushMethod, "level": s.Contract.Level.String(),
		"probe": s.Contract.Probe, "capacity_bytes": s.CapacityBytes, "align": s.Align,
		"record_len_max": s.RecordLenMax, "encryption": s.Encryption.String(),
		"writer_epoch": s.WriterEpoch, "epoch_min": s.EpochMin, "last_epoch": s.LastEpoch, "writer_id": s.WriterID,
		"writer_held": s.WriterHeld, "drain_held": s.DrainHeld, "head_lsn": s.HeadLSN, "head_seq": s.HeadSeq,
		"credit_lsn": s.CreditLSN, "appended_lsn": s.AppendedLSN, "durable_lsn": s.DurableLSN, "lag_bytes": s.LagBytes,
		"lag_records": s.LagRecords, "epoch_start_lsn": s.EpochStartLSN, "epoch_start_seq": s.EpochStartSeq,
		"created": timeText(s.Created), "epoch_opened": timeText(s.EpochOpened),
	}
	if !s.OldestRecord.IsZero() {
		fields["lag_seconds"] = time.Since(s.OldestRecord).Seconds()
	}
	return fields
}

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/config"
)

const (
	ringWaitDefault = 5 * time.Second
	ringPollPause   = 50 * time.Millisecond
	ringSizeLeast   = 16384
)

func newStreamCommand(env *environment) *cobra.Command {
	return newGroup("stream", "Create, list, take over and delete streams",
		newStreamCreateCommand(env), newStreamListCommand(env), newStreamShowCommand(env),
		newStreamGrantCommand(env), newStreamTakeoverCommand(env),
		newStreamDeleteCommand(env), newStreamRebindCommand(env), newStreamMembersCommand(env))
}

// createOptions are the flags of stream create; zero means the control plane's default.
type createOptions struct {
	size, recordLenMax uint64
	align              uint32
	level, policy      string
	deadline, wait     time.Duration
	members, needed    uint32
	failureDomain      string
	kind, encryption   string
	target, drain      string
	writer             string
	latencyLimit       time.Duration
	records, bytes     uint64 // a second
}

func newStreamCreateCommand(env *environment) *cobra.Command {
	options := createOptions{wait: ringWaitDefault}
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a stream; idempotent: the same command again changes nothing",
		Args:  exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return createStream(cmd.Context(), env, args[0], options)
		},
	}
	flags := cmd.Flags()
	flags.Var((*config.SizeValue)(&options.size), "size",
		"size of the ring's region, a multiple of 4KiB (default 64MiB)")
	flags.Var((*config.SizeValue)(&options.recordLenMax), "record-len-max",
		"largest record, its 64 bytes of header and trailer included (default 1MiB, or a quarter of the ring)")
	flags.Uint32Var(&options.align, "align", 0, "`bytes` that records are aligned to, 64 to 4096 (default 64)")
	flags.StringVar(&options.level, "level", "persistent",
		"durability `level` of acknowledgements: posted, visible or persistent")
	flags.StringVar(&options.policy, "policy", "block", "when the ring is full: block until the deadline, or reject")
	flags.Var((*config.DurationValue)(&options.deadline), "deadline",
		"deadline of an append (default: the region's own)")
	flags.Uint32Var(&options.members, "members", 0,
		"`rings` of the stream, each on a target in another failure domain (default 1)")
	flags.Uint32Var(&options.needed, "needed", 0,
		"`members` that an acknowledgement waits for (default: more than half of them)")
	flags.StringVar(&options.failureDomain, "failure-domain", "",
		"failure domain that no two members share: host, rack or site (default host)")
	flags.StringVar(&options.kind, "kind", "", "`kind` of place for the ring: nvmeof, in a namespace that the fabric "+
		"declares and the writer's host has connected (default: a region of a target)")
	flags.StringVar(&options.encryption, "encryption", "",
		"`method` by which clients encrypt records, for good: aes-256-gcm (default: none)")
	flags.StringVar(&options.target, "target", "",
		"`host` whose target holds the ring, for a stream with one ring (default: any)")
	flags.StringVar(&options.writer, "writer-host", "", "`host` of the writer: among the targets that fit, placement "+
		"chooses the one with the shortest round-trip time, as this host's agent measures it (default: any)")
	flags.Var((*config.DurationValue)(&options.latencyLimit), "latency-limit",
		"maximum round-trip time from --writer-host to a target; placement waits for a measurement (default: any)")
	flags.Uint64Var(&options.records, "records-per-second", 0, "declared average of `records` a second, for the "+
		"quota of its tenant and farlog plan; it limits no append (default: none declared)")
	flags.Var((*config.SizeValue)(&options.bytes), "bytes-per-second", "declared bytes of payloads and keys a second")
	flags.StringVar(&options.drain, "drain", "", "`host` whose drain reads the stream (default: any)")
	flags.Var((*config.DurationValue)(&options.wait), "wait",
		"how long to wait for the ring to be created; 0 = do not wait")
	return cmd
}

func (o createOptions) spec(name string) (*api.StreamSpec, error) {
	if o.size != 0 && (o.size%4096 != 0 || o.size < ringSizeLeast) {
		return nil, usageErrorf("stream %q: ring size %d: expected a multiple of 4096 bytes from %d to 16TiB", name,
			o.size, ringSizeLeast)
	}
	spec := &api.StreamSpec{
		Name: name, RingSizeBytes: o.size, Align: o.align, Members: o.members, Needed: o.needed,
		FailureDomain: o.failureDomain, Kind: o.kind, Encryption: o.encryption,
		TargetHost: o.target, DrainHost: o.drain, WriterHost: o.writer, RecordsPerSecond: o.records,
		BytesPerSecond: o.bytes,
	}
	if o.recordLenMax > 1<<31 {
		return nil, usageErrorf("--record-len-max %s: expected at most 2GiB", config.FormatSize(o.recordLenMax))
	}
	spec.RecordLenMax = uint32(o.recordLenMax)
	level, ok := api.Level_value["LEVEL_"+strings.ToUpper(o.level)]
	if !ok || level == 0 {
		return nil, usageErrorf("--level %q: expected posted, visible or persistent", o.level)
	}
	policy, ok := api.Policy_value["POLICY_"+strings.ToUpper(o.policy)]
	if !ok || policy == 0 {
		return nil, usageErrorf("--policy %q: expected block or reject", o.policy)
	}
	spec.Level, spec.Policy = api.Level(level), api.Policy(policy)
	if o.latencyLimit > 0 {
		spec.LatencyLimit = durationpb.New(o.latencyLimit)
	}
	if o.deadline > 0 {
		spec.Deadline = durationpb.New(o.deadline)
	}
	return spec, nil
}

func createStream(ctx context.Context, env *environment, name string, options createOptions) error {
	spec, err := options.spec(name)
	if err != nil {
		return err
	}
	client, err := env.dialControl()
	if err != nil {
		return err
	}
	defer client.Close()
	call, cancel := context.WithTimeout(ctx, client.timeout)
	defer cancel()
	created, err := client.CreateStream(call, &api.CreateStreamRequest{Spec: spec})
	if err != nil {
		return client.explain(call, name, err)
	}
	status, err := waitRing(ctx, client, name, options.wait)
	if err != nil {
		return err
	}
	if env.isJSON() {
		return env.writeProto(status)
	}
	verb := "exists already"
	if created.Created {
		verb = "created"
	}
	fmt.Fprintf(env.stdout, "stream %s %s: id %d, %s, ring %s\n", name, verb, created.Stream.StreamId,
		shortName(created.Stream.Spec.Level.String()), ringText(status))
	return nil
}

// waitRing asks until the ring is there or reports an error. A ring that is merely late is no failure of the creation.
func waitRing(ctx context.Context, client *controlClient, name string, wait time.Duration) (*api.StreamStatus, error) {
	for began := time.Now(); ; {
		call, cancel := context.WithTimeout(ctx, client.timeout)
		response, err := client.GetStream(call, &api.GetStreamRequest{Name: name})
		if err != nil {
			defer cancel()
			return nil, client.explain(call, name, err)
		}
		cancel()
		status := response.Stream
		for _, ring := range status.Rings {
			if ring.Error != "" {
				return nil, fmt.Errorf("stream %q is created, but has no ring: %s", name, ring.Error)
			}
		}
		if len(status.Rings) >= memberCount(status) || time.Since(began) >= wait {
			return status, nil
		}
		select {
		case <-time.After(ringPollPause):
		case <-ctx.Done():
			return nil, errors.New("interrupted")
		}
	}
}

func ringText(status *api.StreamStatus) string {
	if len(status.Rings) < memberCount(status) {
		return plain("pending (" + status.Reason + ")")
	}
	uris := make([]string, len(status.Rings))
	for i, ring := range status.Rings {
		uris[i] = ring.Uri
	}
	return strings.Join(uris, ", ")
}

// atTarget names the target of one of several rings.
func atTarget(status *api.StreamStatus, ring *api.RingState) string {
	if memberCount(status) == 1 {
		return ""
	}
	return "at target " + ring.Target
}

// memberCount is how many rings the stream is to have.
func memberCount(status *api.StreamStatus) int {
	return max(1, int(status.Stream.GetSpec().GetMembers()))
}

func newStreamListCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the streams",
		Args:  exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return listStreams(cmd.Context(), env)
		},
	}
}

func listStreams(ctx context.Context, env *environment) error {
	streams, err := fetchStreams(ctx, env)
	if err != nil {
		return err
	}
	return env.writeTable(&api.ListStreamsResponse{Streams: streams}, "NAME\tID\tSIZE\tLEVEL\tPOLICY\tSTATE",
		"\tEPOCH\tRECORD MAX\tALIGN\tMEMBERS\tTARGET\tRING", func(table *tabwriter.Writer) {
			for _, status := range streams {
				spec := status.Stream.Spec
				tableRow(table, "%s\t%d\t%s\t%s\t%s\t%s", spec.Name, status.Stream.StreamId,
					config.FormatSize(spec.RingSizeBytes), shortName(spec.Level.String()),
					shortName(spec.Policy.String()), shortName(status.Condition.String()))
				if env.isWide() {
					tableRow(table, "\t%d\t%s\t%d\t%d\t%s\t%s", status.EpochGranted,
						config.FormatSize(uint64(spec.RecordLenMax)), spec.Align,
						memberCount(status), targetOf(status), ringText(status))
				}
				fmt.Fprintln(table)
			}
		})
}

func fetchStreams(ctx context.Context, env *environment) ([]*api.StreamStatus, error) {
	all, err := listAll(ctx, env, new(api.ListStreamsRequest), (*controlClient).ListStreams)
	return all.GetStreams(), err
}

func targetOf(status *api.StreamStatus) string {
	if len(status.RingSpecs) == 0 {
		return "-"
	}
	targets := make([]string, len(status.RingSpecs))
	for i, ring := range status.RingSpecs {
		targets[i] = ring.Target
	}
	return strings.Join(targets, ", ")
}

func newStreamShowCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: "Show one stream: its spec and its reported state",
		Args:  exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			status, err := env.streamStatus(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if env.isJSON() {
				return env.writeProto(status)
			}
			return showStream(env, status)
		},
	}
}

// isRemoteRing tells the URI of one ring on another host.
func isRemoteRing(uri string) bool {
	return strings.HasPrefix(uri, "ofi:") || strings.HasPrefix(uri, "verbs:")
}

func showStream(env *environment, status *api.StreamStatus) error {
	stream, table := status.Stream, env.newTable()
	line := func(name, format string, args ...any) {
		tableRow(table, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	line("stream", "%s", stream.Spec.Name)
	line("id", "%d", stream.StreamId)
	line("created", "%s", stream.CreateTime.AsTime().Format(time.RFC3339))
	line("state", "%s", strings.TrimSpace(shortName(status.Condition.String())+" "+status.Reason))
	line("ring size", "%s", config.FormatSize(stream.Spec.RingSizeBytes))
	line("record len max", "%s", config.FormatSize(uint64(stream.Spec.RecordLenMax)))
	line("align", "%d", stream.Spec.Align)
	if stream.Spec.Encryption != "" {
		line("encryption", "%s", stream.Spec.Encryption)
	}
	line("level", "%s, k %d", shortName(stream.Spec.Level.String()), stream.K)
	line("policy", "%s", shortName(stream.Spec.Policy.String()))
	if count := memberCount(status); count > 1 {
		line("members", "%d, of which an acknowledgement needs %d, each on another %s", count, stream.K,
			stream.Spec.FailureDomain)
	}
	line("epoch granted", "%d", status.EpochGranted)
	if holder := status.LastGrant.GetHolder(); holder != nil {
		line("last grant", "host %s pid %d %s at %s", holder.Host, holder.Pid, holder.Name,
			status.LastGrant.GrantTime.AsTime().Format(time.RFC3339))
		line("writer", "%s", writerSettingsText(status.LastGrant))
		for _, member := range status.LastGrant.Members {
			if isRemoteRing(member.Uri) || strings.HasPrefix(member.Uri, "nvme:nqn.") {
				line("writer connects to", "%s", member.Uri)
			}
		}
	}
	line("target", "%s", targetOf(status))
	for _, path := range status.Paths {
		line("path", "%s", pathText(stream.Spec.WriterHost, path))
	}
	if limit := stream.Spec.LatencyLimit; limit != nil {
		line("latency limit", "%s", limit.AsDuration())
	}
	line("drain", "%s", drainText(status))
	if lost := status.Assignment.GetLostStore(); lost != nil {
		line("lost store", "%s; given up %s by %s: %s", lostText(lost), lost.RebindTime.AsTime().Format(time.RFC3339),
			lost.By, lost.Reason)
	}
	for _, ring := range status.Rings {
		line("ring", "%s", strings.TrimSpace(ring.Uri+" "+atTarget(status, ring)))
		for _, uri := range ring.RemoteUris {
			line("remote ring", "%s", uri)
		}
		line("ring uuid", "%x", ring.RingUuid)
		if contract := ring.Contract; contract != nil {
			line("contract", "%s by %s on %s: %s", shortName(contract.Level.String()), contract.FlushMethod,
				contract.Kind, contract.Probe)
			if contract.Attestation != "" {
				line("attested", "%s", contract.Attestation)
			}
		}
	}
	return table.Flush()
}

func drainText(status *api.StreamStatus) string {
	switch {
	case status.Assignment == nil:
		return "-"
	case !status.DrainAlive:
		return status.Assignment.Drain + " (does not report)"
	}
	return status.Assignment.Drain
}

// shortName is "persistent" for LEVEL_PERSISTENT and "drain gone" for CONDITION_DRAIN_GONE.
func shortName(name string) string {
	_, rest, _ := strings.Cut(name, "_")
	return strings.ToLower(strings.ReplaceAll(rest, "_", " "))
}

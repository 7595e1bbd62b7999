package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/identity"
	"github.com/farlog/farlog/pkg/internal/port"
)

// The control plane with a large fabric: a farlogd control as it is installed, with its etcd inside, and agents on as
// many hosts as there are targets, which speak to it as the daemons do and provide no memory. Grants are of one real
// target. What other programs take of the machine shows in all of it.
const (
	fabricStreams = 10_000
	fabricHosts   = 100
	fabricGrants  = 100
	fabricSteady  = 20 * time.Second
	fabricMoving  = time.Minute // in which control writes the figures of each agent once
	fabricWait    = 10 * time.Minute
	fabricPage    = 1000
	fabricPause   = 20 * time.Millisecond
	ticksPerSec   = 100 // of /proc/PID/stat: USER_HZ
)

// fabric is what is measured.
type fabric struct {
	dir     string
	daemon  string
	process *exec.Cmd
	conn    *grpc.ClientConn
	control api.ControlServiceClient
	agents  *agents
	hosts   []*hostAgent
	streams int
}

// fabricAddress is where control listens, from its first start to its last.
var fabricAddress string

// benchFabric runs only when it is asked for: it takes minutes. parts are the names of the steps to run; none: all.
func benchFabric(parts []string) (err error) {
	dir, err := os.MkdirTemp("", "farlog-fabric-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	f := &fabric{dir: dir, daemon: os.Getenv("FARLOGD")}
	f.daemon = cmp.Or(f.daemon, "bin/farlogd")
	free, err := port.Reserve()
	if err != nil {
		return err
	}
	fabricAddress = fmt.Sprintf("127.0.0.1:%d", free)
	if err := f.certify(); err != nil {
		return err
	}
	if err := f.startControl(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.end()) }()
	endTarget, err := f.startTarget(context.Background())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, endTarget()) }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if f.agents, err = startAgents(ctx, fabricHosts, f.credentials); err != nil {
		return err
	}
	if err := f.awaitAgents(ctx); err != nil {
		return err
	}
	for _, step := range f.steps() {
		if len(parts) > 0 && !slices.Contains(parts, step.name) {
			continue
		}
		if err := step.run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// fabricStep is one thing that is measured. Each needs apply, and those of writers need writers.
type fabricStep struct {
	name string
	run  func(context.Context) error
}

func (f *fabric) steps() []fabricStep {
	return []fabricStep{
		{"apply", f.apply},
		{"list", f.list},
		{"watch", f.fanOut},
		{"steady", f.steady},
		{"writers", f.writers},
		{"busy", f.busy},
		{"asked", f.asked},
		{"list", f.list},
		{"restart", f.restart},
		{"list", f.list},
		{"compare", f.compare},
		{"grants", f.grants},
	}
}

func (f *fabric) startControl() (err error) {
	f.process, err = f.start("control", f.secured("--listen", fabricAddress, "--metrics-listen", "127.0.0.1:0",
		"--data-dir", filepath.Join(f.dir, "control"))...)
	if err != nil {
		return err
	}
	if f.conn, err = grpc.NewClient(fabricAddress, grpc.WithTransportCredentials(f.credentials(identity.KindAdmin)),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20))); err != nil {
		return err
	}
	f.control = api.NewControlServiceClient(f.conn)
	return nil
}

// start runs a daemon and waits until it is ready.
func (f *fabric) start(role string, args ...string) (*exec.Cmd, error) {
	ready := filepath.Join(f.dir, role+".ready")
	process := exec.Command(f.daemon, append([]string{role, "--ready-file", ready, "--log-level", "warn"}, args...)...)
	process.Stderr = os.Stderr
	process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := process.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w: make build first, or name it in FARLOGD", f.daemon, err)
	}
	return process, await(role+" is ready", func() (bool, error) {
		if _, err := os.Stat(ready); err == nil {
			return true, nil
		}
		if raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process.Process.Pid)); err != nil ||
			strings.Contains(string(raw), ") Z ") {
			return false, fmt.Errorf("%s ended before it was ready", role)
		}
		return false, nil
	})
}

func (f *fabric) end() error {
	f.conn.Close()
	return stopDaemon(f.process)
}

func stopDaemon(process *exec.Cmd) error {
	if err := process.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return process.Wait()
}

// await looks until something is so.
func await(what string, isSo func() (bool, error)) error {
	for deadline := time.Now().Add(fabricWait); time.Now().Before(deadline); time.Sleep(fabricPause) {
		if is, err := isSo(); is || err != nil {
			return err
		}
	}
	return fmt.Errorf("not within %s: %s", fabricWait, what)
}

// awaitAgents waits until control knows of all of them and of the real target: streams are refused that no target is
// known to have space for.
func (f *fabric) awaitAgents(ctx context.Context) error {
	return await("all agents are known", func() (bool, error) {
		known, err := f.control.ListAgents(ctx, &api.ListAgentsRequest{})
		return err == nil && len(known.TargetsAlive) > fabricHosts && len(known.DrainsAlive) >= fabricHosts, nil
	})
}

func (f *fabric) apply(ctx context.Context) error {
	declared := new(api.Fabric)
	for i := range fabricStreams {
		declared.Streams = append(declared.Streams, &api.StreamSpec{
			Name:          fmt.Sprintf("desk%02d/s%05d", i%50, i),
			RingSizeBytes: 1 << 20,
		})
	}
	began, before := time.Now(), f.processor()
	if _, err := f.control.ApplyFabric(ctx, &api.ApplyFabricRequest{Fabric: declared}); err != nil {
		return err
	}
	applied := time.Since(began)
	f.streams = fabricStreams
	if err := await("all streams have rings and drains",
		func() (bool, error) {
			return f.agents.bound() == f.streams && f.agents.given() == f.streams,
				nil
		}); err != nil {
		return err
	}
	placed := time.Since(began)
	return errors.Join(
		f.report("fabric/apply", applied.Seconds(), "s", fmt.Sprintf("%d streams in one call", f.streams)),
		f.report("fabric/place", placed.Seconds(), "s", fmt.Sprintf("from the call on until all rings were placed, "+
			"reported, bound and given to drains, of which all agents had been told; %.1f s of the processor",
			f.processor()-before)),
	)
}

// list is a median of three.
func (f *fabric) list(ctx context.Context) error {
	var took []time.Duration
	for range 3 {
		began := time.Now()
		all, _, err := f.countStreams(ctx)
		if err != nil {
			return err
		}
		if all != f.streams {
			return fmt.Errorf("%d of %d streams are listed", all, f.streams)
		}
		took = append(took, time.Since(began))
	}
	return f.report("fabric/list", median(took).Seconds(), "s",
		fmt.Sprintf("all %d streams with their state, %d a page", f.streams, fabricPage))
}

// countStreams lists all streams, and counts those in order.
func (f *fabric) countStreams(ctx context.Context) (all, good int, err error) {
	request := &api.ListStreamsRequest{PageSize: fabricPage}
	for {
		page, err := f.control.ListStreams(ctx, request)
		if err != nil {
			return all, good, err
		}
		for _, one := range page.Streams {
			if strings.HasPrefix(one.Stream.Spec.Name, fabricOwn) {
				continue
			}
			if all++; one.Condition == api.Condition_CONDITION_OK {
				good++
			}
		}
		if request.PageToken = page.NextPageToken; request.PageToken == "" {
			return all, good, nil
		}
	}
}

// fanOut declares a stream more for every host, and waits until the last target has been told of its ring.
func (f *fabric) fanOut(ctx context.Context) error {
	declared := new(api.Fabric)
	for i := range fabricHosts {
		declared.Streams = append(declared.Streams, &api.StreamSpec{
			Name:       fmt.Sprintf("fan/s%03d", i),
			TargetHost: hostName(i), RingSizeBytes: 1 << 20,
		})
	}
	began := time.Now()
	if _, err := f.control.ApplyFabric(ctx, &api.ApplyFabricRequest{Fabric: declared}); err != nil {
		return err
	}
	applied := time.Since(began)
	f.streams += fabricHosts
	if err := await("every target has its new ring", func() (bool, error) {
		return f.agents.wanted() == f.streams,
			nil
	}); err != nil {
		return err
	}
	told := time.Since(began)
	if err := await("the new streams are bound and given",
		func() (bool, error) {
			return f.agents.bound() == f.streams && f.agents.given() == f.streams,
				nil
		}); err != nil {
		return err
	}
	return f.report("fabric/watch", told.Seconds()*1000, "ms", fmt.Sprintf("from a call that declares a stream for "+
		"each of %d targets until the watch of the last has told it of its ring; the call took %d ms of it",
		fabricHosts, applied.Milliseconds()))
}

func (f *fabric) steady(context.Context) error {
	return f.rest("fabric/steady", "nobody writes", fabricSteady)
}

// rest measures what control takes when nothing is asked of it.
func (f *fabric) rest(name, what string, over time.Duration) error {
	time.Sleep(5 * time.Second) // the last reports of what was made
	runtime.GC()                // the agents' own, which shares the machine
	began, before, reports, states := time.Now(), f.processor(), f.agents.reports.Load(), f.agents.states.Load()
	time.Sleep(over)
	share := 100 * (f.processor() - before) / time.Since(began).Seconds()
	reports, states = f.agents.reports.Load()-reports, f.agents.states.Load()-states
	perReport := 1e6 * (f.processor() - before) / float64(reports)
	memory, err := f.memory()
	return errors.Join(err, f.report(name, share, "% core", fmt.Sprintf("control over %s, %d reports of targets and "+
		"drains, %d of them with the figures of about %d streams: %.0f us each; %s", over, reports, states,
		f.streams/fabricHosts, perReport, what)),
		f.report(name+"-resident", memory.now, "MiB", fmt.Sprintf("of control, %.0f of them pages of files; the most "+
			"there ever was is %.0f MiB", memory.files, memory.most)))
}

// restart ends when the new process has listed all streams as being in order: their targets and drains have come back
// to it.
func (f *fabric) restart(ctx context.Context) error {
	ready, whole, err := f.again(ctx)
	memory, failed := f.memory()
	return errors.Join(err, failed, f.report("fabric/restart", whole.Seconds(), "s", fmt.Sprintf("from the start of "+
		"control until all %d streams are listed as in order; ready after %.1f s, %.1f s of the processor", f.streams,
		ready.Seconds(), f.processor())),
		f.report("fabric/restart-resident", memory.now, "MiB",
			fmt.Sprintf("of control then, %.0f of them pages of files; the most was %.0f MiB", memory.files,
				memory.most)))
}

// again stops control and starts it, and tells when it answered, and when it listed all streams as being in order.
func (f *fabric) again(ctx context.Context) (ready, whole time.Duration, err error) {
	if err := f.end(); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := f.startControl(); err != nil {
		return 0, 0, err
	}
	ready = time.Since(began)
	err = await("all streams are in order after the restart", func() (bool, error) {
		all, good, err := f.countStreams(ctx)
		return err == nil && all == f.streams && good == f.streams, nil
	})
	return ready, time.Since(began), err
}

// grants lets a writer into streams that have never had one, one after the other, and appends.
func (f *fabric) grants(ctx context.Context) (err error) {
	declared := &api.Fabric{Targets: []*api.TargetSpec{{Host: fabricTarget}}} // without a bound
	for i := range fabricGrants {
		declared.Streams = append(declared.Streams, &api.StreamSpec{
			Name:       fmt.Sprintf("grant/s%03d", i),
			TargetHost: fabricTarget, RingSizeBytes: 1 << 20, Level: api.Level_LEVEL_VISIBLE,
		})
	}
	if _, err := f.control.ApplyFabric(ctx, &api.ApplyFabricRequest{Fabric: declared}); err != nil {
		return err
	}
	err = await("the target has made the rings", func() (bool, error) {
		page, err := f.control.ListStreams(ctx, &api.ListStreamsRequest{Name: "grant/*"})
		isBound := func(one *api.StreamStatus) bool {
			return len(one.RingSpecs) == 1 &&
				len(one.RingSpecs[0].RingUuid) > 0
		}
		return err == nil && len(page.Streams) == fabricGrants &&
			!slices.ContainsFunc(page.Streams, func(one *api.StreamStatus) bool { return !isBound(one) }), nil
	})
	if err != nil {
		return err
	}
	var took, granted []time.Duration
	for _, spec := range declared.Streams {
		grant, all, err := f.grant(ctx, spec.Name)
		if err != nil {
			return fmt.Errorf("write %s: %w", spec.Name, err)
		}
		took, granted = append(took, all), append(granted, grant)
	}
	slices.Sort(took)
	note := fmt.Sprintf("from the call for a grant until the first append of a new writer is acknowledged, by a "+
		"target on this host, %d times; the call alone %.1f ms", fabricGrants, median(granted).Seconds()*1000)
	return errors.Join(f.report("fabric/grant-p50", median(took).Seconds()*1000, "ms", note),
		f.report("fabric/grant-p99", took[len(took)*99/100].Seconds()*1000, "ms", "the same"))
}

func (f *fabric) grant(ctx context.Context, stream string) (granted, all time.Duration, err error) {
	began := time.Now()
	response, err := f.control.AcquireWriter(ctx, &api.AcquireWriterRequest{
		Stream: stream,
		Holder: &api.Holder{Host: fabricTarget, Pid: uint32(os.Getpid()), Name: "bench"},
	})
	if err != nil {
		return 0, 0, err
	}
	granted = time.Since(began)
	member := response.Grant.Members[0]
	options := farlog.WriterOptions{
		Level: farlog.Level(response.Grant.Level), Epoch: response.Grant.Epoch,
		Name: "bench", CountersDir: "none", Deadline: 10 * time.Second, RingUUID: (*[16]byte)(member.RingUuid),
	}
	writer, err := farlog.OpenWriter(member.Uri, options)
	if err != nil {
		return 0, 0, err
	}
	_, err = writer.Append(farlog.Entry{Data: []byte("first")}, 10*time.Second)
	all = time.Since(began)
	return granted, all, errors.Join(err, writer.Close())
}

func (f *fabric) report(name string, value float64, unit, note string) error {
	return report(result{Name: name, Ours: value, Unit: unit, Note: note}, 0)
}

// processor is how many seconds of it control has had.
func (f *fabric) processor() float64 {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", f.process.Process.Pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / ticksPerSec
}

// resident is in MiB. Pages of files are its program and its database: the kernel drops those that nobody has asked for
// lately when it wants space.
type resident struct{ now, files, most float64 }

// memory is what control has resident.
func (f *fabric) memory() (seen resident, err error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", f.process.Process.Pid))
	for _, line := range strings.Split(string(raw), "\n") {
		name, rest, _ := strings.Cut(line, ":")
		kib, failed := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 64)
		if failed != nil {
			continue
		}
		switch name {
		case "VmRSS":
			seen.now = kib / 1024
		case "RssFile":
			seen.files = kib / 1024
		case "VmHWM":
			seen.most = kib / 1024
		}
	}
	return seen, err
}

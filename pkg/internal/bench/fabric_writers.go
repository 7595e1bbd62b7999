package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/hostagent"
	"github.com/farlog/farlog/pkg/identity"
)

// fabricAsk is how often a running writer asks: rdma/src/agent/follow.c.
const fabricAsk = 5 * time.Second

// hostAgent asks for the writers of one host, from an address of its own: the control plane's limits are each client's.
type hostAgent struct {
	host     string
	control  api.ControlServiceClient
	requests []hostagent.ExtendRequest // of its writers
	calls    atomic.Int64              // to the control plane
}

// writers lets a writer into every stream, on the host of its ring.
func (f *fabric) writers(ctx context.Context) error {
	for i := range fabricHosts {
		from := &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(i+1))}
		conn, err := grpc.NewClient("passthrough:///"+fabricAddress,
			grpc.WithTransportCredentials(f.credentials(identity.KindHost)),
			grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				return (&net.Dialer{LocalAddr: from}).DialContext(ctx, "tcp", address)
			}))
		if err != nil {
			return err
		}
		context.AfterFunc(ctx, func() { conn.Close() })
		f.hosts = append(f.hosts, &hostAgent{host: hostName(i), control: api.NewControlServiceClient(conn)})
	}
	began, before := time.Now(), f.processor()
	f.agents.opened = timestamppb.Now()
	var all sync.WaitGroup
	failures := make(chan error, fabricHosts)
	for i, host := range f.hosts {
		all.Go(func() {
			if err := host.acquire(ctx, f.agents.targets[i]); err != nil {
				failures <- err
			}
		})
	}
	all.Wait()
	close(failures)
	for err := range failures {
		return err
	}
	if err := await("every writer is reported", func() (bool, error) {
		return f.agents.written() == f.streams,
			nil
	}); err != nil {
		return err
	}
	return f.report("fabric/writers", time.Since(began).Seconds(), "s",
		fmt.Sprintf("until %d streams had a writer each, by %d hosts at once; %.1f s of the processor", f.streams,
			len(f.hosts), f.processor()-before))
}

// acquire gets a grant for each ring of a target on this host.
func (h *hostAgent) acquire(ctx context.Context, target *targetAgent) error {
	target.mutex.Lock()
	rings := target.rings
	target.mutex.Unlock()
	for i, ring := range rings {
		stream, pid := ring.Stream.Spec.Name, int32(1000+i)
		response, err := h.control.AcquireWriter(ctx, &api.AcquireWriterRequest{
			Stream: stream,
			Holder: &api.Holder{Host: h.host, Pid: uint32(pid), Name: "bench"},
		})
		if err != nil {
			return fmt.Errorf("write %s: %w", stream, err)
		}
		grant := response.Grant
		running := &hostagent.Terms{
			Level: uint32(grant.Level), Policy: uint32(grant.Policy),
			Deadline: grant.Deadline.AsDuration(),
		}
		h.requests = append(h.requests, hostagent.ExtendRequest{
			Stream: stream, Epoch: grant.Epoch,
			RingUUIDs: [][]byte{grant.Members[0].RingUuid}, PID: pid, Running: running,
		})
		target.open(stream, grant.Epoch)
	}
	return nil
}

// extend asks for one writer.
func (h *hostAgent) extend(ctx context.Context, request hostagent.ExtendRequest) ([]hostagent.Extension,
	hostagent.Terms, error,
) {
	h.calls.Add(1)
	response, err := h.control.ExtendWriter(ctx, &api.ExtendWriterRequest{
		Stream: request.Stream, Epoch: request.Epoch,
		Holder:    &api.Holder{Host: h.host, Pid: uint32(request.PID)},
		RingUuids: request.RingUUIDs, Running: apiSettings(request.Running),
	})
	if err != nil {
		return nil, hostagent.Terms{}, err
	}
	return nil, settingsOf(response.Declared), nil
}

// check asks for many.
func (h *hostAgent) check(ctx context.Context, writers []hostagent.Known) (changed []int, err error) {
	h.calls.Add(1)
	request := &api.CheckWritersRequest{Host: h.host}
	for _, one := range writers {
		request.Writers = append(request.Writers, &api.RunningWriter{
			Stream: one.Stream, Epoch: one.Epoch,
			Pid: uint32(one.PID), RingUuids: one.RingUUIDs, Running: apiSettings(one.Running),
			Declared: apiSettings(&one.Declared),
		})
	}
	response, err := h.control.CheckWriters(ctx, request)
	for _, place := range response.GetChanged() {
		changed = append(changed, int(place))
	}
	return changed, err
}

// watch has control tell of them.
func (h *hostAgent) watch(ctx context.Context, onTold func([]hostagent.Told, []string, bool), onDown func()) {
	api.Follow(ctx, func(ctx context.Context) (grpc.ServerStreamingClient[api.WatchWritersResponse], error) {
		h.calls.Add(1)
		return h.control.WatchWriters(ctx, &api.WatchWritersRequest{Host: h.host})
	}, func(message *api.WatchWritersResponse) {
		var told []hostagent.Told
		for _, one := range message.Writers {
			told = append(told, hostagent.Told{
				Stream: one.Stream, Epoch: one.Epoch, PID: int32(one.Pid),
				Declared: settingsOf(one.Declared), Running: settingsOf(one.Running), RingUUIDs: one.RingUuids,
			})
		}
		onTold(told, message.Gone, message.Snapshot)
	}, func(error) { onDown() })
}

func settingsOf(said *api.WriterSettings) hostagent.Terms {
	return hostagent.Terms{Level: uint32(said.Level), Policy: uint32(said.Policy), Deadline: said.Deadline.AsDuration()}
}

func apiSettings(terms *hostagent.Terms) *api.WriterSettings {
	said := &api.WriterSettings{Level: api.Level(terms.Level), Policy: api.Policy(terms.Policy)}
	if terms.Deadline > 0 {
		said.Deadline = durationpb.New(terms.Deadline)
	}
	return said
}

type extend func(context.Context, hostagent.ExtendRequest) ([]hostagent.Extension, hostagent.Terms, error)

// ask has every writer ask once in fabricAsk, evenly, until ctx is done.
func (h *hostAgent) ask(ctx context.Context, extend extend, asked, failed *atomic.Int64) {
	tick := time.NewTicker(fabricAsk / time.Duration(len(h.requests)))
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		asked.Add(1)
		if _, _, err := extend(ctx, h.requests[i%len(h.requests)]); err != nil && ctx.Err() == nil {
			failed.Add(1)
		}
	}
}

// busy is steady with agents whose figures move, without and with writers that ask.
func (f *fabric) busy(ctx context.Context) error {
	f.agents.begin()
	return f.rest("fabric/busy", "and every figure of every stream moves between two reports", fabricMoving)
}

// asked has the writers ask, as host agents do it, and to compare with a call of the control plane for each question.
func (f *fabric) asked(ctx context.Context) error {
	by := func(isWatched bool) func(context.Context, *hostAgent) extend {
		return func(ctx context.Context, h *hostAgent) extend {
			questions := hostagent.Questions{Extend: h.extend, Check: h.check}
			if isWatched {
				questions.Watch = h.watch
			}
			writers := hostagent.NewWriters(questions, slog.New(slog.DiscardHandler))
			go writers.Run(ctx)
			return writers.Extend
		}
	}
	text := fmt.Sprintf("busy, and a writer of each stream asks its host agent each %s how the stream is declared",
		fabricAsk)
	return errors.Join(f.ask(ctx, "fabric/told", text+", which is told of changes by a watch", by(true)),
		f.ask(ctx, "fabric/asked", text+", which asks for all of them together, as without a watch", by(false)),
		f.ask(ctx, "fabric/asked-each", text+", which asks for each of them",
			func(_ context.Context, h *hostAgent) extend { return h.extend }))
}

func (f *fabric) ask(ctx context.Context, name, what string, extendOf func(context.Context, *hostAgent) extend) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var asked, failed atomic.Int64
	var all sync.WaitGroup
	for _, host := range f.hosts {
		all.Go(func() { host.ask(ctx, extendOf(ctx, host), &asked, &failed) })
	}
	err := await("every writer has asked twice", func() (bool, error) {
		return asked.Load() >= int64(2*f.streams),
			nil
	})
	began, before, count := time.Now(), f.calls(), asked.Load()
	err = errors.Join(err, f.rest(name, what, fabricMoving))
	calls, count, seconds := f.calls()-before, asked.Load()-count, time.Since(began).Seconds()
	cancel()
	all.Wait()
	if failed.Load() > 0 {
		err = errors.Join(err, fmt.Errorf("%d of %d questions of writers had no answer", failed.Load(), count))
	}
	return errors.Join(err, f.report(name+"-calls", float64(calls)/seconds, "1/s",
		fmt.Sprintf("of host agents to control, for %.0f questions a second of writers to them",
			float64(count)/seconds)))
}

// calls counts what host agents have asked control.
func (f *fabric) calls() (count int64) {
	for _, host := range f.hosts {
		count += host.calls.Load()
	}
	return count
}

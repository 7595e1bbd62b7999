//go:build cgo

package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/hostagent"
	"github.com/farlog/farlog/pkg/identity"
	"github.com/farlog/farlog/pkg/metrics"
	"github.com/farlog/farlog/pkg/nvmehost"
)

const (
	hostWritersName = "host-writers.json"
	socketPathMax   = 107 // sun_path of unix(7), less its end
)

// hostRole gets grants for the programs of this host. Which rings they were is kept in a file, so that their counters
// are exported also after a restart.
type hostRole struct {
	settings *settings
	client   api.ControlServiceClient
	server   *hostagent.Server
	meter    *pathMeter
	logger   *slog.Logger
	path     string

	mutex   sync.Mutex
	writers map[string]hostWriter    // by stream
	stalls  map[string]*farlog.Stall // by stream
	told    map[string]counts        // by stream: what the control plane was told of last
}

// hostWriter is the ring whose writer was granted last.
type hostWriter struct {
	RingUUID string `json:"ring_uuid"`
	Target   string `json:"target"`
	Level    string `json:"level"`
	Owner    string `json:"owner,omitempty"` // uid of who was granted it, whose counters are believed; "" = unknown
}

func (d *daemon) openHost(context.Context) error {
	rules, err := hostagent.ParseRules(d.settings.hostAllow)
	if err != nil {
		return &usageError{fmt.Sprintf("--host-allow %s", err)}
	}
	readers, err := hostagent.ParseRules(d.settings.hostRead)
	if err != nil {
		return &usageError{fmt.Sprintf("--host-read %s", err)}
	}
	devices, err := hostagent.ParseDevices(d.settings.hostDevices, findNamespace)
	if err != nil {
		return &usageError{fmt.Sprintf("--host-device %s", err)}
	}
	role := &hostRole{
		settings: d.settings, logger: d.logger.With("role", roleHost), path: d.dir(hostWritersName),
		writers: make(map[string]hostWriter),
		stalls:  make(map[string]*farlog.Stall),
	}
	if d.settings.isDev && len(d.settings.hostSocket) > socketPathMax {
		role.logger.Warn("no host agent: the path of its socket is too long, give --host-socket a shorter one", "path",
			d.settings.hostSocket)
		return nil
	}
	conn, err := d.dial(identity.KindHost)
	if err != nil {
		return err
	}
	d.warnOfAddresses()
	role.client = api.NewControlServiceClient(conn)
	role.meter = &pathMeter{
		client: api.NewHostServiceClient(conn), host: d.settings.hostName, logger: role.logger,
		link: d.newLink(roleHost), tell: role.writerStates, clockJump: d.clock.recent,
		namespaces: newHostNamespaces(nvmehost.Kernel{}, cmp.Or(d.settings.hostNVMeKeys, namespaceKeysDefault),
			role.logger),
	}
	role.meter.paths.OnMeasured = role.meter.link.progress.note
	role.recall()
	role.server, err = hostagent.Listen(hostagent.Config{
		Socket: d.settings.hostSocket, Rules: rules, Readers: readers,
		Devices: devices, Acquire: role.acquire, Route: role.route,
		Questions: hostagent.Questions{Extend: role.extend, Check: role.check, Watch: role.watch}, Logger: role.logger,
	})
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	d.sweepCounters()
	hasTarget := d.settings.has(roleTarget) // which exports the writers of its own rings
	metrics.NewAgent(d.registry, roleHost, role.meter.isConnected.Load)
	metrics.NewHost(d.registry, func() metrics.HostSample { return role.sample(!hasTarget) })
	d.hostSocket = d.settings.hostSocket
	d.parts = append(d.parts, part{
		run: func(ctx context.Context, ready func()) error {
			var measuring sync.WaitGroup
			defer measuring.Wait()
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			measuring.Go(func() {
				defer role.meter.namespaces.connections.Close()
				role.meter.run(ctx)
			})
			ready()
			return role.server.Run(ctx)
		},
		healthy: role.meter.link.healthy,
		close:   func() error { return errors.Join(role.server.Close(), conn.Close()) },
	})
	return nil
}

// findNamespace says where NQN/NUMBER is connected here now.
func findNamespace(name string) (string, error) {
	nqn, number, _ := strings.Cut(name, "/")
	namespace, err := strconv.ParseUint(number, 10, 32)
	if err != nil || namespace == 0 {
		return "", fmt.Errorf("namespace %q of subsystem %s: expected a number from 1 on", number, nqn)
	}
	device, err := nvmehost.Kernel{}.Find(nqn, uint32(namespace))
	return device.Path, err
}

// acquire asks the control plane, in the name of this host. Which user asks has been looked at.
func (r *hostRole) acquire(ctx context.Context, request hostagent.Request) (hostagent.Grant, error) {
	holder := &api.Holder{
		Host: r.settings.hostName, Pid: uint32(request.PID), Name: request.Name,
		Addresses: identity.Addresses(r.settings.hostAddresses),
	}
	if request.IsReader {
		asked := &api.AcquireReaderRequest{Stream: request.Stream, Transport: request.Transport, Holder: holder}
		response, err := api.Retry(ctx, func() (*api.AcquireReaderResponse, error) {
			return r.client.AcquireReader(ctx, asked)
		})
		if err != nil {
			return hostagent.Grant{}, refusalOf(err)
		}
		return r.readable(ctx, response.Grant)
	}
	asked := &api.AcquireWriterRequest{
		Stream: request.Stream, EpochSeen: request.EpochSeen,
		Transport: request.Transport, Holder: holder,
		RequestId: api.NewRequestID(), NoTakeover: !request.IsTakeover,
	}
	response, err := api.Retry(ctx, func() (*api.AcquireWriterResponse, error) {
		return r.client.AcquireWriter(ctx, asked)
	})
	if err != nil {
		return hostagent.Grant{}, refusalOf(err)
	}
	granted := response.Grant
	grant, err := r.readable(ctx, granted)
	if err != nil {
		return grant, err
	}
	member := granted.Members[0] // whose counters the writer keeps
	r.remember(request.Stream, hostWriter{
		RingUUID: hex.EncodeToString(member.RingUuid), Target: member.Target,
		Level: farlog.Level(granted.Level).String(), Owner: strconv.FormatUint(uint64(request.UID), 10),
	})
	return grant, nil
}

// readable is a grant of rings that this host reaches now.
func (r *hostRole) readable(ctx context.Context, granted *api.Grant) (hostagent.Grant, error) {
	for _, member := range granted.GetMembers() {
		if err := r.meter.namespaces.waitReadable(ctx, member.Uri); err != nil {
			return hostagent.Grant{}, err
		}
	}
	return grantOf(granted)
}

// grantOf is a grant in the agent's words.
func grantOf(granted *api.Grant) (hostagent.Grant, error) {
	if len(granted.GetMembers()) == 0 {
		return hostagent.Grant{}, fmt.Errorf("grant for stream %q names no ring", granted.GetStream())
	}
	var uris []string
	grant := hostagent.Grant{Epoch: granted.Epoch, Terms: settingsOf(&api.WriterSettings{
		Level:  granted.Level,
		Policy: granted.Policy, Deadline: granted.Deadline,
	})}
	for _, member := range granted.Members {
		if n := len(member.Token); len(member.RingUuid) != 16 || n != 0 && n != farlog.TokenLen {
			return hostagent.Grant{}, fmt.Errorf("grant for stream %q with a ring's uuid of %d bytes and a token of "+
				"%d, expected 16 and %d", granted.Stream, len(member.RingUuid), n, farlog.TokenLen)
		}
		uris, grant.RingUUIDs, grant.Tokens = append(uris, member.Uri),
			append(grant.RingUUIDs, [16]byte(member.RingUuid)), append(grant.Tokens, member.Token)
	}
	grant.URI = farlog.MembersURI(int(granted.K), uris...)
	return grant, nil
}

// refusalOf tells what a program asked for in vain from what the control plane could not do.
func refusalOf(err error) error {
	failure := status.Convert(err)
	said := errors.New(failure.Message())
	if api.IsWriterLiving(err) {
		return &hostagent.Refused{Result: "HELD", Err: fmt.Errorf("%w; farlog://NAME?takeover=yes is one", said)}
	}
	switch failure.Code() {
	case codes.NotFound:
		return &hostagent.Refused{Result: "NOT_FOUND", Err: said}
	case codes.InvalidArgument, codes.PermissionDenied, codes.FailedPrecondition:
		return &hostagent.Refused{Result: "INVALID", Err: said}
	}
	return fmt.Errorf("control plane: %w", said)
}

func (r *hostRole) remember(stream string, writer hostWriter) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.writers[stream] == writer {
		return
	}
	r.writers[stream] = writer
	raw, err := json.Marshal(r.writers)
	if err == nil {
		err = writeSecret(r.path, raw)
	}
	if err != nil {
		r.logger.Warn("the list of writers whose counters to export could not be saved for a "+
			"restart", "file", r.path, "error", err)
	}
}

func (r *hostRole) recall() {
	raw, err := os.ReadFile(r.path)
	if err == nil {
		err = json.Unmarshal(raw, &r.writers)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		r.logger.Warn("the list of writers whose counters to export could not be read", "file", r.path, "error", err)
	}
	if r.writers == nil {
		r.writers = make(map[string]hostWriter)
	}
}

func (r *hostRole) sample(hasWriters bool) metrics.HostSample {
	counts := r.server.Counts()
	sample := metrics.HostSample{
		Granted: counts.Granted, Refused: counts.Refused, Failed: counts.Failed,
		Paths: r.meter.samples(), Namespaces: r.meter.namespaces.samples(),
	}
	if !hasWriters {
		return sample
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, one := range r.readCounters(time.Now()) {
		members, _ := farlog.ReadMemberCounters(r.settings.countersDir, one.uuid) // of the same file
		sample.Writers = append(sample.Writers, metrics.HostWriterSample{
			Stream: one.stream, Target: one.writer.Target, Level: one.writer.Level,
			Writer: writerSample(one.counters, members, one.stalledFor),
		})
	}
	return sample
}

package main

import (
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/farlog/farlog/pkg/config"
	"github.com/farlog/farlog/pkg/control/pattern"
	"github.com/farlog/farlog/pkg/control/service"
	"github.com/farlog/farlog/pkg/identity"
	"github.com/farlog/farlog/pkg/nvmet"
)

const (
	roleControl = "control"
	roleTarget  = "target"
	roleDrain   = "drain"
	roleHost    = "host"
	roleReplica = "replica"
	roleDev     = "dev"

	listenDefault = "127.0.0.1:7070"
	// One port a role, so that three daemons on one host need no setting.
	controlMetricsDefault = "127.0.0.1:9464"
	targetMetricsDefault  = "127.0.0.1:9465"
	drainMetricsDefault   = "127.0.0.1:9466"
	hostMetricsDefault    = "127.0.0.1:9467"
	replicaMetricsDefault = "127.0.0.1:9468"

	// hostSocketDefault is where the C library looks when it was told nothing.
	hostSocketDefault = "/run/farlog/host.sock"

	auditOff     = "off"
	auditDefault = pattern.SystemPrefix + "audit"

	batchDefault = 1 << 20
	batchMost    = 1 << 30
)

// settings is everything a daemon can be told. Fields of roles that do not run are left at their defaults.
type settings struct {
	security
	isDev         bool // all roles on a laptop
	roles         []string
	dataDir       string
	listen        string
	metricsListen string
	control       string
	hostName      string
	readyFile     string
	logLevel      string
	traceEndpoint string

	targetRegions   []string
	targetListen    []string
	targetAdvertise string

	targetAttestation string
	nvmetFile         string
	nvmetState        string
	attestations      []config.Attestation // what is in it
	drainTransport    string

	etcdEndpoints []string
	etcdAuthority string
	etcdCert      string
	etcdKey       string
	lease         time.Duration
	readerGrant   time.Duration
	auditStream   string
	auditLevel    string
	countersDir   string
	storeDir      string
	segmentBytes  uint64
	batchBytes    uint64
	pollInterval  time.Duration

	verifyInterval time.Duration
	mergeLate      time.Duration
	storeServe     string
	replicaFrom    string
	replicaPoll    time.Duration

	hostAddresses []string
	hostSocket    string
	hostAllow     []string
	hostRead      []string
	hostDevices   []string
}

// declareSettings makes the flags of a role. The configuration file is the one thing that is not in itself.
func declareSettings(flags *pflag.FlagSet, role, metricsDefault string) (*settings, *config.Set, *string) {
	s, set := &settings{roles: []string{role}, isDev: role == roleDev}, config.New(flags)
	if role == roleDev {
		all := []string{roleControl, roleTarget, roleDrain, roleHost}
		set.Strings(&s.roles, "roles", all, "roles to run", config.EachOf(all...))
	}
	has := func(which string) bool { return role == which || role == roleDev }
	set.String(&s.dataDir, "data.dir", "", "`directory` of the files of this daemon", config.NotEmpty)
	set.String(&s.metricsListen, "metrics.listen", metricsDefault, "`address` of /metrics and /healthz, or off",
		config.AddressOrOff)
	set.String(&s.hostName, "host.name", "",
		"`name` of this host; agents of one host reach the same regions (default: the system's)")
	set.String(&s.readyFile, "ready.file", "", "`file` that the daemon writes when it has started (ready: false when "+
		"the control plane rejects it or was never reached), locks (flock) while it runs, and removes when it stops; "+
		"the next start removes the file of a killed daemon")
	set.String(&s.logLevel, "log.level", "info", "minimum `level` of log lines: debug, info, warn or error",
		config.OneOf("debug", "info", "warn", "error"))
	set.String(&s.traceEndpoint, "trace.endpoint", "", "`URL` of an OpenTelemetry collector for spans of the control "+
		"path, OTLP over gRPC: http://host:port (default: none)", traceURL)
	s.security.declare(set, has(roleControl) || has(roleDrain))
	if has(roleControl) {
		set.String(&s.listen, "listen", listenDefault, "`address` of the control plane", config.Address)
		set.Strings(&s.etcdEndpoints, "etcd.endpoints", nil, "`addresses` of an external etcd cluster: host:port, or "+
			"https://host:port for TLS (default: an embedded server)", eachEndpoint)
		set.String(&s.etcdAuthority, "etcd.ca", "",
			"`file` with the certificate authorities of the etcd cluster (default: the system's)")
		set.String(&s.etcdCert, "etcd.cert", "",
			"`file` with this control plane's certificate for the etcd cluster")
		set.String(&s.etcdKey, "etcd.key", "", "`file` with its key")
		set.Duration(&s.readerGrant, "reader.grant", service.ReaderGrantDefault, "how long a grant of a reader on "+
			"another host is valid: until then it has to connect, and to reconnect after a restart of the target; "+
			"programs that read by farlog:// and farlog tail NAME renew it",
			config.Range(time.Second, 24*time.Hour, time.Duration.String))
		set.Duration(&s.lease, "lease", 5*time.Second, "how long after its last report a daemon counts as alive",
			config.Range(2*time.Second, time.Hour, time.Duration.String))
		stream := auditDefault
		if role == roleDev {
			stream = auditOff // a laptop's streams are its owner's own
		}
		set.String(&s.auditStream, "audit.stream", stream,
			"`stream` of audit events, "+pattern.SystemPrefix+"NAME; off: they are only logged", checkAuditStream)
		set.String(&s.auditLevel, "audit.level", "persistent",
			"durability `level` of audit events: visible or persistent", config.OneOf("visible", "persistent"))
	}
	if role != roleControl {
		set.String(&s.control, "control", listenDefault,
			"`address` of the control plane, for a daemon that does not run it; of several host:port,host:port",
			config.Addresses)
	}
	if has(roleTarget) || role == roleHost {
		set.String(&s.countersDir, "counters.dir", "",
			"`directory` of the writers' shared counters (default: the C core's)")
	}
	if has(roleHost) || has(roleDrain) {
		set.Strings(&s.hostAddresses, "host.addresses", nil, identity.AddressesUsage, identity.CheckAddresses)
	}
	if has(roleHost) {
		set.String(&s.hostSocket, "host.socket", "", "`path` of the Unix socket at which programs of this host ask "+
			"for grants (default: "+hostSocketDefault+"; of dev: host.sock in --data-dir)")
		set.Strings(&s.hostAllow, "host.allow", nil, "who may write what: `USER=STREAMS` or @GROUP=STREAMS, such as "+
			"trading=desk7/*; may be repeated (default: root and the agent's own user)")
		set.Strings(&s.hostRead, "host.read", nil, "who may read what: `USER=STREAMS` or @GROUP=STREAMS, such as "+
			"risk=desk7/*; may be repeated (default: root and the agent's own user)")
		set.Strings(&s.hostDevices, "host.device", nil, "which users may have a block device opened for them: "+
			"`DEVICE=USER` or DEVICE=@GROUP, such as /dev/nvme1n1=trading or NQN/1=@desk7; may be repeated")
	}
	if role == roleTarget {
		declareTarget(s, set, flags)
	}
	if role == roleDrain {
		set.String(&s.drainTransport, "drain.transport", "",
			"`transport` to rings on other hosts: verbs or ofi (default: the fastest that the target offers)",
			config.OneOf("", "verbs", "ofi"))
	}
	if role == roleReplica {
		declareReplica(s, set)
	}
	if has(roleDrain) {
		set.String(&s.storeDir, "store.dir", "", "`directory` of the store (default: store in --data-dir)")
		set.Size(&s.segmentBytes, "store.segment", 64<<20, "size of a segment",
			config.Range(1<<20, uint64(1<<40), config.FormatSize))
		set.Duration(&s.verifyInterval, "store.verify", 24*time.Hour,
			"pause between two verifications of the whole store, as farlog verify does it; 0: none", checkVerify)
		set.String(&s.storeServe, "store.serve", "", "`address` at which a replica of another site reads the store "+
			"(farlogd replica), host:port (default: none)", emptyOrAddress)
		set.Duration(&s.mergeLate, "merge.late", 0, "also merge the store's streams into one order (farlog merge, "+
			"farlog replay --merged), waiting at most this long for a stream that has no new record; 0: do not "+
			"merge", checkMergeLate)
		set.Size(&s.batchBytes, "drain.batch", batchDefault, "bytes stored and synced at once",
			config.Range(4096, uint64(batchMost), config.FormatSize))
		set.Duration(&s.pollInterval, "drain.poll", time.Millisecond,
			"longest pause between two polls of a ring that was just written to; up to 5 ms when it stays idle",
			config.Range(50*time.Microsecond, time.Minute, time.Duration.String))
	}
	file := flags.String("config", os.Getenv("FARLOG_CONFIG"), "YAML `file` of settings (FARLOG_CONFIG)")
	return s, set, file
}

// declareTarget makes the settings of a target that is a daemon of its own. --listen, --advertise, --region and
// --attestation are short for --target-listen and so on.
func declareTarget(s *settings, set *config.Set, flags *pflag.FlagSet) {
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if slices.Contains([]string{"listen", "advertise", "region", "attestation"}, name) {
			name = roleTarget + "-" + name
		}
		return pflag.NormalizedName(name)
	})
	set.Strings(&s.targetRegions, "target.region", nil,
		"`URI` of a region that holds many rings: mem:/dev/dax0.0, mem:/path?size=BYTES, or, only for writers and "+
			"drains on this host, nvme:/dev/nvme2n1; may be repeated (also: --region) (default: a file for each "+
			"ring, in --data-dir)", eachRegion)
	set.Strings(&s.targetListen, "target.listen", nil,
		"`URI` to listen at for writers and drains on other hosts: ofi:tcp://host:port or verbs://host:port; may be "+
			"repeated (also: --listen)", eachListenURI)
	set.String(&s.targetAdvertise, "target.advertise", "",
		"`host` to which clients connect (default: that of --listen, or --host-name when --listen is at all "+
			"addresses) (also: --advertise)")
	set.String(&s.targetAttestation, "target.attestation", "",
		"YAML `file` in which this host's operator attests properties of its media that no program can find out; "+
			"docs/how-to/attest-media.md has its keys (also: --attestation)")
	set.String(&s.nvmetFile, "nvmet.file", "", "YAML `file` that declares the kernel's NVMe target on this host; the "+
		"daemon keeps it as declared; docs/reference/nvmet.md has its keys")
	set.String(&s.nvmetState, "nvmet.state", nvmet.StateFile,
		"`file` with the keys of its hosts and what was declared before")
}

// complete fills in what depends on other settings or on the host. It opens nothing, and reads no file but that of
// attestations.
func (s *settings) complete() error {
	dir, err := filepath.Abs(s.dataDir)
	if err != nil {
		return fmt.Errorf("--data-dir %q: %w", s.dataDir, err)
	}
	s.dataDir = dir
	if s.hostSocket == "" {
		s.hostSocket = hostSocketDefault
		if s.isDev {
			s.hostSocket = filepath.Join(dir, "host.sock")
		}
	}
	if s.storeDir == "" {
		s.storeDir = filepath.Join(dir, "store")
	}
	if s.storeDir, err = filepath.Abs(s.storeDir); err != nil {
		return fmt.Errorf("--store-dir %q: %w", s.storeDir, err)
	}
	if s.hostName == "" {
		if s.hostName, err = os.Hostname(); err != nil {
			return fmt.Errorf("find the name of this host: %w: give --host-name", err)
		}
	}
	if err := s.security.check(s.addresses()); err != nil {
		return err
	}
	if s.accessFile != "" && !s.has(roleControl) && s.storeServe == "" {
		return &usageError{fmt.Sprintf("--access-file %q: expected with --store-serve: nobody else asks a drain for "+
			"records", s.accessFile)}
	}
	if err := s.checkEtcd(); err != nil {
		return err
	}
	return s.readAttestations()
}

// addresses are all at which the daemon listens, or which it dials.
func (s *settings) addresses() []namedAddress {
	addresses := []namedAddress{
		{"--listen", s.listen},
		{"--control", s.control},
		{"--metrics-listen", s.metricsListen},
		{"--store-serve", s.storeServe},
	}
	for _, uri := range s.targetListen {
		_, address, _ := strings.Cut(uri, "//")
		address, _, _ = strings.Cut(address, "?")
		addresses = append(addresses, namedAddress{"--target-listen", address})
	}
	return addresses
}

// readAttestations reads the file of a target that has one. It says what rings of its regions give, on this host and to
// others: without a region of many rings it would say nothing.
func (s *settings) readAttestations() error {
	if s.targetAttestation == "" {
		return nil
	}
	var paths []string
	for _, uri := range s.targetRegions {
		paths = append(paths, config.RegionPath(uri))
	}
	var err error
	s.attestations, err = config.ReadAttestations(s.targetAttestation, paths)
	return err
}

func (s *settings) has(role string) bool { return slices.Contains(s.roles, role) }

// agentID is the same over restarts, and another one for another directory on the same host.
func (s *settings) agentID(dir string) string {
	return fmt.Sprintf("%s-%08x", s.hostName, crc32.ChecksumIEEE([]byte(dir)))
}

// eachRegion checks that a region is on this host, that the name of the ring is left to the target, and with what size
// it would be made.
func eachRegion(list []string) error {
	for _, uri := range list {
		if err := config.RegionURI(uri); err != nil {
			return err
		}
	}
	return nil
}

// eachListenURI checks scheme and address; whether the device and its library are there is found out at the start.
func eachListenURI(list []string) error {
	for _, uri := range list {
		scheme, address, ok := strings.Cut(uri, "//")
		address, _, _ = strings.Cut(address, "?")
		provider, isOFI := strings.CutPrefix(scheme, "ofi:")
		if !ok || scheme != "verbs:" && (!isOFI || len(provider) < 2) {
			return fmt.Errorf("%q: expected ofi:tcp://host:port or verbs://host:port", uri)
		}
		if err := config.Address(address); err != nil {
			return fmt.Errorf("%q: %w", uri, err)
		}
	}
	return nil
}

// eachEndpoint checks addresses of etcd; all of them speak TLS or none does.
func eachEndpoint(list []string) error {
	for _, endpoint := range list {
		address, isSecure := strings.CutPrefix(endpoint, "https://")
		if strings.Contains(address, "@") {
			return fmt.Errorf("expected no user and no password in an address: --etcd-cert says who asks")
		}
		if _, isFirstSecure := strings.CutPrefix(list[0], "https://"); isSecure != isFirstSecure {
			return fmt.Errorf("%q: expected https:// before all of them or none", endpoint)
		}
		if err := config.Address(address); err != nil {
			return fmt.Errorf("%q: %w", endpoint, err)
		}
	}
	return nil
}

// checkEtcd finds settings of TLS that would do nothing.
func (s *settings) checkEtcd() error {
	given := s.etcdAuthority + s.etcdCert + s.etcdKey
	switch {
	case (s.etcdCert == "") != (s.etcdKey == ""):
		return &usageError{fmt.Sprintf("--etcd-cert %q and --etcd-key %q: expected both or none", s.etcdCert,
			s.etcdKey)}
	case given != "" && (len(s.etcdEndpoints) == 0 || !strings.HasPrefix(s.etcdEndpoints[0], "https://")):
		return &usageError{"--etcd-ca, --etcd-cert and --etcd-key: expected with --etcd-endpoints https://host:port"}
	}
	return nil
}

// checkVerify lets a store be verified never, or not all the time.
func checkVerify(interval time.Duration) error {
	if interval == 0 {
		return nil
	}
	return config.Range(time.Second, 365*24*time.Hour, time.Duration.String)(interval)
}

// declareReplica makes the settings of a second site.
func declareReplica(s *settings, set *config.Set) {
	set.String(&s.replicaFrom, "replica.from", "", "the first store: `URL` of its drain (--store-serve), "+
		"https://host:port, or its directory where this host sees that", config.NotEmpty)
	set.Duration(&s.replicaPoll, "replica.poll", 200*time.Millisecond,
		"pause between two polls of a primary store that had nothing new",
		config.Range(time.Millisecond, time.Hour, time.Duration.String))
	set.String(&s.storeDir, "store.dir", "", "`directory` of the second store (default: store in --data-dir)")
	set.Size(&s.segmentBytes, "store.segment", 64<<20, "size of a segment",
		config.Range(1<<20, uint64(1<<40), config.FormatSize))
	set.Duration(&s.verifyInterval, "store.verify", 24*time.Hour,
		"pause between two verifications of the whole store, as farlog verify does it; 0: none", checkVerify)
}

// emptyOrAddress lets an address be left out.
func emptyOrAddress(text string) error {
	if text == "" {
		return nil
	}
	return config.Address(text)
}

// checkMergeLate: a pause of a drain or of a connection should make nothing late.
func checkMergeLate(limit time.Duration) error {
	if limit == 0 {
		return nil
	}
	return config.Range(100*time.Millisecond, 24*time.Hour, time.Duration.String)(limit)
}

// checkAuditStream keeps the audit stream among those that nobody else may make.
func checkAuditStream(name string) error {
	rest, isSystem := strings.CutPrefix(name, pattern.SystemPrefix)
	if name == auditOff || isSystem && rest != "" {
		return nil
	}
	return fmt.Errorf("expected %sNAME, such as %s, or off", pattern.SystemPrefix, auditDefault)
}

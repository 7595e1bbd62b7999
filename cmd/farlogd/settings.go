package main

import (
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/farlog/farlog/pkg/config"
	"github.com/farlog/farlog/pkg/control/pattern"
	"github.com/farlog/farlog/pkg/store"
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
	storeKeys     string

	signingCommand string
	signingPublic  string

	segmentBytes uint64
	batchBytes   uint64
	pollInterval time.Duration

	isStoreKeysGiven bool

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
	hostNVMeKeys  string
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
	if s.isStoreKeysGiven = s.storeKeys != ""; !s.isStoreKeysGiven {
		s.storeKeys = store.KeyDirBeside(s.storeDir)
	}
	if s.storeKeys, err = filepath.Abs(s.storeKeys); err != nil {
		return fmt.Errorf("--store-keys %q: %w", s.storeKeys, err)
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
		"pause between two questions to the primary store for what has changed",
		config.Range(time.Millisecond, time.Hour, time.Duration.String))
	declareStore(s, set)
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

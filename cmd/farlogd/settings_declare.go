package main

import (
	"os"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/farlog/farlog/pkg/config"
	"github.com/farlog/farlog/pkg/control/pattern"
	"github.com/farlog/farlog/pkg/control/service"
	"github.com/farlog/farlog/pkg/identity"
	"github.com/farlog/farlog/pkg/nvmet"
)

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
		declareControl(s, set)
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
		declareHost(s, set)
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
		declareDrain(s, set)
	}
	file := flags.String("config", os.Getenv("FARLOG_CONFIG"), "YAML `file` of settings (FARLOG_CONFIG)")
	return s, set, file
}

// declareControl makes the settings of a control plane.
func declareControl(s *settings, set *config.Set) {
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
	if s.isDev {
		stream = auditOff // a laptop's streams are its owner's own
	}
	set.String(&s.auditStream, "audit.stream", stream,
		"`stream` of audit events, "+pattern.SystemPrefix+"NAME; off: they are only logged", checkAuditStream)
	set.String(&s.auditLevel, "audit.level", "persistent",
		"durability `level` of audit events: visible or persistent", config.OneOf("visible", "persistent"))
}

// namespaceKeysDefault is where the keys of this host are that targets have generated.
const namespaceKeysDefault = "/etc/farlog/nvme"

// declareHost makes the settings of a host agent.
func declareHost(s *settings, set *config.Set) {
	set.String(&s.hostSocket, "host.socket", "", "`path` of the Unix socket at which programs of this host ask "+
		"for grants (default: "+hostSocketDefault+"; of dev: host.sock in --data-dir)")
	set.Strings(&s.hostAllow, "host.allow", nil, "who may write what: `USER=STREAMS` or @GROUP=STREAMS, such as "+
		"trading=desk7/*; may be repeated (default: root and the agent's own user)")
	set.Strings(&s.hostRead, "host.read", nil, "who may read what: `USER=STREAMS` or @GROUP=STREAMS, such as "+
		"risk=desk7/*; may be repeated (default: root and the agent's own user)")
	set.Strings(&s.hostDevices, "host.device", nil, "which users may have a block device opened for them: "+
		"`DEVICE=USER` or DEVICE=@GROUP, such as /dev/nvme1n1=trading or NQN/1=@desk7; may be repeated")
	set.String(&s.hostNVMeKeys, "host.nvme-keys", "", "`directory` with TARGET-HOST.key for each target whose "+
		"namespaces the fabric declares for this host, as farlog target nvmet key writes it there (default: "+
		namespaceKeysDefault+")")
}

// declareKeys makes the settings of the key that signs for a store.
func declareKeys(s *settings, set *config.Set) {
	set.String(&s.storeKeys, "store.keys", "", "`directory`, outside of the store, of its signing key; a key that is "+
		"in the store is moved there (default: keys, beside the store)")
	set.String(&s.signingCommand, "signing.command", "", "`command` that signs in place of a key in --store-keys: a "+
		"line for /bin/sh, which gets the bytes to sign on standard input and answers the 64 bytes of an Ed25519 "+
		"signature on standard output within 5 s")
	set.String(&s.signingPublic, "signing.public", "", "PEM `file` with the public key of --signing-command: a new "+
		"store needs it")
}

// declareStore makes the settings of a store that the daemon writes.
func declareStore(s *settings, set *config.Set) {
	set.String(&s.storeDir, "store.dir", "", "`directory` of the store (default: store in --data-dir)")
	declareKeys(s, set)
	set.Size(&s.segmentBytes, "store.segment", 64<<20, "size of a segment",
		config.Range(1<<20, uint64(1<<40), config.FormatSize))
	set.Duration(&s.verifyInterval, "store.verify", 24*time.Hour,
		"pause between two verifications of the whole store, as farlog verify does it; 0: none", checkVerify)
}

// declareDrain makes the settings of a drain and its store.
func declareDrain(s *settings, set *config.Set) {
	declareStore(s, set)
	set.String(&s.storeServe, "store.serve", "", "`address` at which a replica of another site reads the store "+
		"(farlogd replica), host:port (default: none)", emptyOrAddress)
	set.Duration(&s.mergeLate, "merge.late", 0, "also merge the store's streams into one order (farlog merge, "+
		"farlog replay --merged), waiting at most this long for a stream that has no new record; 0: do not "+
		"merge", checkMergeLate)
	set.Size(&s.batchBytes, "drain.batch", batchDefault, "bytes stored and synced at once",
		config.Range(4096, uint64(batchMost), config.FormatSize))
	set.Duration(
		&s.pollInterval,
		"drain.poll",
		time.Millisecond,
		"longest pause between two polls of a ring that was just written to; up to 5 ms when it stays idle; with more "+
			"than 100 streams at least 10 us for each of them",
		config.Range(50*time.Microsecond, time.Minute, time.Duration.String),
	)
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
	set.String(&s.nvmetFile, "nvmet.file", "", "YAML `file` that declares the kernel's NVMe target on this host, in "+
		"place of the fabric; the daemon keeps it as declared; docs/reference/nvmet.md has its keys")
	set.String(&s.nvmetState, "nvmet.state", nvmet.StateFile,
		"`file` with the keys of its hosts and what was declared before")
}

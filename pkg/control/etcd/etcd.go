// Package etcd is where the control plane keeps its state: an embedded server or the client of a cluster, the keys, and
// how values are encoded.
package etcd

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	v3client "go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/farlog/farlog/pkg/safefile"
)

const (
	startTimeout  = 30 * time.Second
	stopTimeout   = 10 * time.Second
	dialTimeout   = 5 * time.Second
	logName       = "etcd.log"
	memberName    = "farlog"
	compactPeriod = "2m" // history older than this is dropped; nobody here reads it, but for a backup at one revision

	// The log of the one member is in memory up to its snapshot, and a report of a large target is 100 kB. There is no
	// follower that would need more of it.
	snapshotCount  = 1000
	catchUpEntries = 100
)

// Options says where the control plane's state is.
type Options struct {
	Dir       string       // of the embedded server; ignored when Endpoints are given
	Endpoints []string     // of an external cluster; https://host:port speaks TLS
	Authority string       // file with the certificates that sign the cluster's; "" = the system's
	Cert, Key string       // files with the client's own; "" = it has none
	Logger    *slog.Logger // of the embedded server's start; nil = slog.Default()

	defragmentMin int64 // bytes; 0 = defragmentMin
}

// Cluster is the one place where the control plane keeps state: an embedded server with its client in the same process
// (no port is opened), or the client of an external cluster.
type Cluster struct {
	client *clientv3.Client
	server *embed.Etcd
	lock   *os.File     // closed, it is given back
	fatal  chan error   // one error: the embedded server gave up by itself
	close  func() error // once
}

// Open starts or connects. It returns within half a minute, and at once when another process holds Dir: the error
// then names the holder. It blocks for the recovery of the embedded server, and longer until its files are checked and
// one that is mostly free pages is rewritten; the log says how far the check is. Errors: a *DamagedError, or others
// that may pass.
func Open(ctx context.Context, options Options) (*Cluster, error) {
	if len(options.Endpoints) > 0 {
		return dial(ctx, options)
	}
	if err := os.MkdirAll(options.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create etcd directory %q: %w", options.Dir, errors.Unwrap(err))
	}
	lock, err := lockDir(options.Dir)
	if err != nil {
		return nil, err
	}
	fatal := make(chan error, 1)
	server, err := startChecked(ctx, options.Dir, cmp.Or(options.Logger, slog.Default()), fatal)
	if err != nil {
		_ = lock.Close()
		return nil, err
	}
	etcd := &Cluster{client: v3client.New(server.Server), server: server, lock: lock, fatal: fatal}
	etcd.close = sync.OnceValue(etcd.closeOnce)
	if err := etcd.tryDefragment(ctx, options.Dir, cmp.Or(options.defragmentMin, defragmentMin)); err != nil {
		return nil, errors.Join(fmt.Errorf("defragment etcd in %q: %w (details in %s)", options.Dir, err,
			filepath.Join(options.Dir, logName)), etcd.Close())
	}
	return etcd, nil
}

// Client is valid until Close.
func (e *Cluster) Client() *clientv3.Client { return e.client }

// Failed delivers an error when the embedded server gives up by itself, on a full disk for one. Never for an external
// cluster.
func (e *Cluster) Failed() <-chan error { return e.fatal }

// Close stops the embedded server, or leaves the cluster alone. It may be called again and gives the same answer.
func (e *Cluster) Close() error { return e.close() }

func (e *Cluster) closeOnce() error {
	err := e.client.Close()
	if e.server != nil {
		stopWithin(e.server.Close, stopTimeout)
		_ = e.lock.Close()
	}
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func dial(ctx context.Context, options Options) (*Cluster, error) {
	endpoints := options.Endpoints
	secure, err := options.tls()
	if err != nil {
		return nil, err
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   endpoints,
		TLS:         secure,
		DialTimeout: dialTimeout,
		Logger:      zap.NewNop(),
	})
	if err != nil {
		return nil, fmt.Errorf("connect to etcd at %s: %w", strings.Join(endpoints, ","), err)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if _, err := client.Get(ctx, KeyRoot, clientv3.WithCountOnly()); err != nil {
		return nil, errors.Join(fmt.Errorf("reach etcd at %s: %w", strings.Join(endpoints, ","),
			whyUnreached(endpoints, secure, err)), client.Close())
	}
	return &Cluster{client: client, close: sync.OnceValue(client.Close)}, nil
}

// tls is nil for a cluster that speaks none. The client's pair is read at each connection, so that a new one needs no
// restart.
func (o Options) tls() (*tls.Config, error) {
	isSecure := func(endpoint string) bool { return strings.HasPrefix(endpoint, "https://") }
	if !slices.ContainsFunc(o.Endpoints, isSecure) {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.Authority != "" {
		raw, _, err := safefile.Read(o.Authority)
		if err != nil {
			return nil, fmt.Errorf("etcd.ca %q: %w", o.Authority, errors.Unwrap(err))
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(raw) {
			return nil, fmt.Errorf("etcd.ca %q: expected PEM with a CERTIFICATE", o.Authority)
		}
	}
	if o.Cert == "" {
		return config, nil
	}
	read := func() (*tls.Certificate, error) {
		pair, err := readPair(o.Cert, o.Key)
		if err != nil {
			return nil, fmt.Errorf("etcd.cert %q and etcd.key %q: %w", o.Cert, o.Key, err)
		}
		return &pair, nil
	}
	if _, err := read(); err != nil {
		return nil, err
	}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return read() }
	return config, nil
}

func readPair(certFile, keyFile string) (tls.Certificate, error) {
	cert, _, err := safefile.Read(certFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, _, err := safefile.Read(keyFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key)
}

// startChecked starts a server on files that it survives. Errors: a *DamagedError, or one that may pass.
func startChecked(ctx context.Context, dir string, logger *slog.Logger, fatal chan error) (*embed.Etcd, error) {
	check := func(progress *checkProgress) error { return checkFiles(dir, progress) }
	if err := watchCheck(ctx, dir, checkPaceDefault, logger, check); err != nil {
		return nil, err
	}
	server, err := startEmbedded(ctx, dir, fatal)
	if err == nil {
		return server, nil
	}
	details := filepath.Join(dir, logName)
	if strings.Contains(err.Error(), "invalid downgrade") {
		return nil, fmt.Errorf(
			"start etcd in %q: a newer farlog wrote what is there, and it is whole: start that version "+
				"again, or restore a backup of before into another directory: %w (details in %s)",
			dir,
			err,
			details,
		)
	}
	return nil, asDamage(dir, fmt.Errorf("start etcd in %q: %w (details in %s)", dir, err, details))
}

// startEmbedded folds the ways in which an etcd server says no into an error: it returns one, it panics, it ends the
// goroutine through its logger, or it never gets ready.
func startEmbedded(ctx context.Context, dir string, fatal chan error) (*embed.Etcd, error) {
	logger, err := newLogger(filepath.Join(dir, logName), fatal)
	if err != nil {
		return nil, err
	}
	config, err := embeddedConfig(dir, logger)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	started := make(chan *embed.Etcd, 1)
	go func() {
		defer recoverInto(fatal)
		server, err := embed.StartEtcd(config)
		if err != nil {
			offer(fatal, err)
			return
		}
		<-server.Server.ReadyNotify()
		started <- server
	}()
	select {
	case server := <-started:
		go forward(server, fatal)
		return server, nil
	case err := <-fatal:
		return nil, err
	case <-ctx.Done():
		return nil, fmt.Errorf("not ready: %w", ctx.Err())
	}
}

// forward passes on the error with which a server stops serving.
func forward(server *embed.Etcd, fatal chan error) {
	select {
	case err, ok := <-server.Err():
		if ok && err != nil {
			offer(fatal, err)
		}
	case <-server.Server.StopNotify():
	}
}

func recoverInto(fatal chan error) {
	if cause := recover(); cause != nil {
		if err, ok := cause.(error); ok {
			offer(fatal, err)
			return
		}
		offer(fatal, fmt.Errorf("%v", cause))
	}
}

// offer keeps the first error; those that follow from it are of no use.
func offer(fatal chan error, err error) {
	select {
	case fatal <- err:
	default:
	}
}

// stopWithin does not wait for a server whose goroutines are gone.
func stopWithin(stop func(), timeout time.Duration) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		stop()
	}()
	select {
	case <-done:
	case <-time.After(timeout):
	}
}

func embeddedConfig(dir string, logger *zap.Logger) (*embed.Config, error) {
	config := embed.NewConfig()
	config.Name = memberName
	config.Dir = dir
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(logger)
	config.EnableGRPCGateway = false
	config.AutoCompactionMode = embed.CompactorModePeriodic
	config.AutoCompactionRetention = compactPeriod
	config.SnapshotCount, config.SnapshotCatchUpEntries = snapshotCount, catchUpEntries
	// The one member talks to nobody: the client is in this process, so that there is no port to be in use, to guard or
	// to find. The peer address is only the member's name in its own configuration.
	peer, err := url.Parse("http://127.0.0.1:2380")
	if err != nil {
		return nil, err
	}
	config.ListenPeerUrls, config.ListenClientUrls = nil, nil
	config.AdvertisePeerUrls, config.AdvertiseClientUrls = []url.URL{*peer}, []url.URL{*peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	return config, nil
}

// newLogger writes warnings to a file of their own. Where etcd would end the process without a word (its fatal and
// panic entries), only the goroutine ends, and the reason goes to fatal.
func newLogger(path string, fatal chan error) (*zap.Logger, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	encoder := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
	core := zapcore.NewCore(encoder, zapcore.Lock(file), zap.WarnLevel)
	hook := giveUp{fatal}
	return zap.New(core, zap.WithFatalHook(hook), zap.WithPanicHook(hook)), nil
}

type giveUp struct{ fatal chan error }

// OnWrite implements zapcore.CheckWriteHook.
func (g giveUp) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	err := errors.New(entry.Message)
	for _, field := range fields {
		if cause, ok := field.Interface.(error); ok {
			err = fmt.Errorf("%w: %w", err, cause)
		}
	}
	offer(g.fatal, err)
	runtime.Goexit()
}

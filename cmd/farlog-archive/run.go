package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"github.com/farlog/farlog/cmd/internal/version"
	"github.com/farlog/farlog/pkg/archive"
	"github.com/farlog/farlog/pkg/config"
	"github.com/farlog/farlog/pkg/metrics"
	"github.com/farlog/farlog/pkg/store"
)

const runText = `Archives what is sealed in the store, and goes on as more is sealed. Each object is locked in
COMPLIANCE mode for --retain from when it is put, and read back: size, lock and every byte. What a killed process or a
lost answer left is taken when it has the same bytes. The first time it proves that the bucket keeps what is locked, as
farlog-archive probe does, and refuses one that does not.

It writes into the store how far each stream is archived (streams/NAME/archived.json): a rule of farlog store retention
without --without-archive removes no more than that. One process a store.`

// runOptions are the settings of run.
type runOptions struct {
	storeDir      string
	keep          archive.Period
	isOnce        bool
	isCheck       bool
	interval      time.Duration
	metricsListen string
}

func newRunCommand(env *environment) *cobra.Command {
	var options runOptions
	command := &cobra.Command{
		Use: "run [STORE]", Short: "Archive the sealed segments of a store", Long: runText,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return cmd.Flags().Set("store-dir", args[0]) // it wins over the environment and the file
			}
			return exactArgs(0)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := options.complete(env); err != nil {
				return err
			}
			if options.isCheck {
				fmt.Fprintln(env.stderr, "farlog-archive: settings of run are valid")
				return nil
			}
			return run1(cmd.Context(), env, options)
		},
	}
	flags := command.Flags()
	set := env.settings.With(flags)
	set.String(&options.storeDir, "store.dir", "", "`directory` of the store, in place of STORE")
	set.Var(&options.keep, "retain", "lock each object so long: `period` in years, days or a duration, such as "+
		"6y, 90d, 36h")
	set.Duration(&options.interval, "poll", archive.PollIntervalDefault, "pause between two looks at the store",
		aboveZero)
	set.String(&options.metricsListen, "metrics.listen", "off", "`address` of /metrics and /healthz, of this host's "+
		"loopback, host:port; off", config.LoopbackOrOff)
	flags.BoolVar(&options.isOnce, "once", false, "archive what is sealed now, and end")
	flags.BoolVar(&options.isCheck, "check", false, "only check the settings, open nothing")
	return command
}

// complete finds what no setting says.
func (o *runOptions) complete(env *environment) error {
	if o.storeDir == "" {
		return &usageError{"run: no store was given: expected STORE, the directory of one"}
	}
	if o.keep == (archive.Period{}) {
		return &usageError{"run: expected --retain, how long each object is locked, such as 6y"}
	}
	_, err := env.location()
	return err
}

func run1(ctx context.Context, env *environment, options runOptions) error {
	opened, err := store.Open(options.storeDir, store.Options{})
	if err != nil {
		return err
	}
	bucket, err := env.open()
	if err != nil {
		return err
	}
	uploader := archive.NewUploader(archive.Config{
		Store: opened, Bucket: bucket, Keep: options.keep, PollInterval: options.interval,
		Logger:  slog.New(slog.NewTextHandler(env.stderr, nil)),
		Started: func() error { return notifyStarted(options.storeDir, bucket) },
	})
	if options.isOnce {
		err := uploader.Once(ctx)
		return errors.Join(err, printProgress(env, uploader))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served, err := serveMetrics(ctx, options.metricsListen, uploader)
	if err != nil {
		return err
	}
	err = uploader.Run(ctx)
	cancel()
	return errors.Join(err, <-served)
}

// notifyStarted says to systemd that the unit is active (Type=notify), also while the storage does not answer. An error
// ends the program, because systemd would wait for ever.
func notifyStarted(storeDir string, bucket *archive.Bucket) error {
	state := fmt.Sprintf("%s\nSTATUS=archives %s in %s", systemd.SdNotifyReady, storeDir, bucket)
	if _, err := systemd.SdNotify(false, state); err != nil {
		return fmt.Errorf("NOTIFY_SOCKET %q: readiness could not be sent: %w", os.Getenv("NOTIFY_SOCKET"), err)
	}
	return nil
}

// serveMetrics serves until ctx is done; the channel then has what went wrong.
func serveMetrics(ctx context.Context, address string, uploader *archive.Uploader) (<-chan error, error) {
	served := make(chan error, 1)
	if address == "off" {
		served <- nil
		return served, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--metrics-listen %q: cannot listen: %w", address, err)
	}
	registry := metrics.NewRegistry(version.Of())
	metrics.NewArchive(registry, func() ([]metrics.ArchiveSample, bool) { return samples(uploader) })
	server := metrics.NewServer(listener, registry, func() error { return health(uploader) })
	go func() { served <- server.Run(ctx) }()
	return served, nil
}

func samples(uploader *archive.Uploader) ([]metrics.ArchiveSample, bool) {
	list, failure := uploader.Progress()
	samples := make([]metrics.ArchiveSample, len(list))
	for i, p := range list {
		samples[i] = metrics.ArchiveSample{
			Stream: p.Stream, Segments: p.Segments, Objects: p.Objects, Bytes: p.Bytes, Archived: p.Archived,
			Oldest: p.Oldest, LagBytes: uint64(max(0, p.LagBytes)), Lag: p.Lag(time.Now()), IsLagKnown: p.IsKnown,
			IsFailing: p.Error != "",
		}
	}
	return samples, failure == ""
}

func health(uploader *archive.Uploader) error {
	list, failure := uploader.Progress()
	var errs []error
	if failure != "" {
		errs = append(errs, errors.New(failure))
	}
	for _, p := range list {
		if p.Error != "" {
			errs = append(errs, errors.New(p.Error))
		}
	}
	return errors.Join(errs...)
}

func printProgress(env *environment, uploader *archive.Uploader) error {
	list, failure := uploader.Progress()
	if env.isJSON() {
		return env.writeJSON(struct {
			Streams []archive.Progress `json:"streams"`
			Failure string             `json:"failure,omitempty"`
		}{list, failure})
	}
	for _, p := range list {
		text := ""
		if p.Error != "" {
			text = ": " + p.Error
		}
		fmt.Fprintf(env.stdout, "stream %s: archived up to segment %d of %d, %d segments and %d bytes now, %d bytes "+
			"wait%s\n", p.Stream, p.Archived, p.Sealed, p.Segments, p.Bytes, p.LagBytes, text)
	}
	return nil
}

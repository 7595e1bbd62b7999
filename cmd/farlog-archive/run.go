package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

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

// runOptions are the flags of run.
type runOptions struct {
	keep          archive.Period
	isOnce        bool
	interval      time.Duration
	metricsListen string
}

func newRunCommand(env *environment) *cobra.Command {
	var options runOptions
	command := &cobra.Command{
		Use: "run STORE --retain PERIOD", Short: "Archive the sealed segments of a store", Long: runText,
		Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if options.keep == (archive.Period{}) {
				return &usageError{"run: expected --retain, how long each object is locked, such as 6y"}
			}
			return run1(cmd.Context(), env, args[0], options)
		},
	}
	flags := command.Flags()
	flags.Var(&options.keep, "retain", "lock each object so long: years, days or a duration, such as 6y, 90d, 36h")
	flags.BoolVar(&options.isOnce, "once", false, "archive what is sealed now, and end")
	options.interval = archive.PollIntervalDefault
	flags.Var((*config.DurationValue)(&options.interval), "poll", "pause between two looks at the store")
	flags.StringVar(
		&options.metricsListen,
		"metrics-listen",
		"off",
		"`address` of /metrics and /healthz, host:port; off",
	)
	return command
}

func run1(ctx context.Context, env *environment, dir string, options runOptions) error {
	if err := config.AddressOrOff(options.metricsListen); err != nil {
		return &usageError{fmt.Sprintf("--metrics-listen %q: %s", options.metricsListen, err)}
	}
	opened, err := store.Open(dir, store.Options{})
	if err != nil {
		return err
	}
	bucket, err := env.open()
	if err != nil {
		return err
	}
	uploader := archive.NewUploader(archive.Config{
		Store: opened, Bucket: bucket, Keep: options.keep, PollInterval: options.interval,
		Logger: slog.New(slog.NewTextHandler(env.stderr, nil)),
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

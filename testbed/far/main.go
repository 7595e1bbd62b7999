//go:build cgo

// Command far is the testbed's hand on far rings: a target that does what it is told line by line, a writer that tells the outcome of
// every append, and a drain. It stands on the public surface alone; what farlogd and farlog do with it over the control plane is not
// asked for here, so that a scenario can do what a control plane never would.
//
//	far target URI                                 commands on standard input, see target.go
//	far write -token HEX -epoch N URI              length-prefixed records on standard input, see write.go
//	far drain [-token HEX] -store DIR URI          until SIGTERM
package main

import (
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/farlog/farlog/pkg/drain"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/store"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "far: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("expected target, write or drain")
	}
	flags := flag.NewFlagSet(args[0], flag.ExitOnError)
	token := flags.String("token", "", "`hex` of the grant's token")
	epoch := flags.Uint("epoch", 0, "epoch of the grant")
	deadline := flags.Duration("deadline", 0, "of each append (0: the contract's)")
	storeDir := flags.String("store", "", "folder of the store")
	batch := flags.Int("batch", 1, "records of one flush")
	_ = flags.Parse(args[1:])
	if flags.NArg() != 1 {
		return fmt.Errorf("%s: expected one URI", args[0])
	}
	uri := flags.Arg(0)
	switch args[0] {
	case "target":
		return runTarget(uri, os.Stdin, os.Stdout)
	case "write":
		parsed, err := parseToken(*token)
		if err != nil {
			return err
		}
		return runWriter(uri, farlog.WriterOptions{Epoch: uint32(*epoch), Deadline: *deadline, Token: parsed, Name: "far write"}, *batch)
	case "drain":
		return runDrain(ctx, uri, *token, *storeDir)
	}
	return fmt.Errorf("%s: expected target, write or drain", args[0])
}

// parseToken gives nil for "".
func parseToken(text string) (*[farlog.TokenLen]byte, error) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != 0 && len(raw) != farlog.TokenLen {
		return nil, fmt.Errorf("token %q: expected %d hexadecimal digits", text, 2*farlog.TokenLen)
	}
	if len(raw) == 0 {
		return nil, nil
	}
	return (*[farlog.TokenLen]byte)(raw), nil
}

// runDrain prints how far it is whenever that changes: head LSN, appended LSN, duplicates.
func runDrain(ctx context.Context, uri, token, dir string) error {
	opened, err := store.Open(dir, store.Options{Create: true})
	if err != nil {
		return err
	}
	var last drain.Progress
	lastAt := time.Time{}
	config := drain.Config{RingURI: uri, Store: opened, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)), OnProgress: func(p drain.Progress) {
		isMoved := p.StoredLSN != last.StoredLSN || p.LagBytes != last.LagBytes
		if !isMoved || time.Since(lastAt) < 100*time.Millisecond && p.LagBytes != 0 {
			return
		}
		last, lastAt = p, time.Now()
		fmt.Printf("%d %d %d\n", p.HeadLSN, p.AppendedLSN, p.Duplicates)
	}}
	if config.Token, err = parseToken(token); err != nil {
		return err
	}
	return drain.Run(ctx, config)
}

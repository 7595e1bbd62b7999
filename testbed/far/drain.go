//go:build cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/farlog/farlog/pkg/drain"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/store"
)

// runDrain moves a ring's records into a store until it is asked to stop, without a control plane. It prints "drained
// LSN" whenever the head has moved. A ring that could not be reached for long it opens again, as a daemon does.
func runDrain(uri string, own held, dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	opened, err := store.Open(dir, store.Options{Create: true})
	if err != nil {
		return err
	}
	var once sync.Once
	head := uint64(0)
	config := drain.Config{
		RingURI: uri, Token: own.token, Members: own.members, Store: opened,
		OnProgress: func(p drain.Progress) {
			once.Do(func() { fmt.Println("draining") })
			if p.HeadLSN > head {
				head = p.HeadLSN
				fmt.Printf("drained %d\n", head)
			}
		},
	}
	for {
		err := drain.Run(ctx, config)
		if ctx.Err() != nil || !errors.Is(err, farlog.ErrIO) {
			return err
		}
		fmt.Fprintf(os.Stderr, "opens the ring again: %v\n", err)
	}
}

// Command slog logs with log/slog into a ring, where each event is when the call returns. Usage: slog mem:/path/to/ring
package main

import (
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/farlog/slogfarlog"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: slog URI, such as mem:/path/to/ring")
		os.Exit(2)
	}
	uri := os.Args[1]
	err := farlog.Format(uri, farlog.FormatOptions{SizeBytes: 16 << 20, StreamName: "desk7/events"})
	if err != nil && !errors.Is(err, farlog.ErrExists) {
		log.Fatal(err)
	}
	writer, err := farlog.OpenShared(uri, farlog.WriterOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer writer.Close()
	handler, err := slogfarlog.New(writer, slogfarlog.Options{
		KeyAttr:  "ClOrdID",
		Policy:   slogfarlog.PolicyBlock,
		Patience: time.Second,
		OnError:  slogfarlog.FailStop, // slog.Logger would throw the error away
	})
	if err != nil {
		log.Fatal(err)
	}
	logger := slog.New(handler).With("desk", 7)
	logger.Info("new order", "ClOrdID", "ord-1", "quantity", 100, "price", 17.25)
	logger.Warn("rejected", "ClOrdID", "ord-2", "reason", "no such instrument")
	fmt.Printf("logged 2 events in a region of level=%s\n", writer.Contract().Level)
}

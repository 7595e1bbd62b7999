//go:build cgo && farlog_fault

package main

import (
	"time"

	"github.com/farlog/farlog/pkg/farlog"
)

func pauseRevocations(pause time.Duration) error {
	farlog.FaultPauseRevocations(pause)
	return nil
}

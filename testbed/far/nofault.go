//go:build cgo && !farlog_fault

package main

import (
	"errors"
	"time"
)

func pauseRevocations(time.Duration) error {
	return errors.New("this program cannot pause revocations; expected far-fault")
}

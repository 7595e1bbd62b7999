package nvmehost

import (
	"context"
	"errors"
	"time"

	"github.com/farlog/farlog/pkg/retry"
)

const (
	keepInterval = time.Second
	keepRetryMax = 30 * time.Second
)

// Event is what a kept connection has come to: connected, lost, or still refused for another reason than before.
type Event struct {
	Device Device // with Err nil
	IsLost bool
	Err    error
}

// Keep connects a subsystem, again whenever its device has gone, until ctx is done: by the first of several specs of it
// that succeeds. Each connection is a new device: who had the one before open opens this one. What it says comes from
// its own goroutine, and only when something has changed. A refusal is tried again ever more rarely, up to every half
// minute.
func (k Kernel) Keep(ctx context.Context, specs []Spec, namespace uint32, tell func(Event)) {
	present, refusal := "", ""
	delays := retry.New(2*keepInterval, keepRetryMax)
	for {
		device, err := k.connectFirst(ctx, specs, namespace)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && (device.IsNew || device.Path != present): // a new one may have the name of the one before
			tell(Event{Device: device})
		case err != nil && present != "":
			tell(Event{IsLost: true, Err: err})
		case err != nil && err.Error() != refusal:
			tell(Event{Err: err})
		}
		pause := keepInterval
		if present, refusal = device.Path, ""; err != nil {
			present, refusal, pause = "", err.Error(), delays.NextBackOff()
		} else {
			delays.Reset()
		}
		if retry.Sleep(ctx, pause) != nil {
			return
		}
	}
}

// connectFirst connects by the first spec that succeeds; else the error has the refusal of each.
func (k Kernel) connectFirst(ctx context.Context, specs []Spec, namespace uint32) (Device, error) {
	var errs []error
	for _, s := range specs {
		device, err := k.Connect(ctx, s, namespace)
		if err == nil || ctx.Err() != nil {
			return device, err
		}
		errs = append(errs, err)
	}
	return Device{}, errors.Join(errs...)
}

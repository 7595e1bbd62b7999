package main

import (
	"context"

	"github.com/farlog/farlog/pkg/metrics"
	"github.com/farlog/farlog/pkg/nvmet"
)

// readNVMeT reads what the kernel's NVMe target is to be; mistakes in the file end the start before it has done
// anything.
func (d *daemon) readNVMeT() (err error) {
	if d.settings.nvmetFile == "" || !d.settings.has(roleTarget) {
		return nil
	}
	d.nvmet, err = nvmet.NewKeeper(d.settings.nvmetFile, d.settings.nvmetState, nvmet.Root,
		d.logger.With("role", roleTarget))
	if err != nil {
		return &usageError{oneLine(err)}
	}
	return nil
}

// openNVMeT keeps it so. What goes wrong there is told and tried again, and keeps nothing else of the target from its
// work.
func (d *daemon) openNVMeT(context.Context) error {
	if d.nvmet == nil {
		return nil
	}
	metrics.NewNVMeT(d.registry, func() metrics.NVMeTSample {
		sample := d.nvmet.Sample()
		return metrics.NVMeTSample{IsAsDeclared: sample.IsAsDeclared, Steps: sample.Steps, Failures: sample.Failures}
	})
	d.parts = append(d.parts, part{run: d.nvmet.Run, healthy: func() error { return nil }})
	return nil
}

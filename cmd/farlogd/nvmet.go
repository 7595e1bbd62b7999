package main

import (
	"context"

	"github.com/farlog/farlog/pkg/metrics"
	"github.com/farlog/farlog/pkg/nvmet"
)

// openNVMeT keeps the kernel's NVMe target as a file declares it. What goes wrong there is told and tried again, and keeps nothing else of the target from its work; mistakes
// in the file end the start.
func (d *daemon) openNVMeT(context.Context) error {
	if d.settings.nvmetFile == "" {
		return nil
	}
	keeper, err := nvmet.NewKeeper(d.settings.nvmetFile, d.settings.nvmetState, nvmet.Root, d.logger.With("role", roleTarget))
	if err != nil {
		return &usageError{oneLine(err)}
	}
	metrics.NewNVMeT(d.registry, func() metrics.NVMeTSample {
		sample := keeper.Sample()
		return metrics.NVMeTSample{IsAsDeclared: sample.IsAsDeclared, Steps: sample.Steps, Failures: sample.Failures}
	})
	d.parts = append(d.parts, part{run: keeper.Run, healthy: func() error { return nil }})
	return nil
}

package main

import (
	"context"

	"github.com/farlog/farlog/pkg/metrics"
	"github.com/farlog/farlog/pkg/nvmet"
)

// readNVMeT reads what a file declares of the kernel's NVMe target; mistakes in it end the start before it has done
// anything. Without a file it is what the fabric declares.
func (d *daemon) readNVMeT() (err error) {
	if !d.settings.has(roleTarget) {
		return nil
	}
	logger := d.logger.With("role", roleTarget)
	if d.settings.nvmetFile == "" {
		d.nvmet = d.newFabricKeeper(logger)
		return nil
	}
	d.nvmet, err = nvmet.NewKeeper(d.settings.nvmetFile, d.settings.nvmetState, nvmet.Root, logger)
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
		seen := d.nvmet.Sample()
		sample := metrics.NVMeTSample{
			IsDeclared: seen.IsDeclared, IsAsDeclared: seen.IsAsDeclared, Steps: seen.Steps, Failures: seen.Failures,
		}
		for _, one := range d.nvmet.Namespaces() {
			sample.Namespaces = append(sample.Namespaces, metrics.NamespaceSample{
				Name: one.Name, Subsystem: one.NQN, IsExported: one.IsExported,
			})
		}
		return sample
	})
	d.parts = append(d.parts, part{run: d.nvmet.Run, healthy: func() error { return nil }})
	return nil
}

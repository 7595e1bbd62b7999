//go:build cgo

package main

import (
	"github.com/farlog/farlog/pkg/doctor"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/target"
)

func deviceHealth(device string) (doctor.Health, error) {
	page, err := farlog.DeviceHealth(device)
	if err != nil {
		return doctor.Health{}, err
	}
	said, err := target.ParseHealth(page)
	if err != nil {
		return doctor.Health{}, err
	}
	return doctor.Health{
		UsedRatio: said.UsedRatio, SpareRatio: said.SpareRatio,
		ThresholdRatio: said.SpareThresholdRatio, CriticalWarning: said.CriticalWarning,
	}, nil
}

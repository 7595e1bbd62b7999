//go:build !cgo

package main

import "github.com/farlog/farlog/pkg/doctor"

func deviceHealth(string) (doctor.Health, error) { return doctor.Health{}, errCoreMissing }

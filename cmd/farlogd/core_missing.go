//go:build !cgo

package main

import (
	"context"
	"errors"
)

var errCoreMissing = errors.New("this farlogd was built without the C core: build it with CGO_ENABLED=1 and a C compiler to run target or drain; control needs neither")

func (d *daemon) openTarget(context.Context) error { return errCoreMissing }
func (d *daemon) openDrain(context.Context) error  { return errCoreMissing }

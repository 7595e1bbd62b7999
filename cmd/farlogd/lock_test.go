//go:build cgo

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A second drain, or replica, on one data directory is refused before it makes anything there, with who holds it.
// Another role is not, nor one that comes when the first has gone.
func TestDaemon_SecondOfARoleIsRefused(t *testing.T) {
	for role, open := range map[string]func(*daemon) error{
		roleDrain:   func(d *daemon) error { return d.openDrain(t.Context()) },
		roleReplica: func(d *daemon) error { return d.openReplica(t.Context()) },
	} {
		dir := t.TempDir()
		here := func() *daemon {
			return newDaemon(&settings{
				dataDir: dir, storeDir: filepath.Join(dir, "store"), hostName: "t1",
				readyFile: filepath.Join(dir, "ready"),
			}, io.Discard, io.Discard)
		}
		first, second := here(), here()
		if err := first.lockRole(role); err != nil {
			t.Fatal(err)
		}
		if _, err := first.announce(); err != nil {
			t.Fatal(err)
		}
		err := open(second)
		if want := fmt.Sprintf("held by another %s (pid=%d host=t1)", role, os.Getpid()); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected %q", err, want)
		}
		if _, err := os.Stat(filepath.Join(dir, "store")); err == nil {
			t.Errorf("the second %s made a store", role)
		}
		if err := second.lockRole("other"); err != nil {
			t.Error(err)
		}
		if err := second.close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "ready")); err != nil {
			t.Errorf("the ready file of the %s that runs: %v", role, err)
		}
		if err := first.close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "ready")); !os.IsNotExist(err) {
			t.Errorf("the ready file of a %s that has gone: %v", role, err)
		}
		third := here()
		if err := third.lockRole(role); err != nil {
			t.Errorf("the first one has gone: %v", err)
		}
		if err := third.close(); err != nil {
			t.Fatal(err)
		}
	}
}

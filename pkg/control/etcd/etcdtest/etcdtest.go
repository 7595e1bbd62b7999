// Package etcdtest opens an etcd for a test.
package etcdtest

import (
	"testing"

	"github.com/farlog/farlog/pkg/control/etcd"
)

// Open opens the embedded etcd of a directory until the test ends.
func Open(t *testing.T, dir string) *etcd.Cluster {
	t.Helper()
	cluster, err := etcd.Open(t.Context(), etcd.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cluster.Close() })
	return cluster
}

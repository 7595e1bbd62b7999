package etcd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.uber.org/zap"
)

// defragmentMin is the size of a database file from which it is looked at. etcd's file never shrinks by itself, and all
// of it is resident from the start, free pages too: it is mapped with MAP_POPULATE. What 10,000 streams
// need is a small part of what was written while they came.
const defragmentMin = 64 << 20

const (
	keyDefragmented   = "/farlog/defragmented" // beside KeyRoot: nobody has to follow it
	defragmentCommits = 5
)

// tryDefragment goes on with the file as it is when it cannot be defragmented, for want of space for instance. An
// error: the server gave up.
func (e *Cluster) tryDefragment(ctx context.Context, dir string, sizeMin int64) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { // which etcd's logger may end
		defer recoverInto(e.fatal)
		done <- e.defragment(ctx, dir, sizeMin)
	}()
	select {
	case err := <-e.fatal:
		return err
	case err := <-done:
		if err != nil {
			e.server.GetLogger().Warn("database is not defragmented", zap.Error(err))
		}
		return nil
	}
}

// defragment writes the embedded server's file again when less than half of it is needed. It blocks for about a second
// for each 100 MiB that are. Killed at any moment it leaves the one file or the other, which hold the same.
func (e *Cluster) defragment(ctx context.Context, dir string, sizeMin int64) error {
	snap := filepath.Join(dir, "member", "snap")
	if err := removeBegun(snap); err != nil {
		return err
	}
	file := e.server.Server.Backend()
	if file.Size() < sizeMin {
		return nil
	}
	if is, err := e.isMostlyFree(ctx, file); !is || err != nil {
		return err
	}
	if err := file.Defrag(); err != nil {
		return fmt.Errorf("rewrite database: %w", err)
	}
	// etcd leaves the new name to the kernel. After a power cut the old file could be back, behind what the log still
	// has by then.
	return syncDir(snap)
}

// isMostlyFree reports whether less than half of a file is needed. That is known some commits after the start, and none
// is made without something to write.
func (e *Cluster) isMostlyFree(ctx context.Context, file backend.Backend) (bool, error) {
	for range defragmentCommits {
		if _, err := e.writeMarker(ctx); err != nil {
			return false, err
		}
		if file.ForceCommit(); file.SizeInUse() < file.Size()/2 {
			return true, nil
		}
	}
	return false, nil
}

// writeMarker writes when it was looked at.
func (e *Cluster) writeMarker(ctx context.Context) (*clientv3.PutResponse, error) {
	return e.client.Put(ctx, keyDefragmented, time.Now().UTC().Format(time.RFC3339))
}

// removeBegun takes away what one that was killed has begun; etcd does so only when it has a snapshot to read. The
// server has locked the database: nobody else writes here.
func removeBegun(snap string) error {
	begun, err := filepath.Glob(filepath.Join(snap, "db.tmp.*"))
	for _, path := range begun {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

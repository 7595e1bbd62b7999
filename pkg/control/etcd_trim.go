package control

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

// etcdTrimMin is the size of a database file from which it is looked at. etcd's file never shrinks by itself, and all of it is resident from the start, room that nothing lies in too: it
// is mapped with MAP_POPULATE. What 10,000 streams need is a small part of what was written while they came.
const etcdTrimMin = 64 << 20

const (
	keyTrimmed  = "/farlog/trimmed" // beside keyRoot: nobody has to follow it
	trimCommits = 5
)

// tryTrim goes on with the file as it is when it cannot be trimmed, for want of room for instance. An error: the server gave up.
func (e *Etcd) tryTrim(ctx context.Context, dir string, sizeMin int64) error {
	ctx, cancel := context.WithTimeout(ctx, etcdStartTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { // which etcd's logger may end
		defer recoverInto(e.fatal)
		done <- e.trim(ctx, dir, sizeMin)
	}()
	select {
	case err := <-e.fatal:
		return err
	case err := <-done:
		if err != nil {
			e.server.GetLogger().Warn("database is not trimmed", zap.Error(err))
		}
		return nil
	}
}

// trim writes the embedded server's file anew when less than half of it is needed. It blocks for about a second for each 100 MiB that are. Killed at any moment it leaves the one file or
// the other, which hold the same.
func (e *Etcd) trim(ctx context.Context, dir string, sizeMin int64) error {
	snap := filepath.Join(dir, "member", "snap")
	if err := removeBegun(snap); err != nil {
		return err
	}
	file := e.server.Server.Backend()
	if file.Size() < sizeMin {
		return nil
	}
	if is, err := e.isMostlyRoom(ctx, file); !is || err != nil {
		return err
	}
	if err := file.Defrag(); err != nil {
		return fmt.Errorf("write database anew: %w", err)
	}
	// etcd leaves the new name to the kernel. After a power cut the old file could be back, behind what the log still has by then.
	return syncDir(snap)
}

// isMostlyRoom tells whether less than half of a file is needed. That is known some commits after the start, and none is made without something to write.
func (e *Etcd) isMostlyRoom(ctx context.Context, file backend.Backend) (bool, error) {
	for range trimCommits {
		if _, err := e.note(ctx); err != nil {
			return false, err
		}
		if file.ForceCommit(); file.SizeInUse() < file.Size()/2 {
			return true, nil
		}
	}
	return false, nil
}

// note writes when it was looked at.
func (e *Etcd) note(ctx context.Context) (*clientv3.PutResponse, error) {
	return e.client.Put(ctx, keyTrimmed, time.Now().UTC().Format(time.RFC3339))
}

// removeBegun takes away what one that was killed has begun; etcd does so only when it has a snapshot to read. The server has locked the database: nobody else writes here.
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

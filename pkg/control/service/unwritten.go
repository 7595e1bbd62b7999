package service

import (
	"strconv"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
)

// withEpochs gives each stream of a backup an epoch. One that had none may have been granted some after it was backed
// up, and its ring is no longer known to be blank.
func withEpochs(entries []*api.BackupEntry) []*api.BackupEntry {
	has := map[string]bool{}
	for _, entry := range entries {
		has[entry.Key] = true
	}
	for _, entry := range entries {
		if prefix, name := etcd.CutKey(entry.Key); prefix == etcd.KeyStreams && !has[etcd.KeyEpochs+name] {
			entries = append(entries, &api.BackupEntry{Key: etcd.KeyEpochs + name, Value: strconv.Itoa(restoreLeap)})
		}
	}
	return entries
}

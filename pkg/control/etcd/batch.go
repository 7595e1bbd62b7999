package etcd

import "errors"

// BatchesAtOnce is how many transactions the leader lets etcd work on: one write to the disk is several's.
const BatchesAtOnce = 4

// ErrLost says that a transaction did not hold: its guards or the election key have changed.
var ErrLost = errors.New("another instance leads, or was first")

// BatchMax is how many things are written at once: etcd takes 128 operations a transaction unless it was told
// otherwise.
const BatchMax = 100

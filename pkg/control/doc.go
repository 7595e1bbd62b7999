// Package control holds the packages of the control plane: who may write where, with which epoch, and who drains it.
// Its only state is in etcd; wanted and seen are kept apart there and joined by the pure functions of package
// reconcile. It is never on the data path: with every control plane down, writers write and drains drain. Callers use
// package service.
package control

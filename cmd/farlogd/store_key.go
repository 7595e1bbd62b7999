//go:build cgo

package main

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/farlog/farlog/pkg/signing"
	"github.com/farlog/farlog/pkg/store"
)

// openOwnStore opens the store that a drain or a replica writes, and moves its signing key out of it. A key that could
// not be moved to where --store-keys says is an error; one that is in a store of before, whose owner has chosen no
// place, stays there with a warning at each start.
func openOwnStore(s *settings, logger *slog.Logger) (*store.Store, error) {
	options := store.Options{Create: true, SegmentBytes: int64(s.segmentBytes), KeyDir: s.storeKeys}
	if s.signingCommand != "" {
		command, err := signing.OpenCommand(s.signingCommand, s.signingPublic)
		if err != nil {
			return nil, fmt.Errorf("--signing-public: %w", err)
		}
		options.Signer = command
	}
	opened, err := store.Open(s.storeDir, options)
	if errors.Is(err, store.ErrInvalid) && !s.isStoreKeysGiven && hasKeyInside(s.storeDir) {
		options.KeyDir = ""
		warnOfKey(logger, s.storeDir, err)
		opened, err = store.Open(s.storeDir, options)
	}
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	isMoved, err := opened.MoveKey()
	switch {
	case err != nil && s.isStoreKeysGiven:
		return nil, fmt.Errorf("--store-keys: %w", err)
	case err != nil:
		warnOfKey(logger, opened.Dir(), err)
	case isMoved:
		logger.Info("the signing key was moved out of the store", "store", opened.Dir(), "to", s.storeKeys)
	}
	return opened, opened.CheckKey()
}

// hasKeyInside reports whether a store is there which has its signing key in it.
func hasKeyInside(dir string) bool {
	opened, err := store.Open(dir, store.Options{})
	return err == nil && opened.CheckKey() == nil
}

// warnOfKey says why the signing key stays in a store.
func warnOfKey(logger *slog.Logger, dir string, err error) {
	logger.Warn("the signing key is in the store: who has a copy of the store can sign for it; give a directory "+
		"outside of it with --store-keys", "store", dir, "error", oneLine(err))
}

// signingNote logs that nothing can be signed, and that it can again.
type signingNote struct {
	store  *store.Store
	logger *slog.Logger
	said   string
}

func (n *signingNote) look() {
	text := ""
	if err := n.store.SigningFailure(); err != nil {
		text = oneLine(err)
	}
	switch {
	case text == n.said:
	case text == "":
		n.logger.Info("signing goes on", "store", n.store.Dir())
	default:
		n.logger.Error("signing failed: segments grow until it succeeds, and are not sealed", "error", text)
	}
	n.said = text
}

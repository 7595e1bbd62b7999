package main

import (
	"cmp"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/farlog/farlog/pkg/store"
)

// storeKeys is where a command that signs finds the signing key of a store.
type storeKeys struct {
	dir string
}

func (k *storeKeys) declare(flags *pflag.FlagSet) {
	flags.StringVar(&k.dir, "store-keys", "", "`directory` of the store's signing key, as the drain has it (default: "+
		"keys, beside the store)")
}

func (k *storeKeys) of(dir string) string {
	if absolute, err := filepath.Abs(dir); err == nil {
		dir = absolute
	}
	return cmp.Or(k.dir, store.KeyDirBeside(dir))
}

package main

import (
	"cmp"
	"fmt"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/farlog/farlog/pkg/signing"
	"github.com/farlog/farlog/pkg/store"
)

// storeKeys is how a command that signs gets at the signing key of a store.
type storeKeys struct {
	dir, command, public string
}

func (k *storeKeys) declare(flags *pflag.FlagSet) {
	flags.StringVar(&k.dir, "store-keys", "", "`directory` of the store's signing key, as the drain has it (default: "+
		"keys, beside the store)")
	flags.StringVar(&k.command, "signing-command", "", "`command` that signs in place of a key, as the drain has it")
	flags.StringVar(&k.public, "signing-public", "", "PEM `file` with the public key of --signing-command: a new "+
		"store needs it")
}

// options adds the key of the store in dir.
func (k *storeKeys) options(dir string, options store.Options) (store.Options, error) {
	if absolute, err := filepath.Abs(dir); err == nil {
		dir = absolute
	}
	options.KeyDir = cmp.Or(k.dir, store.KeyDirBeside(dir))
	if k.command == "" {
		return options, nil
	}
	command, err := signing.OpenCommand(k.command, k.public)
	if err != nil {
		return options, fmt.Errorf("--signing-public: %w", err)
	}
	options.Signer = command
	return options, nil
}

// openSigningStore opens a store to add to it, or to sign for it.
func openSigningStore(dir string, keys *storeKeys) (*store.Store, error) {
	options, err := keys.options(dir, store.Options{})
	if err != nil {
		return nil, err
	}
	opened, err := openStoreWith(dir, options)
	if err != nil {
		return nil, err
	}
	return opened, opened.CheckKey()
}

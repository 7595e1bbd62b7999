package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/farlog/farlog/pkg/signing"
	"github.com/farlog/farlog/pkg/store"
)

func newStoreKeyCommand(env *environment) *cobra.Command {
	return newGroup("key", "List and rotate the keys that sign for a store",
		newStoreKeyListCommand(env), newStoreKeyRotateCommand(env))
}

// storeKey is what --output json prints of a key.
type storeKey struct {
	Number int    `json:"number"`
	ID     string `json:"id"`
	Public string `json:"public_key"`
}

func newStoreKeyListCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use: "list STORE", Short: "Print the public keys that sign for a store, the oldest first", Args: exactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			opened, err := openStore(args[0])
			if err != nil {
				return err
			}
			return printStoreKeys(env, opened)
		},
	}
}

func printStoreKeys(env *environment, opened *store.Store) error {
	var keys []storeKey
	for i, public := range opened.Keys() {
		keys = append(keys, storeKey{i + 1, store.KeyID(public), fmt.Sprintf("%x", []byte(public))})
	}
	if env.isJSON() {
		return env.writeJSON(keys)
	}
	table := env.newTable()
	fmt.Fprintln(table, "KEY\tID\tPUBLIC KEY")
	for _, key := range keys {
		fmt.Fprintf(table, "%d\t%s\t%s\n", key.Number, key.ID, key.Public)
	}
	return table.Flush()
}

func newStoreKeyRotateCommand(env *environment) *cobra.Command {
	var keys, next storeKeys
	command := &cobra.Command{
		Use:   "rotate STORE [--next-command COMMAND --next-public FILE]",
		Short: "Make another key sign for a store",
		Long: `Makes a new key in the directory of the store's keys, or takes that of another signing command. The
present key signs the statement that the new one follows; STORE/signing-NNNNNNNNNN.json has it, and
STORE/signing-NNNNNNNNNN.pub the new public key: keep a copy of that elsewhere. Both keys are accepted from then on. A
drain that runs takes the new key at its next signature, when it is in the directory of its keys; until then it signs
with the former one. Along a stream no signature of a former key follows one of a newer key: farlog verify fails at
such a place. When farlog verify --output json shows the new key in "keys" of each stream, the former private key
signs nothing any more; delete it.`,
		Example: `  farlog store key rotate data/store
  farlog store key rotate data/store --next-command 'ssh hsm sign store-2' --next-public store-2.pub`,
		Args: exactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			opened, err := openSigningStore(args[0], &keys)
			if err != nil {
				return err
			}
			var signer store.Signer
			if next.command != "" {
				if signer, err = signing.OpenCommand(next.command, next.public); err != nil {
					return fmt.Errorf("--next-public: %w", err)
				}
			}
			public, err := opened.RotateKey(userName(), signer)
			if err != nil {
				return err
			}
			fmt.Fprintf(env.stderr, "key %s signs for store %s from now on\n", store.KeyID(public), args[0])
			return printStoreKeys(env, opened)
		},
	}
	keys.declare(command.Flags())
	command.Flags().StringVar(&next.command, "next-command", "", "`command` that signs with the new key, as "+
		"--signing-command (default: a new key is made in --store-keys)")
	command.Flags().StringVar(&next.public, "next-public", "", "PEM `file` with the public key of --next-command")
	return command
}

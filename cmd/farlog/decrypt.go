package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/farlog/farlog/pkg/record"
)

const keyFileVariable = "FARLOG_KEY_FILE"

// decryptOptions are the keys of encrypted records.
type decryptOptions struct{ files []string }

// register gives the flags of the command, to which it has added its own.
func (o *decryptOptions) register(command *cobra.Command) *pflag.FlagSet {
	flags := command.Flags()
	flags.StringArrayVar(&o.files, "decrypt-key", nil, "`file` with keys of encrypted records, readable by its owner "+
		"alone; may be repeated (default: "+keyFileVariable+")")
	return flags
}

// open gives what decrypts. Without a key it passes on records that are not encrypted, and refuses the others.
func (o *decryptOptions) open() (*record.Decrypter, error) {
	keys, err := o.read()
	return record.NewDecrypter(keys), err
}

// openStream is open for one stream: with keys that are given for it, all of its records have to be encrypted.
func (o *decryptOptions) openStream() (*record.Decrypter, error) {
	decrypter, err := o.open()
	decrypter.IsClearRefused = len(o.files) > 0
	return decrypter, err
}

func (o *decryptOptions) read() (keys []record.EncryptionKey, err error) {
	files := o.files
	if one := os.Getenv(keyFileVariable); len(files) == 0 && one != "" {
		files = []string{one}
	}
	for _, path := range files {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("key file: %w", err)
		}
		if info.Mode().Perm()&0o077 != 0 {
			return nil, fmt.Errorf("key file %q can be read by others than its owner (mode %04o): chmod 600 %s", path,
				info.Mode().Perm(), path)
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("key file: %w", err)
		}
		some, err := record.ParseEncryptionKeys(raw)
		if err != nil {
			return nil, fmt.Errorf("key file %q: %w", path, err)
		}
		keys = append(keys, some...)
	}
	return keys, nil
}

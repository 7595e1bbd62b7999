package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	api "github.com/farlog/farlog/pkg/api/v1"
)

const (
	backupFormat  = "farlog control backup"
	backupTimeout = 10 * time.Minute
	backupLineMax = 16 << 20
)

// backupLine is a line of a backup: first what it is, then one a key, last how many there are and the SHA-256 of all
// lines before.
type backupLine struct {
	Format   string `json:"format,omitempty"`
	Version  int    `json:"version,omitempty"`
	Revision int64  `json:"revision,omitempty"`
	Key      string `json:"key,omitempty"`
	Value    string `json:"value,omitempty"`
	Entries  *int   `json:"entries,omitempty"`
	SHA256   string `json:"sha256,omitempty"`
}

func newControlCommand(env *environment) *cobra.Command {
	backup := &cobra.Command{
		Use:   "backup FILE",
		Short: "Write all that the control plane keeps, as it is at one moment, into a new file",
		Long: `Writes streams, epochs, rings, assignments and grants into a file that only its owner can read; tokens
are in it: keep it like a key. Records are not in it: they are in rings and stores.`,
		Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "-" {
				return usageErrorf("backup -: expected a file: what is in it is nothing for a terminal or a pipe's log")
			}
			return backupControl(cmd.Context(), env, args[0])
		},
	}
	restore := &cobra.Command{
		Use:   "restore FILE",
		Short: "Put a backup into a control plane that has no streams",
		Long: `Reads and checks the whole file, then writes it into the control plane, which must have no streams: one
with a new --data-dir. Epochs, generations and ids continue 65536 above those of the backup, so that none that was
issued after the backup is issued twice. Streams that were created after the backup are unknown. Remote writers with a
grant from after the backup need a new grant when they reconnect. No acknowledged record is touched.`,
		Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return restoreControl(cmd.Context(), env, args[0]) },
	}
	return newGroup("control", "Back up and restore what the control plane keeps", backup, restore)
}

func backupControl(ctx context.Context, env *environment, path string) error {
	client, err := env.dialControl()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, backupTimeout)
	defer cancel()
	stream, err := client.Backup(ctx, &api.BackupRequest{})
	if err != nil {
		return client.explain(ctx, "", err)
	}
	// The first answer comes before the file: a backup that is refused leaves none.
	entry, err := stream.Recv()
	if err != nil && !errors.Is(err, io.EOF) {
		return client.explain(ctx, "", err)
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return usageErrorf("backup %q is there already: give another name", path)
	}
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	count, err := writeBackup(file, entry, stream.Recv)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return errors.Join(fmt.Errorf("backup %q: %w", path, err), os.Remove(path))
	}
	fmt.Fprintf(env.stderr, "%d entries in %s\n", count, path)
	return nil
}

func writeBackup(to io.Writer, entry *api.BackupEntry, next func() (*api.BackupEntry, error)) (count int, err error) {
	sum := sha256.New()
	encoder := json.NewEncoder(io.MultiWriter(to, sum))
	if err := encoder.Encode(backupLine{Format: backupFormat, Version: 1, Revision: entry.GetRevision()}); err != nil {
		return 0, err
	}
	for entry != nil {
		if err := encoder.Encode(backupLine{Key: entry.Key, Value: entry.Value}); err != nil {
			return count, err
		}
		count++
		if entry, err = next(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return count, err
		}
	}
	return count, json.NewEncoder(to).Encode(backupLine{Entries: &count, SHA256: hex.EncodeToString(sum.Sum(nil))})
}

func restoreControl(ctx context.Context, env *environment, path string) error {
	entries, err := readBackup(path)
	if err != nil {
		return err
	}
	client, err := env.dialControl()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, backupTimeout)
	defer cancel()
	stream, err := client.Restore(ctx)
	if err != nil {
		return client.explain(ctx, "", err)
	}
	for _, entry := range entries {
		if stream.Send(entry) != nil {
			break // CloseAndRecv tells why
		}
	}
	answer, err := stream.CloseAndRecv()
	if err != nil {
		return client.explain(ctx, "", err)
	}
	fmt.Fprintf(env.stderr, "%d entries restored\n", answer.Entries)
	return nil
}

// readBackup reads a whole file and believes none of it before its sum is right.
func readBackup(path string) ([]*api.BackupEntry, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, usageErrorf("backup %q: %s", path, errors.Unwrap(err))
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, backupLineMax)
	sum, entries, isWhole := sha256.New(), []*api.BackupEntry{}, false
	for number := 1; lines.Scan(); number++ {
		var line backupLine
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil || isWhole {
			return nil, usageErrorf("backup %q: line %d: expected what farlog control backup writes", path, number)
		}
		if number == 1 && (line.Format != backupFormat || line.Version != 1) {
			return nil, usageErrorf("backup %q: expected %q of version 1", path, backupFormat)
		}
		if line.Entries != nil {
			if isWhole = *line.Entries == len(entries) && isSum(sum, line.SHA256); !isWhole {
				return nil, usageErrorf("backup %q has been changed: it does not have the %d entries and the SHA-256 "+
					"that it says", path, *line.Entries)
			}
			continue
		}
		sum.Write(append(lines.Bytes(), '\n'))
		if number > 1 {
			entries = append(entries, &api.BackupEntry{Key: line.Key, Value: line.Value})
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("backup %q: %w", path, err)
	}
	if !isWhole {
		return nil, usageErrorf("backup %q is not whole: its last line is missing", path)
	}
	return entries, nil
}

func isSum(sum hash.Hash, want string) bool { return hex.EncodeToString(sum.Sum(nil)) == want }

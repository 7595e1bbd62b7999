package merge

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"sort"

	"github.com/farlog/farlog/pkg/store"
)

const (
	checkpointFormat   = "farlog-merge"
	checkpointVersion  = 1
	checkpointBytesMax = 64 << 20
)

// checkpoint is the signed word on a full file of the order: its hash, which holds those of all before, and where each
// stream stands behind it.
type checkpoint struct {
	Format     string             `json:"format"`
	Version    int                `json:"version"`
	File       uint64             `json:"file"`
	SlotsMax   uint32             `json:"slots_max"`
	Slots      uint32             `json:"slots"`
	FirstIndex uint64             `json:"first_index"`
	NextIndex  uint64             `json:"next_index"`
	OrderNS    uint64             `json:"order_ns"`
	LastStream string             `json:"last_stream"`
	SHA256     string             `json:"sha256"`
	Streams    []checkpointStream `json:"streams"`
}

type checkpointStream struct {
	Stream     string `json:"stream"`
	Generation uint64 `json:"generation"`
	Epoch      uint32 `json:"epoch"`
	LSN        uint64 `json:"lsn"`
	Seq        uint64 `json:"seq"`
	OrderNS    uint64 `json:"order_ns"`
	IsLate     bool   `json:"is_late"`
}

type checkpointFile struct {
	Checkpoint json.RawMessage `json:"checkpoint"`
	Signature  string          `json:"signature"`
}

// checkpoint tells of the encoder's file as it is.
func (e *encoder) checkpoint() checkpoint {
	digest := e.digest()
	c := checkpoint{
		Format: checkpointFormat, Version: checkpointVersion, File: e.header.number, SlotsMax: e.header.slotsMax,
		Slots:      e.slots,
		FirstIndex: e.header.firstIndex, NextIndex: e.nextIndex, OrderNS: e.orderNS, LastStream: e.stream,
		SHA256:  hex.EncodeToString(digest[:]),
		Streams: []checkpointStream{},
	}
	for name, of := range e.streams {
		if l := of.last; l.Generation != 0 {
			c.Streams = append(c.Streams, checkpointStream{
				name, l.Generation, l.Epoch, l.LSN, l.seq, l.orderNS,
				l.isLate,
			})
		}
	}
	sort.Slice(c.Streams, func(i, k int) bool { return c.Streams[i].Stream < c.Streams[k].Stream })
	return c
}

// resume makes an encoder stand behind a checkpoint, at the begin of the next file.
func (c checkpoint) resume() (*encoder, error) {
	e := newEncoder(c.SlotsMax)
	digest, err := hex.DecodeString(c.SHA256)
	if err != nil || len(digest) != len(e.header.previous) {
		return nil, fmt.Errorf("sha256 %q, expected 32 bytes in hexadecimal", c.SHA256)
	}
	e.nextIndex, e.orderNS, e.stream = c.NextIndex, c.OrderNS, c.LastStream
	for _, s := range c.Streams {
		e.info(s.Stream).last = last{
			store.Place{Generation: s.Generation, Epoch: s.Epoch, LSN: s.LSN},
			s.Seq,
			s.OrderNS, s.IsLate,
		}
	}
	e.begin(orderHeader{
		number: c.File + 1, slotsMax: c.SlotsMax, firstIndex: c.NextIndex, prevOrderNS: c.OrderNS,
		previous: [32]byte(digest),
	})
	return e, nil
}

func encodeCheckpoint(c checkpoint, sign func([]byte) ([]byte, error)) ([]byte, error) {
	body, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode checkpoint: %w", err)
	}
	signature, err := sign(body)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(checkpointFile{body, hex.EncodeToString(signature)})
	return append(raw, '\n'), err
}

// loadCheckpoint reads a checkpoint and checks its signature.
func loadCheckpoint(fsys store.FS, dir string, number uint64, key ed25519.PublicKey) (c checkpoint, err error) {
	name := fileName(dir, number, checkpointSuffix)
	raw, err := readWhole(fsys, name, checkpointBytesMax)
	if err != nil {
		return c, fmt.Errorf("read %s: %w", name, err)
	}
	damaged := func(err error) error { return &store.CorruptError{Path: name, Err: err} }
	var file checkpointFile
	if err := json.Unmarshal(raw, &file); err != nil {
		return c, damaged(err)
	}
	signature, err := hex.DecodeString(file.Signature)
	if err != nil || !ed25519.Verify(key, file.Checkpoint, signature) {
		return c, damaged(errors.New("signature of the checkpoint does not match"))
	}
	if err := json.Unmarshal(file.Checkpoint, &c); err != nil {
		return c, damaged(err)
	}
	again, _ := json.Marshal(checkpointFile{file.Checkpoint, file.Signature})
	body, _ := json.Marshal(c)
	if !bytes.Equal(append(again, '\n'), raw) || !bytes.Equal(body, file.Checkpoint) || c.Format != checkpointFormat ||
		c.Version != checkpointVersion || c.File != number {
		return c, damaged(errors.New("checkpoint is not what its fields encode to"))
	}
	return c, nil
}

const (
	dirName          = "merged"
	orderSuffix      = ".ord"
	checkpointSuffix = ".json"
	tmpSuffix        = ".tmp"
)

func fileName(dir string, number uint64, suffix string) string {
	return path.Join(dir, fmt.Sprintf("%010d%s", number, suffix))
}

func readWhole(fsys store.FS, name string, limit int64) ([]byte, error) {
	file, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, fmt.Errorf("file of %d bytes, expected at most %d", size, limit)
	}
	raw := make([]byte, size)
	n, err := file.ReadAt(raw, 0)
	if int64(n) == size && (err == nil || errors.Is(err, io.EOF)) {
		return raw, nil
	}
	return nil, fmt.Errorf("%d of %d bytes: %w", n, size, errors.Join(err, io.ErrUnexpectedEOF))
}

// writeWhole makes a file durable under a temporary name and renames it; the caller syncs the directory.
func writeWhole(fsys store.FS, name string, raw []byte) error {
	file, err := fsys.OpenFile(name+tmpSuffix, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o644)
	if err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	_, err = file.WriteAt(raw, 0)
	if err == nil {
		err = file.Sync()
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = fsys.Rename(name+tmpSuffix, name)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

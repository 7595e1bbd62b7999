package store

import (
	"encoding/json"
	"fmt"
)

const (
	positionFormat  = "farlog-position"
	positionVersion = 1
)

// Position is what the file of a named consumer says: the last record that it has committed.
type Position struct {
	Format     string `json:"format"`
	Version    int    `json:"version"`
	Stream     string `json:"stream"`
	Generation uint64 `json:"generation"`
	Epoch      uint32 `json:"epoch"`
	LSN        uint64 `json:"lsn"`
	NextLSN    uint64 `json:"next_lsn"`
}

// Place is that of the record.
func (p Position) Place() Place { return Place{p.Generation, p.Epoch, p.LSN} }

// Encode makes the bytes of the file.
func (p Position) Encode() ([]byte, error) {
	p.Format, p.Version = positionFormat, positionVersion
	raw, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode position: %w", err)
	}
	return append(raw, '\n'), nil
}

// ParsePosition reads the file. Errors: ErrInvalid.
func ParsePosition(raw []byte) (p Position, err error) {
	if err := json.Unmarshal(raw, &p); err != nil {
		return p, fmt.Errorf("%w: cannot be read: %w", ErrInvalid, err)
	}
	if p.Format != positionFormat || p.Version != positionVersion {
		return p, fmt.Errorf("%w: format %q version %d, expected %q version %d", ErrInvalid, p.Format, p.Version,
			positionFormat, positionVersion)
	}
	return p, nil
}

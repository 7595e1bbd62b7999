package identity

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"time"
)

// FileKind says what a file decides.
type FileKind string

// The files that decide who is let in, and who may do what.
const (
	FileAuthority FileKind = "Authority"      // whose certificates are believed
	FileRevoked   FileKind = "RevocationList" // which of them are not any more
	FileAccess    FileKind = "AccessRules"    // who may do what: pkg/control/access
)

// Reading is what came of reading such a file: at the start, and when another content is there.
type Reading struct {
	Kind   FileKind
	File   string
	SHA256 string // of what is there, in hexadecimal digits; "" = nothing that can be read
	Text   string // what it says, in short; "" when it is refused
	Err    error  // why it is refused, and what was in force before stays; nil = it is in force
}

// Digest of a file as it is now; "" = it cannot be read.
func Digest(path string) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return DigestOf(raw)
}

// DigestOf is the SHA-256 of bytes as a Reading tells it.
func DigestOf(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// Watch tells of the authority's file and the list of revoked certificates: at once of what is in force, then of each
// other content that is read there, taken or refused. They are looked at when the keeper is asked for anything. Before
// it is used by others; tell is called by whoever asks, and must not wait nor ask in turn.
func (k *Keeper) Watch(tell func(Reading)) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	k.tell, k.told = tell, make(map[FileKind]told)
	if k.current != nil {
		k.tellRead(k.current, nil)
	}
}

// told is what was said last of a file.
type told struct {
	digest    string
	isRefused bool
}

// tellRead tells of each file that is not as it was told last. The mutex is held. m is what is in force now, and
// refused then is about the list alone; nil: nothing new is in force, because of any of the files.
func (k *Keeper) tellRead(m *material, refused error) {
	if k.tell == nil {
		return
	}
	for _, one := range []struct {
		kind FileKind
		path string
	}{{FileAuthority, k.files.Authority}, {FileRevoked, k.files.Revoked}} {
		reading := Reading{Kind: one.kind, File: one.path, SHA256: Digest(one.path)}
		if m != nil && (refused == nil || one.kind == FileAuthority) {
			reading.Text = m.describe(one.kind)
		} else {
			reading.Err = refused
		}
		before, now := k.told[one.kind], told{reading.SHA256, reading.Err != nil}
		if now == before || m == nil && now.digest == before.digest {
			continue
		}
		k.told[one.kind] = now
		k.tell(reading)
	}
}

func (m *material) describe(kind FileKind) string {
	switch {
	case kind == FileAuthority:
		return fmt.Sprintf("certificates of %d authorities", len(m.authorities))
	case m.list == nil:
		return "no list"
	}
	return fmt.Sprintf("list of %s, number %v: %d revoked", m.list.ThisUpdate.UTC().Format(time.RFC3339), m.list.Number,
		len(m.revoked))
}

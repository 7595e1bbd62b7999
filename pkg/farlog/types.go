package farlog

import (
	"fmt"
	"time"

	"github.com/farlog/farlog/pkg/record"
)

// Level is a durability level: posted < visible < persistent < stored < archived.
type Level uint8

// The levels; docs/explanation/durability.md says what each means on each kind of region.
const (
	LevelNone Level = iota
	LevelPosted
	LevelVisible
	LevelPersistent
	LevelStored
	LevelArchived
)

var levelNames = [...]string{"none", "posted", "visible", "persistent", "stored", "archived"}

func (l Level) String() string {
	if int(l) < len(levelNames) {
		return levelNames[l]
	}
	return fmt.Sprintf("level(%d)", uint8(l))
}

// ParseLevel is the inverse of Level.String.
func ParseLevel(text string) (Level, error) {
	for level, name := range levelNames {
		if name == text && level != 0 {
			return Level(level), nil
		}
	}
	return 0, fmt.Errorf("durability level %q: expected posted, visible or persistent", text)
}

// Entry is what an application appends. Data and Key are not kept.
type Entry struct {
	Data  []byte
	Key   []byte // optional: finds the record again, e.g. ClOrdID; at most 65535 bytes
	Class uint16 // the application's kind of record
}

// Position is what an acknowledgement says: where the record is and how safe.
type Position struct {
	LSN    uint64
	Seq    uint64
	EndLSN uint64 // durable when the durable position has reached it
	Epoch  uint32 // with ErrFenced: the epoch that fenced
	Level  Level
	Copies uint8
}

// Contract is what a region's owner attests.
type Contract struct {
	Kind            string
	FlushMethod     string
	Probe           string // what was looked at to know this
	Level           Level  // the highest this region can give
	Granularity     uint32
	AtomicUnit      uint32
	ReadBack        bool
	SizeBytes       uint64
	DeadlineDefault time.Duration
}

// FormatOptions describe a new ring; zero fields take the core's defaults (farlog.h).
type FormatOptions struct {
	SizeBytes    uint64 // of the region, header included; a multiple of 4096
	Align        uint32
	RecordLenMax uint32
	StreamID     uint32
	StreamName   string
	Salt         uint64
	Encryption   record.Encryption // of all records that applications append, for good
	Force        bool
}

// Status is a ring seen from outside.
type Status struct {
	RingUUID                                             [16]byte
	Salt, CapacityBytes                                  uint64
	Align, RecordLenMax, StreamID                        uint32
	WriterEpoch, EpochMin, LastEpoch                     uint32
	WriterHeld, DrainHeld                                bool
	HeadLSN, HeadSeq, CreditLSN, AppendedLSN, DurableLSN uint64
	EpochStartLSN, EpochStartSeq                         uint64
	LagBytes, LagRecords                                 uint64
	EpochOpened, Created, OldestRecord, NewestRecord     time.Time
	StreamName, WriterID                                 string
	Contract                                             Contract
	Encryption                                           record.Encryption
}

// Policy says what an append does when the ring is full.
type Policy int

// Block waits for the drain until the deadline; Reject returns ErrFull at once.
const (
	PolicyBlock Policy = iota
	PolicyReject
)

// ParsePolicy reads "block" or "reject".
func ParsePolicy(text string) (Policy, error) {
	switch text {
	case "block":
		return PolicyBlock, nil
	case "reject":
		return PolicyReject, nil
	}
	return 0, fmt.Errorf("policy %q: expected block or reject", text)
}

func (p Policy) String() string {
	if p == PolicyReject {
		return "reject"
	}
	return "block"
}

// WriterOptions configure a writer; the zero value asks for persistent, blocks when full, and opens the next epoch.
type WriterOptions struct {
	Level        Level
	Policy       Policy
	Epoch        uint32        // from a grant; 0 = one more than the ring's last
	Deadline     time.Duration // default of an append; 0 = the contract's
	WarnPercent  uint32
	AlarmPercent uint32
	Name         string
	CountersDir  string // "" = /dev/shm/farlog, "none" = private to this process
	RingUUID     *[16]byte
	Token        *[TokenLen]byte // of a grant, for a ring on another host
	Members      []Member        // of a stream with several: in place of RingUUID and Token
	Spin         bool            // never sleep while waiting: for a thread on a core of its own
	// KeyFile holds the keys of an encrypted ring, of which the first one encrypts; "" = what FARLOG_KEY_FILE names.
	// ErrInvalid where it is given and the ring is not encrypted.
	KeyFile string
}

// Cursors are a writer's positions: Head <= Appended, Durable <= Appended, Appended - Head <= Capacity.
type Cursors struct {
	HeadLSN, DurableLSN, AppendedLSN, CapacityBytes, NextSeq uint64
	// Pressure: 0, 1 from the warning mark, 2 from the alarm mark
	Epoch, Pressure uint32
}

// Recovery is what opening a writer found.
type Recovery struct {
	Epoch, PrevEpoch                                                  uint32
	HeadLSN, TailLSN, NextSeq, RecordCount, OrphanCount, ScannedBytes uint64
	Duration                                                          time.Duration
}

// Start says where a reader begins.
type Start int

// Head is the oldest undrained record; LSN is ReaderOptions.LSN; Tail is what is appended from now on.
const (
	StartHead Start = iota
	StartLSN
	StartTail
)

// ReaderOptions configure a reader. Drain takes the ring's drain lock and allows Release.
type ReaderOptions struct {
	Start    Start
	LSN      uint64
	Drain    bool
	RingUUID *[16]byte
	Token    *[TokenLen]byte // of a grant, for a ring on another host
	Members  []Member        // of a stream with several: in place of RingUUID and Token
	// KeyFile holds the keys of encrypted records, which are given as the plain records that were encrypted. "" = what
	// FARLOG_KEY_FILE names; nothing either, and NoKeyFile: they are given as they are. With keys an application's
	// record that is not encrypted is ErrCorrupt in a ring that is, and in any ring when the file is given. Not for a
	// drain.
	KeyFile string
}

// NoKeyFile is a reader that decrypts nothing, whatever the environment says.
const NoKeyFile = "none"

// Batch is what one Read copied: whole records, verbatim and back to back, a PAD as its 64 bytes.
type Batch struct {
	FirstLSN, NextLSN, NextSeq, RecordCount uint64
	LastEpoch                               uint32
	Rewound                                 bool // the log went back to FirstLSN; see farlog.h
	Bytes                                   []byte
	LastTimestamp                           time.Time
}

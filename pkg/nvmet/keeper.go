package nvmet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/farlog/farlog/pkg/safefile"
)

// KeepInterval is how often a Keeper looks.
const KeepInterval = 5 * time.Second

// Keeper keeps the kernel's NVMe target as a file, or the fabric, declares it: after a boot, after a change of what is
// declared, and when somebody has changed what was declared.
type Keeper struct {
	file, state, root string // file "": the fabric declares
	owner             string // of what a fabric declares: whose state it is
	devices           Devices
	logger            *slog.Logger
	wake              chan struct{} // asks for a poll at once

	raw      []byte // what the declaration was read from
	declared *Declaration

	rings         Rings                // nil: nobody is evicted
	takeoverError string               // the last one that was told
	takeoverAfter map[string]time.Time // by subsystem: when the next expulsion may be tried, after one that failed

	mutex      sync.Mutex
	sample     KeeperSample
	wish       *wish // of the fabric; nil: not known yet
	namespaces []NamespaceSample
}

// KeeperSample is what a Keeper has come to.
type KeeperSample struct {
	IsDeclared   bool   // something was
	IsAsDeclared bool   // at the last look
	Steps        uint64 // that were taken since the start
	Failures     uint64 // looks that ended with an error
	Error        string // of the last look; "" = none
}

// NewKeeper reads the file, so that its mistakes are told at the start. root is Root but for tests.
func NewKeeper(file, state, root string, logger *slog.Logger) (*Keeper, error) {
	k := newKeeper(state, root, logger)
	k.file = file
	return k, k.readFile()
}

// NewFabricKeeper keeps what Declare says. Until that is called it changes nothing. owner names whose declaration it is
// among all that may use the state file, and stays the same over restarts. root is Root but for tests.
func NewFabricKeeper(owner, state, root string, devices Devices, logger *slog.Logger) *Keeper {
	k := newKeeper(state, root, logger)
	k.owner, k.devices = owner, devices
	return k
}

func newKeeper(state, root string, logger *slog.Logger) *Keeper {
	return &Keeper{
		state: state, root: root, logger: logger, takeoverAfter: make(map[string]time.Time),
		wake: make(chan struct{}, 1),
	}
}

// Run looks until ctx is done, for the first time before it calls ready.
func (k *Keeper) Run(ctx context.Context, ready func()) error {
	k.poll()
	ready()
	tick, takeover := time.NewTicker(KeepInterval), time.NewTicker(TakeoverInterval)
	defer tick.Stop()
	defer takeover.Stop()
	for {
		select {
		case <-tick.C:
			k.poll()
		case <-k.wake:
			k.poll()
		case <-takeover.C:
			if k.hasTakeover() {
				k.takeOver()
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// Sample is for metrics, from any goroutine.
func (k *Keeper) Sample() KeeperSample {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return k.sample
}

// readFile leaves what was declared before in force when the file cannot be read or has mistakes.
func (k *Keeper) readFile() error {
	raw, _, err := safefile.Read(k.file)
	if err != nil {
		return fmt.Errorf("nvmet file %q: %w", k.file, bare(err))
	}
	if k.declared != nil && bytes.Equal(raw, k.raw) {
		return nil
	}
	declared, err := ReadDeclaration(raw)
	if err != nil {
		return fmt.Errorf("nvmet file %q: %w", k.file, err)
	}
	if k.declared != nil {
		k.logger.Info("nvmet file has changed", "file", k.file)
	}
	k.raw, k.declared = raw, declared
	return nil
}

func (k *Keeper) poll() {
	var change Change
	var err error
	if k.file != "" {
		err = k.readFile()
		applied, applyErr := k.apply()
		change, err = applied, errors.Join(err, applyErr)
	} else {
		k.mutex.Lock()
		wanted := k.wish
		k.mutex.Unlock()
		if k.isIdle(wanted) {
			return
		}
		change, err = k.applyFabric(wanted)
	}
	k.record(change, err)
}

// record keeps what a poll came to, and logs what is new.
func (k *Keeper) record(change Change, err error) {
	k.mutex.Lock()
	before := k.sample
	k.sample.IsDeclared = true
	k.sample.Steps += uint64(len(change.Steps))
	k.sample.IsAsDeclared, k.sample.Error = err == nil, ""
	if err != nil {
		k.sample.Failures++
		k.sample.Error = err.Error()
	}
	after := k.sample
	k.mutex.Unlock()
	for _, step := range change.Steps {
		k.logger.Info("nvmet step", "step", step.String())
	}
	for _, nqn := range change.Drawn {
		k.logger.Info("nvmet keys generated", "host", nqn)
	}
	if len(change.Steps) > 0 {
		for _, note := range change.Notes {
			k.logger.Warn("nvmet", "note", note)
		}
	}
	switch {
	case after.Error != "" && after.Error != before.Error:
		k.logger.Error("nvmet differs from what is declared", "by", k.declaredBy(), "error", err)
	case after.Error == "" && (before.Error != "" || before == KeeperSample{}):
		k.logger.Info("nvmet is as declared", "by", k.declaredBy())
	}
}

func (k *Keeper) declaredBy() string {
	if k.file == "" {
		return "the fabric"
	}
	return k.file
}

func (k *Keeper) apply() (change Change, err error) {
	kernel, err := Open(k.root)
	if err != nil {
		return change, err
	}
	state, err := OpenState(k.state)
	if err != nil {
		return change, err
	}
	defer func() { err = errors.Join(err, state.Close()) }()
	return Apply(kernel, state, k.declared, false, time.Now())
}

package auditlog

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/farlog/farlog/pkg/control/access"
	"github.com/farlog/farlog/pkg/control/refusal"
	"github.com/farlog/farlog/pkg/identity"
)

// fileLookInterval is how often the files of certificates and rules are looked at when nobody calls: who changes one
// finds the event that long after.
const fileLookInterval = time.Second

// FileWatcher makes events of the files that decide who is let in and who may do what, as they are read: whoever may
// write them rules here without any call. What is in force at the start is one as well: a file may have been changed
// while no control plane ran.
type FileWatcher struct {
	recorder *Recorder
	keeper   *identity.Keeper
	access   *access.File

	mutex   sync.Mutex
	waiting []*Event
}

// FileReading is the request of such an event.
type FileReading struct {
	File   string `json:"file"`
	SHA256 string `json:"sha256"` // of what is there, also when it is refused; "" = nothing that can be read
}

// WatchFiles begins before anybody is let in. It is for a control plane with certificates whose audit events are
// recorded.
func WatchFiles(recorder *Recorder, keeper *identity.Keeper, access *access.File) *FileWatcher {
	f := &FileWatcher{recorder: recorder, keeper: keeper, access: access}
	keeper.Watch(f.noteReading)
	access.Watch(f.noteReading)
	return f
}

// noteReading is called by whoever read the file, and only notes what was read.
func (f *FileWatcher) noteReading(reading identity.Reading) {
	event := f.recorder.NewEvent(context.Background(), access.Caller{ID: "control"}, "Read"+string(reading.Kind), nil)
	event.Request, _ = json.Marshal(FileReading{reading.File, reading.SHA256}) // two strings: it does not fail
	var err error
	if reading.Err != nil {
		err = refusal.WithReason(codes.FailedPrecondition, "", reading.Err.Error(), nil)
	}
	event.setOutcome(nil, err)
	if reading.Text != "" {
		event.Changes = []string{fmt.Sprintf("%s: %s, sha256 %s", reading.File, reading.Text, reading.SHA256)}
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.waiting = append(f.waiting, event)
}

// Run looks at the files, and writes down what was noted, until ctx is done. What etcd does not take stays noted, in
// its order.
func (f *FileWatcher) Run(ctx context.Context) {
	tick := time.NewTicker(fileLookInterval)
	defer tick.Stop()
	for {
		f.write(ctx)
		select {
		case <-ctx.Done():
			ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
			defer cancel()
			f.write(ending)
			return
		case <-tick.C:
		}
		f.keeper.ID()
		f.access.Caller("")
	}
}

func (f *FileWatcher) write(ctx context.Context) {
	f.mutex.Lock()
	waiting := f.waiting
	f.mutex.Unlock()
	for _, event := range waiting {
		call, cancel := context.WithTimeout(ctx, writeTimeout)
		err := f.recorder.Put(call, event)
		cancel()
		if err != nil {
			return // the recorder's other callers tell of it
		}
		f.mutex.Lock()
		f.waiting = f.waiting[1:]
		f.mutex.Unlock()
	}
}

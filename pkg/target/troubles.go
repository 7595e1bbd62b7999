package target

import (
	"log/slog"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// troubleInterval is how long another error of the same ring is not logged.
const troubleInterval = time.Minute

// troubles remembers of which rings the last look found an error. It is of the goroutine that looks.
type troubles struct {
	logged map[string]trouble // by stream
}

type trouble struct {
	text string
	at   time.Time
}

// logNew logs why a ring cannot be used, when that begins or is another reason, and when it ends.
func (t *troubles) logNew(state *api.RingState, logger *slog.Logger, now time.Time) {
	last, isLogged := t.logged[state.Stream]
	switch {
	case state.Error == "" && isLogged:
		logger.Info("ring can be used again", "stream", state.Stream, "ring", state.Uri)
		delete(t.logged, state.Stream)
	case state.Error != "" && state.Error != last.text && now.Sub(last.at) >= troubleInterval:
		logger.Error("ring cannot be used", "stream", state.Stream, "ring", state.Uri, "error", state.Error)
		if t.logged == nil {
			t.logged = make(map[string]trouble)
		}
		t.logged[state.Stream] = trouble{state.Error, now}
	}
}

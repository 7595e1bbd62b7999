package drain

import (
	"fmt"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
)

const (
	suspectAfter = time.Second // since the last record: what is on its way has arrived by then
	suspectAgain = time.Minute
)

// suspicion is of bytes where the next record would be that want to be it and are not: a writer died in the middle of
// it, or somebody has scribbled over it. They keep the drain from nothing that was acknowledged, but whatever is behind
// them is not seen either.
type suspicion struct {
	lookAt time.Time
	seen   farlog.Suspect
}

// later puts the next look off: a record has just come.
func (s *suspicion) later(now time.Time) {
	*s = suspicion{lookAt: now.Add(suspectAfter)}
}

// suspect looks at an idle ring's tip, a second after its last record and then once a minute; a second look that finds
// the same bytes tells of them.
func (d *drainer) suspect(now time.Time) {
	s := &d.suspicion
	if now.Before(s.lookAt) {
		return
	}
	d.awaitAhead()
	found, err := d.reader.Suspect()
	if err != nil || !found.Claimed {
		d.progress.Suspect = ""
		*s = suspicion{lookAt: now.Add(suspectAgain)}
		return
	}
	if found != s.seen {
		*s = suspicion{lookAt: now.Add(suspectAfter), seen: found}
		return
	}
	s.lookAt = now.Add(suspectAgain)
	text := fmt.Sprintf("invalid bytes at lsn %d, where the next record would be: %s; a writer that died in the "+
		"middle of a record leaves such bytes, and the next writer overwrites them; a running writer leaves none; "+
		"see farlog dump", found.LSN, found.Text)
	if d.progress.Suspect != text {
		d.config.Logger.Warn(text, "stream", d.source.StreamName, "ring", d.config.RingURI)
	}
	d.progress.Suspect = text
}

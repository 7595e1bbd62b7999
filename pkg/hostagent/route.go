package hostagent

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// RouteLeg is a stream that a route selects, in the words of the C library.
type RouteLeg struct {
	Stream         string
	IsOptional     bool
	Policy         string        // fail, spill or drop
	Level          uint32        // 0: the stream's own
	Deadline       time.Duration // 0: the stream's own
	BufferBytes    uint64
	CriticalityMin uint32
	Classes        [][2]uint32 // first and last; none: all
}

// route tells the legs of a route to whoever may write all of them. Each is granted when the library opens its stream.
func (s *Server) route(ctx context.Context, p peer, asked request) (*reply, error) {
	name := asked.values["route"]
	legs, err := s.config.Route(ctx, name)
	if err := asRefusal(err); err != nil {
		return nil, err
	}
	made := newReply()
	made.isQuestion = true
	for i, leg := range legs {
		if err := s.may(p, leg.Stream, false); err != nil {
			return nil, refuse("INVALID", "route %q: %s", name, err)
		}
		line := leg.String()
		if len(line) > valueLenMax {
			return nil, refuse("INVALID", "route %q: stream %q: classes of %d bytes: the host agent reports at "+
				"most %d: expected fewer ranges", name, leg.Stream, len(line), valueLenMax)
		}
		made.add(fmt.Sprint("leg-", i), line)
	}
	if made.Len() > packetLenMax {
		return nil, refuse("INVALID", "route %q: rules of %d bytes: the host agent reports at most %d: expected fewer "+
			"ranges of classes", name, made.Len(), packetLenMax)
	}
	return made, nil
}

// String is the leg's line of the protocol.
func (l RouteLeg) String() string {
	standing, classes := "required", "all"
	if l.IsOptional {
		standing = "optional"
	}
	if len(l.Classes) > 0 {
		var ranges []string
		for _, one := range l.Classes {
			ranges = append(ranges, fmt.Sprintf("%d-%d", one[0], one[1]))
		}
		classes = strings.Join(ranges, ",")
	}
	return fmt.Sprintf("%s %s %s %d %d %d %d %s", l.Stream, standing, l.Policy, l.Level, l.Deadline.Nanoseconds(),
		l.BufferBytes, l.CriticalityMin, classes)
}

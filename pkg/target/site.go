package target

import (
	"errors"
	"fmt"
	"strings"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
)

// site is where a ring is: in a file of its own, or in a region that it shares with others.
type site struct {
	uri  string
	path string // of the file; "" in a shared region
}

func fileSite(path string) site { return site{uri: "mem:" + path, path: path} }

// name is what an error calls the place, and kind what it is.
func (s site) name() string {
	if s.path != "" {
		return s.path
	}
	return s.uri
}

func (s site) kind() string {
	if s.path != "" {
		return "file"
	}
	return "region"
}

// inRegion is the URI of a stream's ring in a region with a directory. A stream's name has no character that a URI
// could misread.
func inRegion(region, stream string) site {
	separator := "?"
	if strings.Contains(region, "?") {
		separator = "&"
	}
	return site{uri: region + separator + "ring=" + stream}
}

// siteOf is where the ring of a stream is. With regions it is the first that has one of that name, or of which it
// cannot be told; with none the first, where it would be made.
func (t *Target) siteOf(spec *api.RingSpec) site {
	stream := spec.Stream.Spec.Name
	if spec.Subsystem != "" {
		return inRegion(t.regionOfNamespace(spec.Subsystem), stream)
	}
	if len(t.config.Regions) == 0 {
		return fileSite(t.ringPath(stream))
	}
	for _, region := range t.config.Regions {
		at := inRegion(region, stream)
		if _, err := farlog.Inspect(at.uri); !errors.Is(err, farlog.ErrNotFound) {
			return at
		}
	}
	return inRegion(t.config.Regions[0], stream)
}

// logRegions names the regions that no ring can be made in as they are now. They are not refused: a device may come
// later.
func (t *Target) logRegions() {
	for _, region := range t.config.Regions {
		contract, err := farlog.Probe(region)
		if err != nil {
			t.config.Logger.Warn("region cannot be used as it is", "region", region, "error", oneLine(err))
		} else if contract.SizeBytes == 0 && !strings.Contains(region, "size=") {
			t.config.Logger.Warn("region is not there, and size= does not say how large it is to be made", "region",
				region)
		}
	}
}

// formInNamespace makes the ring beside the others of its namespace.
func (t *Target) formInNamespace(at site, subsystem string, options farlog.FormatOptions) (site, error) {
	if t.regionOfNamespace(subsystem) == "" {
		return at, errUndeclared(subsystem)
	}
	err := farlog.Format(at.uri, options)
	t.requestProbe() // of what is left
	return at, err
}

// formInRegion makes the ring in the first region that gives its level and has space.
func (t *Target) formInRegion(options farlog.FormatOptions, level api.Level) (site, error) {
	var full []error
	at := inRegion(t.config.Regions[0], options.StreamName)
	regions := t.regionsFor(level)
	if len(regions) == 0 {
		return at, fmt.Errorf("no region gives level %s: give the target another --region", farlog.Level(level))
	}
	for _, region := range regions {
		at = inRegion(region, options.StreamName)
		err := farlog.Format(at.uri, options)
		if !errors.Is(err, farlog.ErrFull) {
			return at, err
		}
		full = append(full, err)
	}
	return at, fmt.Errorf("no region has free space for it: give the target another --region: %w", errors.Join(full...))
}

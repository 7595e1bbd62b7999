package reconcile

import (
	"strings"
	"testing"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// A region that serves its own host alone takes no ring of a stream that is for others, and the reason says what helps.
func regionAt(uri string, level api.Level) *api.Region { return &api.Region{Uri: uri, Level: level} }

var (
	namespace = regionAt("nvme:/dev/nvme2n1", api.Level_LEVEL_PERSISTENT)
	memory    = regionAt("mem:/dev/shm/x", api.Level_LEVEL_VISIBLE)
)

// unreached are what a stream wants of a target with these regions and listeners, and why it cannot have it.
var unreached = map[string]struct {
	spec      *api.StreamSpec
	regions   []*api.Region
	listeners []string
	want      string
}{
	"alone on its host": {&api.StreamSpec{}, []*api.Region{namespace}, nil, ""},
	"writer and drain there": {
		&api.StreamSpec{WriterHost: "h", DrainHost: "h"},
		[]*api.Region{namespace},
		nil,
		"",
	},
	"writer elsewhere": {
		&api.StreamSpec{WriterHost: "desk7"},
		[]*api.Region{namespace},
		nil,
		"the writer is to be on host desk7",
	},
	"drain elsewhere": {
		&api.StreamSpec{DrainHost: "store1"},
		[]*api.Region{namespace},
		nil,
		"the drain is to be on host store1",
	},
	"listens": {
		&api.StreamSpec{},
		[]*api.Region{namespace},
		[]string{"ofi:tcp://h:1"},
		"start it without --listen",
	},
	"listens, and has memory": {
		&api.StreamSpec{},
		[]*api.Region{namespace, memory},
		[]string{"ofi:tcp://h:1"},
		"",
	},
	"memory that is not enough": {
		&api.StreamSpec{Level: api.Level_LEVEL_PERSISTENT},
		[]*api.Region{namespace, memory},
		[]string{"ofi:tcp://h:1"},
		"region nvme:/dev/nvme2n1",
	},
	"a namespace that is broken": {
		&api.StreamSpec{WriterHost: "desk7"},
		[]*api.Region{regionAt("nvme:/dev/nvme2n1", 0)},
		nil, "",
	},
	"another target host": {
		&api.StreamSpec{WriterHost: "desk7", TargetHost: "other"},
		[]*api.Region{namespace},
		nil, "",
	},
}

func TestWhyUnreached(t *testing.T) {
	for name, test := range unreached {
		world := World{LiveTargets: map[string]*api.Agent{"t1": {
			Id: "t1", Host: "h", Regions: test.regions,
			Listeners: test.listeners,
		}}}
		got := WhyUnreached(world, test.spec)
		if test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, expected %q", name, got, test.want)
		}
		fitting, _ := fittingTargets(world, test.spec, map[string]uint64{}, time.Time{})
		if test.want != "" && len(fitting) > 0 {
			t.Errorf("%s: it is placed all the same", name)
		}
		world.LiveTargets["t2"] = &api.Agent{
			Id: "t2", Host: "other",
			Regions: []*api.Region{regionAt("mem:/y", api.Level_LEVEL_PERSISTENT)},
		}
		if got := WhyUnreached(world, test.spec); got != "" {
			t.Errorf("%s, and another target: %q", name, got)
		}
	}
}

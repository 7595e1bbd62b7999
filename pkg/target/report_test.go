package target

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
)

// seldom is a control plane that wants figures next to never.
type seldom struct {
	api.TargetServiceClient
	told      []*api.TargetState
	unchanged int
}

func (s *seldom) ReportTarget(_ context.Context, request *api.ReportTargetRequest,
	_ ...grpc.CallOption,
) (*api.ReportTargetResponse, error) {
	if request.State != nil {
		s.told = append(s.told, request.State)
		return &api.ReportTargetResponse{FiguresEach: 1000, Report: uint64(len(s.told))}, nil
	}
	s.unchanged++
	return &api.ReportTargetResponse{StateRequested: request.Unchanged.Report != uint64(len(s.told))}, nil
}

// A target tells what happens to its rings with the next report, however seldom figures are wanted, and nothing else
// between.
func TestReport_FiguresWaitAndNothingElseDoes(t *testing.T) {
	one, plane := newTarget(t, t.TempDir()), new(seldom)
	one.client = plane
	var writer *farlog.Writer
	appended := func(count int) func() error {
		return func() (err error) {
			for range count {
				if _, err = writer.Append(farlog.Entry{Data: make([]byte, 8<<10)}, 0); err != nil {
					return err
				}
			}
			return nil
		}
	}
	steps := []struct {
		name string
		do   func() error
		want bool // told
	}{
		{"the ring is made", func() error { return nil }, true},
		{"nothing", func() error { return nil }, false},
		{"a writer comes", func() (err error) {
			writer, err = farlog.OpenWriter(one.Rings()[0].State.Uri,
				farlog.WriterOptions{
					Level: farlog.LevelVisible, Epoch: 4, Name: "probe",
					CountersDir: one.config.CountersDir, Deadline: 10 * time.Second,
				})
			return err
		}, true},
		{"it appends", appended(10), false},
		{"more", appended(10), false},
		{"70 % are full", appended(73), true},
		{"more", appended(1), false},
		{"85 % are full", appended(20), true},
		{"it goes", func() error { return writer.Close() }, true},
		{"the ring is lost", func() error { return os.Remove(one.ringPath("a")) }, true},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		see(one, want("a", 5))
		told, unchanged := len(plane.told), plane.unchanged
		one.report(t.Context())
		if isTold := len(plane.told) > told; isTold != step.want || isTold == (plane.unchanged > unchanged) ||
			!one.IsConnected() {
			t.Errorf("%s: told %v, want %v; unchanged %d times", step.name, isTold, step.want,
				plane.unchanged-unchanged)
		}
	}
	if last := plane.told[len(plane.told)-1].Rings; !slices.ContainsFunc(last,
		func(ring *api.RingState) bool { return ring.Error != "" }) {
		t.Errorf("the loss of %s is not told: %v", filepath.Base(one.ringPath("a")), last)
	}
}

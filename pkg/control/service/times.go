package service

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/refusal"
)

// What agents tell is given to whoever lists it, and JSON has no word for a time that is out of range: one such report
// would take the lists of all hosts from everybody who asks by HTTP, and its agent's state out of each backup. Targets
// report each second of hundreds of rings, so that these are looked at one by one, and by their descriptors only to say
// what is wrong.

const timeRule = "expected a time from the year 1 to 9999, or a duration of at most 10000 years, as google.protobuf " +
	"has them"

// checkTimes refuses a report with a time that nobody can have meant.
func checkTimes(report proto.Message, isGood bool) error {
	if isGood {
		return nil
	}
	return refusal.InvalidArgument("", timeProblems(report.ProtoReflect(), "", nil))
}

// areGood is for times and for durations; none is a good one.
func areGood[T interface {
	comparable
	IsValid() bool
}](times ...T) bool {
	var none T
	return !slices.ContainsFunc(times, func(one T) bool { return one != none && !one.IsValid() })
}

func areTargetTimesGood(state *api.TargetState) bool {
	for _, ring := range state.GetRings() {
		if !areGood(ring.GetObserveTime(), ring.GetEpochOpenTime()) ||
			!areGood(ring.GetLagAge(), ring.GetTimeToFull(), ring.GetContract().GetDeadlineDefault()) {
			return false
		}
		if !areWriterTimesGood(ring.GetCounters()) {
			return false
		}
	}
	for _, one := range state.GetMedia() {
		if !areGood(one.GetReadTime()) {
			return false
		}
	}
	return areGood(state.GetReportTime())
}

func areWriterTimesGood(writer *api.WriterCounters) bool {
	return writer == nil || areGood(writer.LatencyP50, writer.LatencyP99, writer.LatencyP999,
		writer.LatencyMax, writer.StalledFor)
}

func areDrainTimesGood(state *api.DrainState) bool {
	for _, one := range state.GetProgress() {
		if !areGood(one.GetAnchor().GetAnchorTime(), one.GetBase().GetRemoveTime()) {
			return false
		}
	}
	return areGood(state.GetReportTime())
}

func areHostTimesGood(state *api.HostState) bool {
	for _, path := range state.GetPaths() {
		if !areGood(path.GetMeasureTime()) || !areGood(path.GetRttMin(), path.GetRttMedian()) {
			return false
		}
	}
	for _, one := range state.GetWriters() {
		if !areGood(one.GetStalledFor()) || !areWriterTimesGood(one.GetCounters()) {
			return false
		}
	}
	return areGood(state.GetReportTime())
}

// timeProblems finds every time in a message that is out of range.
func timeProblems(message protoreflect.Message, path string, problems []*api.Problem) []*api.Problem {
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if field.Message() == nil || field.IsMap() {
			return true
		}
		name := path + string(field.Name())
		if !field.IsList() {
			problems = timeProblemsAt(value.Message(), name, problems)
			return true
		}
		for i := range value.List().Len() {
			problems = timeProblemsAt(value.List().Get(i).Message(), fmt.Sprintf("%s[%d]", name, i), problems)
		}
		return true
	})
	return problems
}

func timeProblemsAt(message protoreflect.Message, name string, problems []*api.Problem) []*api.Problem {
	seconds, nanos, isGood := int64(0), int32(0), true
	switch one := message.Interface().(type) {
	case *timestamppb.Timestamp:
		seconds, nanos, isGood = one.Seconds, one.Nanos, one.IsValid()
	case *durationpb.Duration:
		seconds, nanos, isGood = one.Seconds, one.Nanos, one.IsValid()
	default:
		return timeProblems(message, name+".", problems)
	}
	if isGood {
		return problems
	}
	return append(problems, &api.Problem{Field: name, Value: fmt.Sprintf("%d s %d ns", seconds, nanos), Rule: timeRule})
}

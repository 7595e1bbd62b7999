package service

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
)

// badTimes gives one message for each time that may stand in it, at any depth, with that one out of range, and the path
// of its field.
func badTimes(kind protoreflect.MessageType, path string) (bad map[string]proto.Message) {
	bad = map[string]proto.Message{}
	fields := kind.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if field.Message() == nil || field.IsMap() {
			continue
		}
		within := map[string]proto.Message{}
		name := path + string(field.Name())
		empty := kind.New()
		var of protoreflect.MessageType
		if field.IsList() {
			of, name = empty.Mutable(field).List().NewElement().Message().Type(), name+"[0]"
		} else {
			of = empty.NewField(field).Message().Type()
		}
		switch of.Descriptor().FullName() {
		case "google.protobuf.Duration":
			within[name] = &durationpb.Duration{Seconds: math.MaxInt64}
		case "google.protobuf.Timestamp":
			within[name] = &timestamppb.Timestamp{Nanos: -1}
		default:
			if strings.Count(name, ".") < 6 {
				within = badTimes(of, name+".")
			}
		}
		for at, message := range within {
			whole := kind.New()
			if field.IsList() {
				whole.Mutable(field).List().Append(protoreflect.ValueOfMessage(message.ProtoReflect()))
			} else {
				whole.Set(field, protoreflect.ValueOfMessage(message.ProtoReflect()))
			}
			bad[at] = whole.Interface()
		}
	}
	return bad
}

// nameParts gives the parts of a report what they are refused without, whatever their times are.
func nameParts(report proto.Message) {
	switch report := report.(type) {
	case *api.ReportTargetRequest:
		for _, ring := range report.GetState().GetRings() {
			ring.Stream = "a"
		}
	case *api.ReportDrainRequest:
		for _, progress := range report.GetState().GetProgress() {
			progress.Stream = "a"
			if progress.Base != nil {
				progress.Base.Sha256 = make([]byte, 32)
			}
		}
	}
}

// Each time of each report is looked at: one that is added to the API and not to the check is found here. A report
// without is taken.
func TestCheckRequest_EachTimeOfAReport(t *testing.T) {
	for _, report := range []proto.Message{
		&api.ReportTargetRequest{}, &api.ReportDrainRequest{},
		&api.ReportHostRequest{},
	} {
		all := badTimes(report.ProtoReflect().Type(), "")
		if len(all) == 0 {
			t.Errorf("%T has no times", report)
		}
		for field, bad := range all {
			nameParts(bad)
			err := checkRequest(bad)
			if status.Code(err) != codes.InvalidArgument ||
				!strings.Contains(fmt.Sprint(status.Convert(err).Details()...), `"`+field+`"`) {
				t.Errorf("%T with a bad %s: %v, expected to be refused by that name", report, field, err)
			}
		}
	}
	good := &api.RingState{
		Stream: "a", Counters: &api.WriterCounters{},
		ObserveTime: timestamppb.Now(), LagAge: durationpb.New(time.Second),
	}
	state := &api.TargetState{Rings: []*api.RingState{good}}
	if err := checkRequest(&api.ReportTargetRequest{State: state}); err != nil {
		t.Error(err)
	}
}

// One host that tells times out of range takes its list from nobody who asks by HTTP.
func TestReportHost_TimesThatJSONHasNot(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	hosts := api.NewHostServiceClient(one.conn)
	for _, way := range []*api.NetworkPath{
		{Target: "t", RttMin: &durationpb.Duration{Seconds: math.MaxInt64}},
		{Target: "t", MeasureTime: &timestamppb.Timestamp{Nanos: math.MaxInt32}},
	} {
		if _, err := hosts.ReportHost(one.context(), &api.ReportHostRequest{State: &api.HostState{
			Host:  "h",
			Paths: []*api.NetworkPath{way},
		}}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v, expected to be refused", way, err)
		}
	}
	// Each of these is one that there is; moved to our clock it is not.
	for _, measured := range []time.Time{
		time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC),
		time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC),
	} {
		for _, reported := range []time.Time{
			time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC),
			time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC),
		} {
			state := &api.HostState{
				Host: "h", ReportTime: timestamppb.New(reported),
				Paths: []*api.NetworkPath{{
					Target: "t", Count: 1, RttMin: durationpb.New(1),
					MeasureTime: timestamppb.New(measured),
				}},
			}
			if _, err := hosts.ReportHost(one.context(), &api.ReportHostRequest{State: state}); err != nil {
				t.Fatal(err)
			}
			listed, err := one.fabric().ListHosts(one.context(), &api.ListHostsRequest{})
			if err != nil {
				t.Fatal(err)
			}
			at := listed.Hosts[0].Paths[0].MeasureTime
			if at != nil && (!at.IsValid() || at.AsTime().After(time.Now())) {
				t.Errorf("measured %s, reported %s: %v", measured, reported, at)
			}
		}
	}
	answer, err := http.Get("http://" + one.conn.Target() + "/v1/hosts")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusOK {
		t.Errorf("%s: %s", answer.Status, body)
	}
}

package service

import (
	"fmt"
	"strconv"

	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/check"
	"github.com/farlog/farlog/pkg/control/refusal"
)

// reportPartsMax is how many rings one agent may report.
const reportPartsMax = 65536

// checkRequest applies the rules to a request that has no spec in it, or one without defaults; those of streams and
// routes are completed first.
func checkRequest(request any) error {
	if host, ok := request.(*api.ReportHostRequest); ok {
		if err := checkTimes(host, areHostTimesGood(host.State)); err != nil {
			return err
		}
	}
	if message, ok := request.(proto.Message); ok && isOfFabric(message) {
		return checkMessage(message)
	}
	switch request := request.(type) {
	case *api.ReportTargetRequest:
		if err := checkParts("rings", request.GetState().GetRings()); err != nil {
			return err
		}
		return checkTimes(request, areTargetTimesGood(request.State))
	case *api.ReportDrainRequest:
		if err := checkParts("progress", request.GetState().GetProgress()); err != nil {
			return err
		}
		return checkTimes(request, areDrainTimesGood(request.State))
	case *api.ListStreamsRequest, *api.WatchStreamsRequest, *api.ListRoutesRequest, *api.WatchRoutesRequest,
		*api.CheckWritersRequest, *api.WatchWritersRequest, *api.TakeOverStreamRequest, *api.AcquireWriterRequest,
		*api.ReportConsumerRequest, *api.RebindStreamRequest, *api.ReplaceMemberRequest, *api.AcceptLossRequest:
		return checkMessage(request.(proto.Message))
	}
	return nil
}

// checkParts refuses a report that is no agent's: of a message of a few megabytes a million parts could be made, and
// each is kept by the name of its stream.
func checkParts[P interface{ GetStream() string }](field string, parts []P) error {
	if len(parts) > reportPartsMax {
		return refusal.InvalidArgument("", []*api.Problem{{
			Field: "state." + field, Value: strconv.Itoa(len(parts)),
			Rule: fmt.Sprintf("expected at most %d", reportPartsMax),
		}})
	}
	for i, part := range parts {
		if part.GetStream() == "" {
			return refusal.InvalidArgument("", []*api.Problem{{
				Field: fmt.Sprintf("state.%s[%d].stream", field, i), Value: `""`, Rule: "expected a stream's name",
			}})
		}
	}
	return nil
}

func checkMessage(message proto.Message) error {
	problems, err := check.Message(message, "")
	if err != nil || len(problems) == 0 {
		return err
	}
	return refusal.InvalidArgument("", problems)
}

// isOfFabric tells the messages of fabric.proto.
func isOfFabric(message proto.Message) bool {
	return message.ProtoReflect().Descriptor().ParentFile() == api.File_fabric_proto
}

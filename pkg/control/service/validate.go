package service

import (
	"crypto/sha256"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/check"
	"github.com/farlog/farlog/pkg/control/refusal"
)

const (
	// reportPartsMax is how many rings one agent may report.
	reportPartsMax = 65536
	// hostPartsMax is how many devices, or NVMe namespaces, of one host a target may report.
	hostPartsMax = 4096
)

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
		if err := checkTargetParts(request.State); err != nil {
			return err
		}
		return checkTimes(request, areTargetTimesGood(request.State))
	case *api.ReportDrainRequest:
		if err := checkParts("progress", request.GetState().GetProgress()); err != nil {
			return err
		}
		if err := checkBases(request.GetState().GetProgress()); err != nil {
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

// checkTargetParts bounds the parts of a target's report.
func checkTargetParts(state *api.TargetState) error {
	if err := checkParts("rings", state.GetRings()); err != nil {
		return err
	}
	if err := checkCount("media", len(state.GetMedia()), hostPartsMax); err != nil {
		return err
	}
	return checkCount("namespaces", len(state.GetNamespaces()), hostPartsMax)
}

// checkParts refuses a report that is no agent's: of a message of a few megabytes a million parts could be made, and
// each is kept by the name of its stream.
func checkParts[P interface{ GetStream() string }](field string, parts []P) error {
	if err := checkCount(field, len(parts), reportPartsMax); err != nil {
		return err
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

func checkCount(field string, count, most int) error {
	if count <= most {
		return nil
	}
	return refusal.InvalidArgument("", []*api.Problem{{
		Field: "state." + field, Value: strconv.Itoa(count), Rule: fmt.Sprintf("expected at most %d", most),
	}})
}

// checkBases refuses a base without a SHA-256: it is what one base is told from another by.
func checkBases(parts []*api.DrainProgress) error {
	for i, part := range parts {
		if base := part.GetBase(); base != nil && len(base.Sha256) != sha256.Size {
			return refusal.InvalidArgument("", []*api.Problem{{
				Field: fmt.Sprintf(
					"state.progress[%d].base.sha256",
					i,
				), Value: fmt.Sprintf("%d bytes", len(base.Sha256)),
				Rule: fmt.Sprintf("expected the %d bytes of a SHA-256", sha256.Size),
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

package control

import (
	"context"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/access"
)

// CheckWriters implements farlog.v1.ControlService. A host agent asks it for all writers of its host together, instead of ExtendWriter for each of them: with ten thousand writers that were two
// thousand calls a second.
func (s *Server) CheckWriters(ctx context.Context, request *api.CheckWritersRequest) (*api.CheckWritersResponse, error) {
	now, err := s.fresh()
	if err != nil {
		return nil, err
	}
	response := new(api.CheckWritersResponse)
	for i, writer := range request.Writers {
		if !now.isToldAll(callerOf(ctx), request.Host, writer) {
			response.Changed = append(response.Changed, uint32(i))
		}
	}
	return response, nil
}

// isToldAll tells whether ExtendWriter would say of a writer what it has said, and has nothing to note of it.
func (v *view) isToldAll(caller access.Caller, host string, writer *api.RunningWriter) bool {
	if writer == nil || v.streams[writer.Stream] == nil || v.isStaying(writer.Stream) != nil || caller.May(api.ControlService_ExtendWriter_FullMethodName, writer.Stream) != nil {
		return false
	}
	asked := &api.ExtendWriterRequest{Stream: writer.Stream, Epoch: writer.Epoch, RingUuids: writer.RingUuids, Holder: &api.Holder{Host: host, Pid: writer.Pid}}
	if v.isGrantOf(asked, string(caller.ID)) != nil || writer.Running != nil && !isSameTerms(writer.Running, runningTerms(v.grants[writer.Stream])) {
		return false
	}
	return writer.Declared != nil && isSameTerms(writer.Declared, termsOf(v.streams[writer.Stream].Spec)) && len(v.ringsChanged(asked)) == 0
}

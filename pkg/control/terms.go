package control

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// termsOf is how a stream's writer shall acknowledge.
func termsOf(spec *api.StreamSpec) *api.WriterTerms {
	return &api.WriterTerms{Level: spec.Level, Policy: spec.Policy, Deadline: spec.Deadline}
}

// runningTerms is how a grant's holder acknowledges, as far as he has said.
func runningTerms(grant *api.Grant) *api.WriterTerms {
	if grant.Running != nil {
		return grant.Running
	}
	return &api.WriterTerms{Level: grant.Level, Policy: grant.Policy, Deadline: grant.Deadline}
}

// noteRunning keeps what a writer says that it runs with, so that whoever looks at the stream sees whether it has taken a change in. Nothing depends on it: where it cannot be kept, the writer
// says it again.
func (s *Server) noteRunning(ctx context.Context, now *view, request *api.ExtendWriterRequest) {
	grant := now.grants[request.Stream]
	if request.Running == nil || isSameTerms(request.Running, runningTerms(grant)) {
		return
	}
	noted := proto.Clone(grant).(*api.Grant)
	noted.Running = request.Running
	value, err := encode(noted)
	if err == nil {
		_, err = s.specs.client.Txn(ctx).If(unchangedSince(now, keyGrants+request.Stream)).Then(clientv3.OpPut(keyGrants+request.Stream, value)).Commit()
	}
	if err != nil {
		s.config.Logger.Warn("how a writer runs could not be kept", "stream", request.Stream, "error", err)
	}
}

func isSameTerms(one, other *api.WriterTerms) bool {
	return one.Level == other.Level && one.Policy == other.Policy && one.Deadline.AsDuration() == other.Deadline.AsDuration()
}

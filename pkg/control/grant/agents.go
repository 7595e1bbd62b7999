package grant

import (
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/state"
)

// RingsOf is what a target is told.
func RingsOf(v *state.View, target *api.Agent) *api.WatchRingsResponse {
	declared := v.TargetSpecs[target.Host]
	response := &api.WatchRingsResponse{
		Namespaces: declared.GetNamespaces(), Ports: declared.GetPorts(), NamespacesDeclared: declared != nil,
	}
	for _, name := range v.RingsAt.ByAgent[target.Id] {
		response.Rings = append(response.Rings, ringSpec(v, name))
	}
	return response
}

// ringSpec is what a target is told of a ring.
func ringSpec(v *state.View, name string) *api.RingSpec {
	spec := proto.Clone(v.Rings[name]).(*api.RingSpec)
	spec.Admission = admissionForTarget(v, name)
	if deletion := v.Deletions[spec.Stream.Spec.Name]; reconcile.IsBeingDeleted(deletion) {
		spec.Deletion = deletion.Stage
	}
	return spec
}

// AssignmentsOf is what a drain is told.
func AssignmentsOf(v *state.View, drain *api.Agent) *api.WatchAssignmentsResponse {
	response := new(api.WatchAssignmentsResponse)
	for _, name := range v.GivenTo.ByAgent[drain.Id] {
		// The id survives a restart with another --store-dir; the right to the stream does not.
		if given := v.Assignments[name]; reconcile.WritesStore(drain, given) && reconcile.MayDrain(drain, name) {
			told := proto.Clone(given).(*api.Assignment)
			told.Token = drainToken(v, given, 0)
			for i, member := range told.Members {
				member.Token = drainToken(v, given, i)
			}
			response.Assignments = append(response.Assignments, told)
		}
	}
	return response
}

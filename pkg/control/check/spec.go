package check

import (
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

// Defaults of a stream. Limits are rules in farlog.proto; docs/reference/format.md §2 and §3 say where they come from.
const (
	RingHeaderBytes     = 0x3000
	RingSizeDefault     = 64 << 20
	recordLenMaxDefault = 1 << 20
	ringRecordsLeast    = 4 // a ring holds at least so many of its largest records
	alignDefault        = 64
)

// StreamWithDefaults leaves alone what was given, right or wrong.
func StreamWithDefaults(asked *api.StreamSpec) *api.StreamSpec {
	spec := proto.Clone(asked).(*api.StreamSpec)
	setDefault(&spec.RingSizeBytes, RingSizeDefault)
	setDefault(&spec.Align, alignDefault)
	setDefault(&spec.Level, api.Level_LEVEL_PERSISTENT)
	setDefault(&spec.Policy, api.Policy_POLICY_BLOCK)
	setDefault(&spec.Members, 1)
	// more than half: then any two groups that acknowledge have one in common
	setDefault(&spec.Needed, spec.Members/2+1)
	setDefault(&spec.FailureDomain, reconcile.DomainHost)
	if spec.RingSizeBytes > RingHeaderBytes {
		capacity := spec.RingSizeBytes - RingHeaderBytes
		setDefault(&spec.RecordLenMax, uint32(min(capacity/ringRecordsLeast, recordLenMaxDefault))&^(spec.Align-1))
	}
	return spec
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

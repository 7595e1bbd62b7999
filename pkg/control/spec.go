package control

import (
	"fmt"
	"math/bits"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// Limits of a stream; docs/format.md §2 and §3 say where they come from.
const (
	nameLenMax          = 63 // the superblock has 64 bytes, zero terminated
	ringHeaderBytes     = 0x3000
	ringSizeUnit        = 4096
	ringSizeDefault     = 64 << 20
	ringSizeMax         = 1 << 44
	recordLenMaxDefault = 1 << 20
	recordLenMaxLeast   = 128
	ringRecordsLeast    = 4 // a ring holds at least so many of its largest records
	alignDefault        = 64
	alignMax            = 4096
	deadlineMax         = time.Hour
)

// completeSpec fills in the defaults and checks every field. It is pure: the same request always means the same
// stream, which is what makes creation idempotent.
func completeSpec(asked *api.StreamSpec) (*api.StreamSpec, error) {
	if asked == nil {
		return nil, fmt.Errorf("stream: expected a spec with a name")
	}
	spec := proto.Clone(asked).(*api.StreamSpec)
	if err := checkName(spec.Name); err != nil {
		return nil, err
	}
	setDefault(&spec.RingSizeBytes, ringSizeDefault)
	setDefault(&spec.Align, alignDefault)
	setDefault(&spec.Level, api.Level_LEVEL_PERSISTENT)
	setDefault(&spec.Policy, api.Policy_POLICY_BLOCK)
	if err := checkRing(spec); err != nil {
		return nil, err
	}
	capacity := spec.RingSizeBytes - ringHeaderBytes
	largest := uint32(min(capacity/ringRecordsLeast, recordLenMaxDefault)) &^ (spec.Align - 1)
	setDefault(&spec.RecordLenMax, largest)
	if err := checkRecordLen(spec, capacity); err != nil {
		return nil, err
	}
	return spec, checkBehaviour(spec)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func checkName(name string) error {
	const want = "expected 1 to 63 letters, digits, '.', '_', '-' in parts separated by '/', such as desk7/orders"
	if name == "" || len(name) > nameLenMax {
		return fmt.Errorf("stream name %q: %s", name, want)
	}
	for _, part := range strings.Split(name, "/") {
		if part == "" || part[0] == '.' || part[0] == '-' || strings.IndexFunc(part, isForeign) >= 0 {
			return fmt.Errorf("stream name %q: %s", name, want)
		}
	}
	return nil
}

func isForeign(r rune) bool {
	return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("._-", r))
}

func checkRing(spec *api.StreamSpec) error {
	size := spec.RingSizeBytes
	if size%ringSizeUnit != 0 || size > ringSizeMax || size < ringHeaderBytes+ringSizeUnit {
		return fmt.Errorf("stream %q: ring size %d: expected a multiple of %d bytes from %d to 16TiB",
			spec.Name, size, ringSizeUnit, ringHeaderBytes+ringSizeUnit)
	}
	if align := spec.Align; bits.OnesCount32(align) != 1 || align < alignDefault || align > alignMax {
		return fmt.Errorf("stream %q: align %d: expected a power of two from %d to %d", spec.Name, align, alignDefault, alignMax)
	}
	return nil
}

func checkRecordLen(spec *api.StreamSpec, capacity uint64) error {
	length := spec.RecordLenMax
	if length < recordLenMaxLeast || length%spec.Align != 0 || uint64(length)*ringRecordsLeast > capacity {
		return fmt.Errorf("stream %q: record_len_max %d: expected a multiple of align %d from %d to a quarter of the ring's %d bytes",
			spec.Name, length, spec.Align, max(recordLenMaxLeast, spec.Align), capacity)
	}
	return nil
}

func checkBehaviour(spec *api.StreamSpec) error {
	if spec.Level < api.Level_LEVEL_POSTED || spec.Level > api.Level_LEVEL_PERSISTENT {
		return fmt.Errorf("stream %q: level %s: expected posted, visible or persistent", spec.Name, levelName(spec.Level))
	}
	if spec.Policy != api.Policy_POLICY_BLOCK && spec.Policy != api.Policy_POLICY_REJECT {
		return fmt.Errorf("stream %q: policy %d: expected block or reject", spec.Name, spec.Policy)
	}
	if spec.Deadline == nil {
		return nil
	}
	if deadline := spec.Deadline.AsDuration(); !spec.Deadline.IsValid() || deadline <= 0 || deadline > deadlineMax {
		return fmt.Errorf("stream %q: deadline %s: expected more than 0 and at most %s", spec.Name, deadline, deadlineMax)
	}
	return nil
}

func levelName(level api.Level) string {
	return strings.ToLower(strings.TrimPrefix(level.String(), "LEVEL_"))
}

func policyName(policy api.Policy) string {
	return strings.ToLower(strings.TrimPrefix(policy.String(), "POLICY_"))
}

// specDifference names the first field in which two complete specs differ; "" when they are the same.
func specDifference(have, asked *api.StreamSpec) string {
	for _, field := range []struct{ name, have, asked string }{
		{"ring size", fmt.Sprint(have.RingSizeBytes), fmt.Sprint(asked.RingSizeBytes)},
		{"record_len_max", fmt.Sprint(have.RecordLenMax), fmt.Sprint(asked.RecordLenMax)},
		{"align", fmt.Sprint(have.Align), fmt.Sprint(asked.Align)},
		{"level", levelName(have.Level), levelName(asked.Level)},
		{"policy", policyName(have.Policy), policyName(asked.Policy)},
		{"deadline", have.Deadline.AsDuration().String(), asked.Deadline.AsDuration().String()},
	} {
		if field.have != field.asked {
			return fmt.Sprintf("%s is %s, asked for %s", field.name, field.have, field.asked)
		}
	}
	return ""
}

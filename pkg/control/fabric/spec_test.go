package fabric

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/check"
)

func TestCompleteSpec_BadFieldIsNamedWithItsValue(t *testing.T) {
	cases := []struct {
		name string
		spec *api.StreamSpec
		want string
	}{
		{"no spec", nil, "expected a spec"},
		{"empty name", &api.StreamSpec{}, `stream name ""`},
		{"parent directory", &api.StreamSpec{Name: "../x"}, `stream name "../x"`},
		{"empty part", &api.StreamSpec{Name: "a//b"}, `stream name "a//b"`},
		{"space", &api.StreamSpec{Name: "a b"}, `stream name "a b"`},
		{"long name", &api.StreamSpec{Name: strings.Repeat("n", 64)}, "1 to 63"},
		{
			"size not a multiple", &api.StreamSpec{Name: "a", RingSizeBytes: 100001},
			"ring size 100001: expected a multiple of 4096",
		},
		{"size too small", &api.StreamSpec{Name: "a", RingSizeBytes: 4096}, "ring size 4096"},
		{"align", &api.StreamSpec{Name: "a", Align: 96}, "align 96: expected a power of two"},
		{
			"record too long for ring", &api.StreamSpec{Name: "a", RingSizeBytes: 1 << 20, RecordLenMax: 1 << 19},
			"record_len_max 524288",
		},
		{"record not a multiple", &api.StreamSpec{Name: "a", RecordLenMax: 1000}, "record_len_max 1000"},
		{
			"level", &api.StreamSpec{Name: "a", Level: api.Level_LEVEL_ARCHIVED},
			"level archived: expected posted, visible or persistent",
		},
		{"policy", &api.StreamSpec{Name: "a", Policy: 9}, "policy 9: expected block or reject"},
		{
			"encryption", &api.StreamSpec{Name: "a", Encryption: "rot13"},
			`encryption "rot13": expected aes-256-gcm, or none`,
		},
		{"deadline", &api.StreamSpec{Name: "a", Deadline: durationpb.New(-time.Second)}, "deadline -1s"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := CompleteStream(tc.spec); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestCompleteSpec_CompletingTwiceChangesNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		asked := &api.StreamSpec{
			Name:          "a/b",
			RingSizeBytes: rapid.Uint64Range(0, 1<<20).Draw(rt, "pages") * 4096,
			Align:         rapid.SampledFrom([]uint32{0, 64, 512, 4096}).Draw(rt, "align"),
			Level:         api.Level(rapid.IntRange(0, 3).Draw(rt, "level")),
		}
		spec, err := CompleteStream(asked)
		if err != nil {
			return
		}
		again, err := CompleteStream(spec)
		if err != nil || !proto.Equal(spec, again) {
			rt.Fatalf("%v became %v, %v", spec, again, err)
		}
		if capacity := spec.RingSizeBytes - check.RingHeaderBytes; uint64(spec.RecordLenMax)*4 > capacity ||
			spec.RecordLenMax%spec.Align != 0 {
			rt.Fatalf("default record_len_max %d does not fit: %v", spec.RecordLenMax, spec)
		}
	})
}

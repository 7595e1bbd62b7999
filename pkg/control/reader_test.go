package control

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// Each reader has a number of its own, those who did not come are forgotten, and so many at a time are not let in that a target would be full of them. Writers and drains stay.
func TestAdmitReader(t *testing.T) {
	now, token := time.Unix(1000, 0), make([]byte, tokenLen)
	admission := &api.Admission{EpochMin: 3, Grants: []*api.FarGrant{{Role: api.GrantRole_GRANT_ROLE_WRITER, Epoch: 3}, {Role: api.GrantRole_GRANT_ROLE_DRAIN, Generation: 9}}}
	for i := range readersMax + 1 {
		if generation, err := admitReader(admission, token, nil, now, grantUnusedMax); err != nil || generation != uint64(i+1) {
			t.Fatalf("reader %d: number %d, %v", i, generation, err)
		}
	}
	_, err := admitReader(admission, token, nil, now, grantUnusedMax)
	if reason, _ := checkRefusal(t, err); status.Code(err) != codes.ResourceExhausted || reason != reasonReaders {
		t.Errorf("one too many: %v", err)
	}
	generation, err := admitReader(admission, token, nil, now.Add(grantUnusedMax+time.Second), grantUnusedMax)
	if err != nil || generation != readersMax+2 {
		t.Errorf("later: number %d, %v", generation, err)
	}
	if len(admission.Grants) != 4 || !isWriter(admission.Grants[0]) || !isDrain(admission.Grants[1]) || admission.EpochMin != 3 {
		t.Errorf("left: %v", admission)
	}
}

package grant

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/refusal"
	"github.com/farlog/farlog/pkg/control/refusal/refusaltest"
)

// Each reader has a number of its own, those who did not come are forgotten, and so many at a time are not let in that
// a target would be full of them. Writers and drains stay.
func TestAdmitReader(t *testing.T) {
	now := time.Unix(1000, 0)
	admission := &api.Admission{EpochMin: 3, Grants: []*api.RemoteGrant{
		{Role: api.GrantRole_GRANT_ROLE_WRITER, Epoch: 3},
		{Role: api.GrantRole_GRANT_ROLE_DRAIN, Generation: 9},
	}}
	coming := &Reader{Tokens: [][]byte{make([]byte, TokenLen)}, from: [][]string{nil}, Life: UnusedMax}
	for i := range readersMax {
		if generation, err := coming.admit(admission, 0, now); err != nil || generation != uint64(i+1) {
			t.Fatalf("reader %d: number %d, %v", i, generation, err)
		}
	}
	_, err := coming.admit(admission, 0, now)
	if reason, _ := refusaltest.Check(t, err); status.Code(err) != codes.ResourceExhausted ||
		reason != refusal.ReasonReaders {
		t.Errorf("one too many: %v", err)
	}
	generation, err := coming.admit(admission, 0, now.Add(UnusedMax+time.Second))
	if err != nil || generation != readersMax+1 {
		t.Errorf("later: number %d, %v", generation, err)
	}
	if len(admission.Grants) != 3 || !IsWriter(admission.Grants[0]) || !IsDrain(admission.Grants[1]) ||
		admission.EpochMin != 3 {
		t.Errorf("left: %v", admission)
	}
}

// A reader that renews its grant takes the place of its own, and of nobody else's: also when there is no place for
// another one.
func TestAdmitReader_Renewed(t *testing.T) {
	now := time.Unix(1000, 0)
	token := func(i int) []byte { return binary.BigEndian.AppendUint64(make([]byte, 8), uint64(i)) }
	coming := func(i int) *Reader {
		return &Reader{Tokens: [][]byte{token(i)}, from: [][]string{nil}, Life: UnusedMax}
	}
	admission := new(api.Admission)
	for i := range readersMax {
		if _, err := coming(i).admit(admission, 0, now); err != nil {
			t.Fatal(err)
		}
	}
	again := coming(readersMax)
	sum := sha256.Sum256(token(7))
	again.Renewed = [][]byte{sum[:]}
	generation, err := again.admit(admission, 0, now)
	if err != nil || generation != readersMax+1 || len(admission.Grants) != readersMax {
		t.Fatalf("renewed: number %d, %d grants, %v", generation, len(admission.Grants), err)
	}
	if _, err := again.admit(admission, 0, now); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("the same one once more, which is forgotten already: %v", err)
	}
	for _, grant := range admission.Grants {
		if bytes.Equal(grant.Token, token(7)) || !grant.ExpireTime.AsTime().Equal(now.Add(UnusedMax)) {
			t.Errorf("left: %v", grant)
		}
	}
}

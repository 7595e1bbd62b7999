package target

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/replace"
)

// wantedName is the file with the control plane's last word. A target that is started again without a control plane
// serves by it: its grants let the same writers and drains in, and a fence is only ever raised. It holds tokens.
const wantedName = "wanted.json"

// fencedMax is how many fenced writers of a ring are kept, so that they are told so when they come back, also after a
// restart of this target.
const fencedMax = 8

// carryFenced adds to what is wanted the writers' grants of before that are no longer wanted and lie below the fence:
// the newest of them. The control plane tells only who may come in. Nobody is let in by what is added, because the
// fence is raised before any grant is given.
func carryFenced(before, wanted []*api.RingSpec) {
	grants := make(map[string][]*api.RemoteGrant, len(before))
	for _, spec := range before {
		grants[spec.Stream.Spec.Name] = spec.GetAdmission().GetGrants()
	}
	for _, spec := range wanted {
		if spec.Subsystem != "" {
			continue // those of namespaces are carried by the ledger
		}
		admission := spec.GetAdmission()
		fenced := slices.DeleteFunc(slices.Clone(grants[spec.Stream.Spec.Name]), func(grant *api.RemoteGrant) bool {
			isWanted := func(other *api.RemoteGrant) bool { return bytes.Equal(other.Token, grant.Token) }
			return grant.Role != api.GrantRole_GRANT_ROLE_WRITER || grant.Epoch >= admission.GetEpochMin() ||
				slices.ContainsFunc(admission.GetGrants(), isWanted)
		})
		slices.SortStableFunc(fenced, func(a, b *api.RemoteGrant) int { return cmp.Compare(b.Epoch, a.Epoch) })
		fenced = fenced[:min(len(fenced), fencedMax)]
		if len(fenced) > 0 {
			admission.Grants = append(admission.Grants, fenced...)
		}
	}
}

// restore makes wanted what was remembered. Nobody is let in by a list that cannot be read.
func (t *Target) restore() {
	t.recallGrants()
	recalled, err := t.recall(wantedName)
	if err != nil {
		t.config.Logger.Warn("the rings wanted of this target are not known, waiting for the control plane", "error",
			err)
	}
	if recalled == nil {
		return
	}
	t.followGrants(recalled)
	t.wanted = recalled.GetRings()
	t.declareNamespaces(recalled)
}

func (t *Target) remember(name string, message *api.WatchRingsResponse) error {
	raw, err := protojson.Marshal(message)
	if err != nil {
		return err
	}
	return replace.File(filepath.Join(t.config.Dir, name), raw, 0o600)
}

// recall gives nothing where there is no file.
func (t *Target) recall(name string) (*api.WatchRingsResponse, error) {
	path := filepath.Join(t.config.Dir, name)
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	message := new(api.WatchRingsResponse)
	if err := protojson.Unmarshal(raw, message); err != nil {
		return nil, fmt.Errorf("file %q: %w", path, err)
	}
	if slices.ContainsFunc(message.Rings, func(spec *api.RingSpec) bool { return spec.GetStream().GetSpec() == nil }) {
		return nil, fmt.Errorf("file %q: a ring in it has no stream", path)
	}
	return message, nil
}

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
		admission := spec.GetAdmission()
		fenced := slices.DeleteFunc(slices.Clone(grants[spec.Stream.Spec.Name]), func(grant *api.RemoteGrant) bool {
			isWanted := func(other *api.RemoteGrant) bool { return bytes.Equal(other.Token, grant.Token) }
			return grant.Role != api.GrantRole_GRANT_ROLE_WRITER || grant.Epoch >= admission.GetEpochMin() ||
				slices.ContainsFunc(admission.GetGrants(), isWanted)
		})
		slices.SortStableFunc(fenced, func(a, b *api.RemoteGrant) int { return cmp.Compare(b.Epoch, a.Epoch) })
		if spec.Subsystem != "" {
			fenced = newestOfHosts(fenced) // all of them: what fences a host is that somebody knows of it
		} else {
			fenced = fenced[:min(len(fenced), fencedMax)]
		}
		if len(fenced) > 0 {
			admission.Grants = append(admission.Grants, fenced...)
		}
	}
}

// newestOfHosts leaves the first grant of each host.
func newestOfHosts(grants []*api.RemoteGrant) (newest []*api.RemoteGrant) {
	for _, one := range grants {
		if !slices.ContainsFunc(newest, func(other *api.RemoteGrant) bool { return other.HostNqn == one.HostNqn }) {
			newest = append(newest, one)
		}
	}
	return newest
}

// restore makes wanted what was remembered. Of a list that cannot be read it is not known who may write.
func (t *Target) restore() {
	recalled, err := t.recall()
	if err != nil {
		t.forgotten = map[string]bool{}
		t.config.Logger.Warn("the rings wanted of this target are not known, waiting for the control plane; in a "+
			"namespace, each host that may connect it counts as a writer that was granted a ring, and is evicted at a "+
			"takeover", "error", err)
		return
	}
	t.wanted = recalled.GetRings()
	t.declareNamespaces(recalled)
}

// addForgotten makes up for a list that could not be read: any host that a namespace declares may have been granted the
// epochs below the fence of a ring there, and be opening it. The control plane sends the newest grant alone. An error:
// a stream's hosts are not known yet, and the list on disk is to stay as it is, unreadable.
func (t *Target) addForgotten(message *api.WatchRingsResponse) error {
	if t.forgotten == nil {
		return nil
	}
	hosts := make(map[string][]*api.NamespaceHost, len(message.Namespaces))
	isDeclared := make(map[string]bool, len(message.Namespaces))
	for _, one := range message.Namespaces {
		hosts[one.Subsystem], isDeclared[one.Subsystem] = one.Hosts, true
	}
	var err error
	for _, spec := range message.Rings {
		name := spec.Stream.Spec.Name
		if spec.Subsystem == "" || t.forgotten[name] {
			continue
		}
		if !isDeclared[spec.Subsystem] {
			err = errors.Join(err, fmt.Errorf("stream %s: who may write it is not known: %w", name,
				errUndeclared(spec.Subsystem)))
			continue
		}
		t.forgotten[name] = true
		if spec.GetAdmission().GetEpochMin() > 1 {
			addFormerGrants(spec, hosts[spec.Subsystem])
		}
	}
	return err
}

// addFormerGrants adds the last epoch below the fence, for each host but the one that is let in.
func addFormerGrants(spec *api.RingSpec, hosts []*api.NamespaceHost) {
	newest := newestGrant(spec).GetHostNqn()
	for _, host := range hosts {
		if host.Nqn != newest {
			spec.Admission.Grants = append(spec.Admission.Grants, &api.RemoteGrant{
				Role: api.GrantRole_GRANT_ROLE_WRITER, Epoch: spec.Admission.EpochMin - 1, HostNqn: host.Nqn,
			})
		}
	}
}

func (t *Target) remember(message *api.WatchRingsResponse) error {
	raw, err := protojson.Marshal(message)
	if err != nil {
		return err
	}
	return replace.File(filepath.Join(t.config.Dir, wantedName), raw, 0o600)
}

// recall gives nothing where there is no file.
func (t *Target) recall() (*api.WatchRingsResponse, error) {
	path := filepath.Join(t.config.Dir, wantedName)
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
	return message, nil
}

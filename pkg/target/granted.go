package target

import (
	"cmp"
	"maps"
	"slices"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// grantedName is the file with the ledger: which hosts were granted the rings in namespaces, and up to which epoch.
// Without a listener nothing else shows that a host may be opening a ring. A host is left out when it is evicted or the
// ring was opened with a later epoch (lastWriters), and a ring when the control plane orders its removal. That the
// control plane does not mention a ring, a grant or a fence says nothing: it may have lost its state, or be restored
// from a backup. The ledger has no tokens.
const grantedName = "granted.json"

// unknownNQN stands for the hosts that may have been granted a ring of which no ledger is left, and that the namespace
// declares no more. An eviction of any host ends the connections of all, and only declared hosts come again.
const unknownNQN = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-000000000000"

// followGrants enters the grants of a message into the ledger, and adds to the message what it lacks of the ledger.
func (t *Target) followGrants(message *api.WatchRingsResponse) {
	declared := make(map[string]*api.Namespace, len(message.Namespaces))
	for _, one := range message.Namespaces {
		declared[one.Subsystem] = one
	}
	mentioned := make(map[ledgerKey]bool)
	for _, spec := range message.Rings {
		if spec.Subsystem == "" {
			continue
		}
		key := keyOf(spec)
		mentioned[key] = true
		before, namespace := t.granted[key], declared[spec.Subsystem]
		switch {
		case before != nil:
			carryGrants(before, spec)
		case namespace == nil: // nobody is let in where nothing is exported, and who may have been is not known
			continue
		case spec.GetAdmission().GetEpochMin() > 1 && !isToBeNew(spec):
			t.config.Logger.Warn("it is not known which hosts were granted a ring before: each host that may connect "+
				"its namespace counts as a writer, and is evicted at a takeover", "stream", spec.Stream.Spec.Name)
			addFormerGrants(spec, namespace.Hosts)
		}
		t.granted[key] = ledgerEntry(spec)
	}
	t.forgetRemoved(mentioned)
}

// forgetRemoved leaves out the rings whose removal the control plane has ordered, when it mentions them no more. Before
// that order all who may write a ring are out: isClosed.
func (t *Target) forgetRemoved(mentioned map[ledgerKey]bool) {
	maps.DeleteFunc(t.granted, func(key ledgerKey, one *api.RingSpec) bool {
		return !mentioned[key] && one.Deletion == api.DeletionStage_DELETION_STAGE_REMOVING
	})
	for _, spec := range t.wanted { // nobody else stores to wanted
		one := t.granted[keyOf(spec)]
		if one != nil && !mentioned[keyOf(spec)] && len(one.GetAdmission().GetGrants()) > 0 {
			t.config.Logger.Warn("the control plane mentions a ring no more and has not ordered its removal: who was "+
				"granted the ring still counts as its writer", "stream", spec.Stream.Spec.Name)
		}
	}
}

// ledgerKey is one ring of a stream: a stream that is made again under the same name has another id and salt.
type ledgerKey struct {
	subsystem string
	id        uint32
	salt      uint64
}

func keyOf(spec *api.RingSpec) ledgerKey {
	return ledgerKey{subsystem: spec.Subsystem, id: spec.Stream.StreamId, salt: spec.Stream.Salt}
}

// ledgerEntry is what of a ring is kept.
func ledgerEntry(spec *api.RingSpec) *api.RingSpec {
	entry := &api.RingSpec{
		Stream: &api.Stream{
			Spec:     &api.StreamSpec{Name: spec.Stream.Spec.Name},
			StreamId: spec.Stream.StreamId, Salt: spec.Stream.Salt,
		},
		Subsystem: spec.Subsystem, Deletion: spec.Deletion,
		Admission: &api.Admission{EpochMin: spec.GetAdmission().GetEpochMin()},
	}
	for _, grant := range spec.GetAdmission().GetGrants() {
		if grant.HostNqn != "" {
			entry.Admission.Grants = append(entry.Admission.Grants,
				&api.RemoteGrant{Role: grant.Role, Epoch: grant.Epoch, HostNqn: grant.HostNqn})
		}
	}
	return entry
}

// carryGrants adds to what is wanted of a ring the fence of before, which never goes down, and the newest grant of each
// host behind those that are wanted.
func carryGrants(before, wanted *api.RingSpec) {
	if wanted.Admission == nil {
		wanted.Admission = &api.Admission{}
	}
	admission := wanted.Admission
	admission.EpochMin = max(admission.EpochMin, before.GetAdmission().GetEpochMin())
	former := slices.DeleteFunc(slices.Clone(before.GetAdmission().GetGrants()), func(grant *api.RemoteGrant) bool {
		return slices.ContainsFunc(admission.Grants, func(other *api.RemoteGrant) bool {
			return other.HostNqn == grant.HostNqn && other.Epoch == grant.Epoch
		})
	})
	slices.SortStableFunc(former, func(a, b *api.RemoteGrant) int { return cmp.Compare(b.Epoch, a.Epoch) })
	admission.Grants = append(admission.Grants, newestOfHosts(former)...)
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

// addFormerGrants makes up for a ledger without an entry: any host may have been granted the epochs below the fence,
// and be opening the ring. The last of them is added for each host but the one that is let in.
func addFormerGrants(spec *api.RingSpec, hosts []*api.NamespaceHost) {
	newest := newestGrant(spec).GetHostNqn()
	for _, nqn := range append(nqnsOf(hosts), unknownNQN) {
		if nqn != newest {
			spec.Admission.Grants = append(spec.Admission.Grants, &api.RemoteGrant{
				Role: api.GrantRole_GRANT_ROLE_WRITER, Epoch: spec.Admission.EpochMin - 1, HostNqn: nqn,
			})
		}
	}
}

func nqnsOf(hosts []*api.NamespaceHost) (nqns []string) {
	for _, host := range hosts {
		nqns = append(nqns, host.Nqn)
	}
	return nqns
}

// rememberGrants is called before a message is acted on: who learns of a grant must find it here also after a restart.
func (t *Target) rememberGrants() error {
	if len(t.granted) == 0 && !t.hasLedger {
		return nil
	}
	ledger := &api.WatchRingsResponse{}
	for _, one := range t.granted {
		ledger.Rings = append(ledger.Rings, one)
	}
	slices.SortFunc(ledger.Rings, func(a, b *api.RingSpec) int {
		return cmp.Or(cmp.Compare(a.Subsystem, b.Subsystem), cmp.Compare(a.Stream.StreamId, b.Stream.StreamId))
	})
	if err := t.remember(grantedName, ledger); err != nil {
		return err
	}
	t.hasLedger = true
	return nil
}

// recallGrants reads the ledger. One that cannot be read, or is not there, has no entry: followGrants makes up for it.
func (t *Target) recallGrants() {
	ledger, err := t.recall(grantedName)
	if err != nil {
		t.config.Logger.Warn("it cannot be read which hosts were granted rings in namespaces", "error", err)
	}
	t.hasLedger = err != nil || ledger != nil
	for _, one := range ledger.GetRings() {
		t.granted[keyOf(one)] = one
	}
}

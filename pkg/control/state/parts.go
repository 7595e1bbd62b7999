package state

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
)

// A report of an agent has a part for each ring or stream, and there may be tens of thousands: more than etcd takes as
// one value. So each part lies under a key of its own, and what is left of the report, its head, under the agent's. A
// view has them put together. A head that has parts in it was written by an earlier control plane, whole: then it is
// the report, until one of ours has taken its place.

// part is one of a report's, as etcd has it.
type part[P proto.Message] struct {
	name  string
	value P
}

// partsOf is what agents of a kind report, of a view: S is a report, P a part of it.
type partsOf[P proto.Message] struct {
	by      map[string][]part[P] // agent, in the order of names
	isOwned map[string]bool      // agents of which nothing is shared with the view before; nil: all of them
	isWhole map[string]bool      // agents whose head is a whole report
}

// part gives the one of a key's name, agent/part; the zero value: there is none.
func (p *partsOf[P]) part(name string) (value P) {
	id, named := cutPart(name)
	if at, isThere := p.find(id, named); isThere {
		value = p.by[id][at].value
	}
	return value
}

func (p *partsOf[P]) find(id, named string) (at int, isThere bool) {
	return slices.BinarySearchFunc(p.by[id], named, func(one part[P], name string,
	) int {
		return strings.Compare(one.name, name)
	})
}

// AgentKind is how the reports of a kind of agents are taken apart and put together.
type AgentKind[S, P proto.Message] struct {
	Heads, parts string // prefixes of keys
	field        protoreflect.Name
	Wholes       func(*View) *map[string]S
	of           func(*View) *partsOf[P]
	get          func(S) []P
	set          func(S, []P)
	stream       func(P) string
	isSameHead   func(a, b S) bool
	isSame       func(a, b P) bool // nothing but figures differs
	isMoved      func(a, b P) bool // figures differ that are worth a write
}

// TargetKind is how the reports of targets are kept: a head and a part for each ring.
var TargetKind = AgentKind[*api.TargetState, *api.RingState]{
	Heads: etcd.KeyTargets, parts: etcd.KeyTargetRings, field: "rings",
	Wholes: func(v *View) *map[string]*api.TargetState { return &v.Targets },
	of:     func(v *View) *partsOf[*api.RingState] { return &v.targetRings },
	get:    (*api.TargetState).GetRings, set: func(s *api.TargetState, rings []*api.RingState) { s.Rings = rings },
	stream: (*api.RingState).GetStream, isSame: api.IsSameRing, isMoved: isRingMoved,
	isSameHead: func(a, b *api.TargetState) bool {
		return proto.Equal(a.GetAgent(), b.GetAgent()) && api.IsSameMedia(a.GetMedia(), b.GetMedia()) &&
			api.AreSameNamespaces(a.GetNamespaces(), b.GetNamespaces())
	},
}

// DrainKind is how the reports of drains are kept: a head and a part for each stream.
var DrainKind = AgentKind[*api.DrainState, *api.DrainProgress]{
	Heads: etcd.KeyDrains, parts: etcd.KeyDrainStreams, field: "progress",
	Wholes: func(v *View) *map[string]*api.DrainState { return &v.Drains },
	of:     func(v *View) *partsOf[*api.DrainProgress] { return &v.drainStreams },
	get:    (*api.DrainState).GetProgress, set: func(s *api.DrainState, list []*api.DrainProgress,
	) {
		s.Progress = list
	},
	stream: (*api.DrainProgress).GetStream, isSame: api.IsSameProgress, isMoved: isProgressMoved,
	isSameHead: func(a, b *api.DrainState) bool {
		return proto.Equal(a.GetAgent(), b.GetAgent()) && a.GetStoreDir() == b.GetStoreDir()
	},
}

// with is a report with other parts. Nothing of it may be changed but these.
func (k *AgentKind[S, P]) with(report S, parts []P) S {
	next := report.ProtoReflect().New()
	report.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if field.Name() != k.field {
			next.Set(field, value)
		}
		return true
	})
	made := next.Interface().(S)
	k.set(made, parts)
	return made
}

// InOrder sorts a report's parts by their names, and gives these. A target may report two rings of one stream, as when
// a file is left of a ring that lies elsewhere by now: the first is the one that is wanted, and stays that.
func (k *AgentKind[S, P]) InOrder(report S) (names []string) {
	list := k.get(report)
	parts, count := make([]part[P], len(list)), map[string]int{}
	for i, one := range list {
		parts[i] = part[P]{k.stream(one), one}
		if n := count[parts[i].name]; n > 0 {
			parts[i].name += "#" + strconv.Itoa(n)
		}
		count[k.stream(one)]++
	}
	slices.SortFunc(parts, func(a, b part[P]) int { return strings.Compare(a.name, b.name) })
	sorted := make([]P, len(parts))
	for i, one := range parts {
		sorted[i], names = one.value, append(names, one.name)
	}
	k.set(report, sorted)
	return names
}

// heads are a kind of keys: what reports are without their parts.
type headKeys[S, P proto.Message] struct{ of *AgentKind[S, P] }

func (h headKeys[S, P]) begin(v *View) {
	*h.of.Wholes(v) = map[string]S{}
	*h.of.of(v) = partsOf[P]{by: map[string][]part[P]{}, isWhole: map[string]bool{}}
}

func (h headKeys[S, P]) share(next, v *View) {
	*h.of.Wholes(next) = *h.of.Wholes(v)
	before := h.of.of(v)
	*h.of.of(next) = partsOf[P]{by: before.by, isWhole: before.isWhole, isOwned: map[string]bool{}}
}

func (h headKeys[S, P]) own(v *View) {
	*h.of.Wholes(v) = maps.Clone(*h.of.Wholes(v))
	of := h.of.of(v)
	of.by, of.isWhole = maps.Clone(of.by), maps.Clone(of.isWhole)
}

func (h headKeys[S, P]) put(v *View, key, id string, value []byte) error {
	var none S
	report := none.ProtoReflect().New().Interface().(S)
	if err := etcd.Decode(key, value, report); err != nil {
		return err
	}
	k, of, wholes := h.of, h.of.of(v), *h.of.Wholes(v)
	have, isThere := wholes[id]
	wasWhole := of.isWhole[id]
	if of.isWhole[id] = len(k.get(report)) > 0; of.isWhole[id] {
		k.InOrder(report)
		wholes[id] = report
		return nil
	}
	list := make([]P, 0, len(of.by[id]))
	if isThere && !wasWhole { // with figures that are shown and not in etcd
		list = append(list, k.get(have)...)
	} else {
		for _, one := range of.by[id] {
			list = append(list, one.value)
		}
	}
	wholes[id] = k.with(report, list)
	return nil
}

func (h headKeys[S, P]) remove(v *View, id string) {
	delete(*h.of.Wholes(v), id)
	delete(h.of.of(v).isWhole, id)
}

// partKeys are a kind of keys: the parts of reports, by agent/stream.
type partKeys[S, P proto.Message] struct{ of *AgentKind[S, P] }

func (p partKeys[S, P]) begin(*View)        {} // as the heads
func (p partKeys[S, P]) share(_, _ *View)   {}
func (p partKeys[S, P]) own(v *View)        { headKeys[S, P](p).own(v) }
func cutPart(name string) (id, part string) { id, part, _ = strings.Cut(name, "/"); return id, part }

func (p partKeys[S, P]) put(v *View, key, name string, value []byte) error {
	id, named := cutPart(name)
	var none P
	one := none.ProtoReflect().New().Interface().(P)
	if err := etcd.Decode(key, value, one); err != nil {
		return err
	}
	if named == "" {
		return fmt.Errorf("etcd key %q names no part of a report", key)
	}
	p.of.change(v, id, named, one, true)
	return nil
}

func (p partKeys[S, P]) remove(v *View, name string) {
	var none P
	id, named := cutPart(name)
	p.of.change(v, id, named, none, false)
}

// change puts a part in its place, or takes it away: in what etcd has, and in what is shown.
func (k *AgentKind[S, P]) change(v *View, id, named string, value P, isThere bool) {
	of, wholes := k.of(v), *k.Wholes(v)
	list := of.by[id]
	whole, isShown := wholes[id]
	isShown = isShown && !of.isWhole[id]
	if of.isOwned != nil && !of.isOwned[id] {
		of.isOwned[id], list = true, slices.Clone(list)
		if isShown {
			whole = k.with(whole, slices.Clone(k.get(whole)))
		}
	}
	at, has := of.find(id, named)
	shown := k.get(whole)
	switch {
	case isThere && has:
		list[at] = part[P]{named, value}
		if isShown {
			shown[at] = value
		}
	case isThere:
		list = slices.Insert(list, at, part[P]{named, value})
		if isShown {
			shown = slices.Insert(shown, at, value)
		}
	case has:
		list = slices.Delete(list, at, at+1)
		if isShown {
			shown = slices.Delete(shown, at, at+1)
		}
	}
	if of.by[id] = list; len(list) == 0 {
		delete(of.by, id)
	}
	if isShown {
		k.set(whole, shown)
		wholes[id] = whole
	}
}

// isRingMoved looks at the cursors, which all other figures follow. Times alone are not worth a write.
func isRingMoved(a, b *api.RingState) bool {
	return a.AppendedLsn != b.AppendedLsn || a.DurableLsn != b.DurableLsn || a.HeadLsn != b.HeadLsn ||
		a.HeadSeq != b.HeadSeq || a.CreditLsn != b.CreditLsn || a.LagBytes != b.LagBytes || a.LagRecords != b.LagRecords
}

func isProgressMoved(a, b *api.DrainProgress) bool {
	return a.StoredLsn != b.StoredLsn || a.HeadLsn != b.HeadLsn || a.Records != b.Records || a.Bytes != b.Bytes ||
		a.Batches != b.Batches || a.Duplicates != b.Duplicates
}

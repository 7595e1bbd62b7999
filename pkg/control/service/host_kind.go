package service

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/fabric"
	"github.com/farlog/farlog/pkg/control/pattern"
	"github.com/farlog/farlog/pkg/control/refusal"
	"github.com/farlog/farlog/pkg/control/state"
)

// spec is what operators say of a host.
type spec interface {
	proto.Message
	GetHost() string
}

// hostKind is what hosts are in a fabric, targets or drains: T as they are declared and seen, S what operators say of
// them.
type hostKind[S spec, T any] struct {
	server   *Server
	kind     string // for people
	changed  string // of hosts, for the history
	declared string // of what is declared of them alone
	prefix   string // of etcd's keys
	specs    func(*state.View) map[string]S
	each     func(v *state.View, isDetailed bool) (hosts state.AgentsByHost, of func(host string) T)
	with     func(one T, declared S) T          // as it is, with a spec that it may only come to have
	check    func(v *state.View, asked S) error // of a spec beside all others; nil: there is nothing to check
}

// pagedHosts is a request for a page of the hosts that a name or pattern means.
type pagedHosts interface {
	paged
	GetHost() string
}

func (k hostKind[S, T]) list(v *state.View, request pagedHosts, isDetailed bool, isListed func(T) bool) (items []T,
	next string, err error,
) {
	hosts, of := k.each(v, isDetailed)
	names, err := hostsNamed(hosts, request.GetHost())
	if err != nil {
		return nil, "", err
	}
	return onePage(request, names, func(host string) (T, bool) {
		one := of(host)
		return one, isListed(one)
	})
}

func (k hostKind[S, T]) get(host string) (one T, err error) {
	hosts, of := k.each(k.server.view(), true)
	if hosts[host] == nil {
		return one, unknownHost(k.kind, host, slices.Sorted(maps.Keys(hosts)))
	}
	return of(host), nil
}

// have is what is declared of a host, and at which revision; 0: nothing.
func (k hostKind[S, T]) have(host string) (v *state.View, have S, revision int64) {
	v = k.server.view()
	have, isThere := k.specs(v)[host]
	if isThere {
		revision = k.server.mirror.History.Revision(k.declared, host)
	}
	return v, have, revision
}

// create declares a host.
func (k hostKind[S, T]) create(ctx context.Context, asked S, isDryRun bool) (one T, isNew bool, err error) {
	v, have, revision := k.have(asked.GetHost())
	if revision > 0 {
		err = alreadyExists(k.kind, asked.GetHost(), fabric.Changes(have, asked))
	} else if err = k.checkSpec(v, asked); err == nil && !isDryRun {
		key := k.prefix + asked.GetHost()
		err = k.write(ctx, "created", asked.GetHost(), clientv3.Compare(clientv3.CreateRevision(key), "=", 0), asked)
	}
	if err != nil {
		return one, false, err
	}
	return k.declaredAs(asked), revision == 0, nil
}

// update changes what is declared of a host. A revision that is 0 is whichever.
func (k hostKind[S, T]) update(ctx context.Context, asked S, revision int64, isDryRun bool) (one T,
	fields []*api.FieldChange, err error,
) {
	have, at, err := k.at(asked.GetHost(), revision)
	if err == nil {
		err = k.checkSpec(k.server.view(), asked)
	}
	if err != nil {
		return one, nil, err
	}
	if fields = fabric.Changes(have, asked); len(fields) > 0 && !isDryRun {
		key := k.prefix + asked.GetHost()
		unchanged := clientv3.Compare(clientv3.ModRevision(key), "=", at)
		if err := k.write(ctx, "changed", asked.GetHost(), unchanged, asked); err != nil {
			return one, nil, err
		}
	}
	return k.declaredAs(asked), fields, nil
}

func (k hostKind[S, T]) checkSpec(v *state.View, asked S) error {
	if k.check == nil {
		return nil
	}
	return k.check(v, asked)
}

// remove takes back what is declared of a host, and gives it.
func (k hostKind[S, T]) remove(ctx context.Context, host string, revision int64, isDryRun bool) (one T, err error) {
	have, at, err := k.at(host, revision)
	if err == nil && !isDryRun {
		var nothing S
		err = k.write(ctx, "deleted", host, clientv3.Compare(clientv3.ModRevision(k.prefix+host), "=", at), nothing)
	}
	if err != nil {
		return one, err
	}
	return k.declaredAs(have), nil
}

// at is what is declared of a host, as somebody has seen it who tells its revision.
func (k hostKind[S, T]) at(host string, revision int64) (have S, at int64, err error) {
	v, have, at := k.have(host)
	if at == 0 {
		return have, 0, unknownHost("declared "+k.kind, host, slices.Sorted(maps.Keys(k.specs(v))))
	}
	if revision != 0 && revision != at {
		return have, 0, refusal.StaleRevision(fmt.Sprintf("%s %q", k.kind, host), at, revision)
	}
	return have, at, nil
}

func (k hostKind[S, T]) declaredAs(spec S) T {
	_, of := k.each(k.server.view(), true)
	return k.with(of(spec.GetHost()), spec)
}

// write puts a spec, or takes it away when it is nil, while a condition holds, and waits until readers see it.
func (k hostKind[S, T]) write(ctx context.Context, verb, host string, unchanged clientv3.Cmp, asked S) error {
	write := clientv3.OpDelete(k.prefix + host)
	if any(asked) != any(*new(S)) {
		value, err := etcd.Encode(asked)
		if err != nil {
			return err
		}
		write = clientv3.OpPut(k.prefix+host, value)
	}
	what := fmt.Sprintf("%s %q", k.kind, host)
	revision, err := state.Commit(ctx, k.server.config.Client, "write "+what, what, []clientv3.Cmp{unchanged},
		[]clientv3.Op{write})
	if err != nil {
		return err
	}
	k.server.config.Logger.Info(verb, k.kind, host, "by", callerOf(ctx).ID)
	return k.server.mirror.WaitRevision(ctx, revision)
}

// unknownHost names some of the hosts that there are.
func unknownHost(kind, host string, known []string) error {
	return status.Errorf(codes.NotFound, "%s %q: there is none on that host; %s", kind, host, someOf(known, ""))
}

// watch tells of what changed of the kind behind a revision, and goes on until the caller ends it: of all there is
// first when nothing was received yet, or nobody knows any more what came since.
func (k hostKind[S, T]) watch(ctx context.Context, named string, last int64,
	send func(v *state.View, items []T, gone []string, isAll bool) error,
) error {
	isFirst := last == 0
	return k.server.untilEnd(ctx, func() (<-chan struct{}, error) {
		now, again := k.server.mirror.Load()
		changed, isKnown := k.server.mirror.History.ChangedSince(k.changed, last, now.Revision)
		isAll := isFirst || !isKnown || last > now.Revision
		last, isFirst = now.Revision, false
		if !isAll && len(changed) == 0 {
			return again, nil
		}
		hosts, of := k.each(now, false)
		names, err := namedAmong(hosts, named, changed, isAll)
		if err != nil || len(names) == 0 && !isAll {
			return again, err
		}
		var items []T
		var gone []string
		for _, host := range names {
			if hosts[host] == nil {
				gone = append(gone, host)
			} else {
				items = append(items, of(host))
			}
		}
		return again, send(now, items, gone, isAll)
	})
}

// namedAmong are the hosts of a watch: of all, or of those that changed, whether they are there or not.
func namedAmong(hosts state.AgentsByHost, named string, changed []string, isAll bool) ([]string, error) {
	if !isAll {
		hosts = state.AgentsByHost{}
		for _, host := range changed {
			hosts.Add(host, "")
		}
	}
	return hostsNamed(hosts, named)
}

// hostsNamed lists the hosts that a name or pattern means, in order.
func hostsNamed(hosts state.AgentsByHost, named string) ([]string, error) {
	named = cmp.Or(named, pattern.All)
	if err := checkPattern("host", named, "expected a host or a pattern such as storage*"); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(hosts)),
		func(host string) bool { return !pattern.Covers([]string{named}, host) }), nil
}

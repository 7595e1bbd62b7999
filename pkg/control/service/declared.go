package service

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/pattern"
	"github.com/farlog/farlog/pkg/control/refusal"
	"github.com/farlog/farlog/pkg/control/state"
)

// spec is what operators say of a host.
type spec interface {
	proto.Message
	GetHost() string
}

// declared changes what operators say of hosts, of one kind.
type declared[S spec] struct {
	server  *Server
	kind    string // for people
	changed string // for the history
	prefix  string // of etcd's keys
	of      func(*state.View) map[string]S
	changes func(have, asked S) []*api.FieldChange
}

// have is what is declared of a host, and at which revision; 0: nothing.
func (d declared[S]) have(host string) (v *state.View, have S, revision int64, err error) {
	if v, err = d.server.fresh(); err != nil {
		return nil, have, 0, err
	}
	have, isThere := d.of(v)[host]
	if isThere {
		revision = d.server.mirror.History.Revision(d.changed, host)
	}
	return v, have, revision, nil
}

// create declares a host; isNew is false when it is declared so already.
func (d declared[S]) create(ctx context.Context, asked S, isDryRun bool) (isNew bool, err error) {
	_, have, revision, err := d.have(asked.GetHost())
	if err != nil {
		return false, err
	}
	if revision > 0 {
		return false, alreadyExists(d.kind, asked.GetHost(), d.changes(have, asked))
	}
	if isDryRun {
		return true, nil
	}
	key := d.prefix + asked.GetHost()
	return true, d.write(ctx, "created", asked.GetHost(), clientv3.Compare(clientv3.CreateRevision(key), "=", 0), asked)
}

// update changes what is declared of a host. A revision that is 0 is whichever.
func (d declared[S]) update(ctx context.Context, asked S, revision int64, isDryRun bool) ([]*api.FieldChange, error) {
	have, at, err := d.at(asked.GetHost(), revision)
	if err != nil {
		return nil, err
	}
	fields := d.changes(have, asked)
	if len(fields) == 0 || isDryRun {
		return fields, nil
	}
	key := d.prefix + asked.GetHost()
	return fields, d.write(ctx, "changed", asked.GetHost(), clientv3.Compare(clientv3.ModRevision(key), "=", at), asked)
}

// at is what is declared of a host, as somebody has seen it who tells its revision.
func (d declared[S]) at(host string, revision int64) (have S, at int64, err error) {
	v, have, at, err := d.have(host)
	if err != nil {
		return have, 0, err
	}
	if at == 0 {
		return have, 0, unknownHost("declared "+d.kind, host, slices.Sorted(maps.Keys(d.of(v))))
	}
	if revision != 0 && revision != at {
		return have, 0, refusal.StaleRevision(fmt.Sprintf("%s %q", d.kind, host), at, revision)
	}
	return have, at, nil
}

// remove takes back what is declared of a host, and gives it.
func (d declared[S]) remove(ctx context.Context, host string, revision int64, isDryRun bool) (S, error) {
	have, at, err := d.at(host, revision)
	if err != nil || isDryRun {
		return have, err
	}
	var nothing S
	return have, d.write(ctx, "deleted", host, clientv3.Compare(clientv3.ModRevision(d.prefix+host), "=", at), nothing)
}

// write puts a spec, or takes it away when it is nil, while a condition holds, and waits until readers see it.
func (d declared[S]) write(ctx context.Context, verb, host string, unchanged clientv3.Cmp, asked S) error {
	write := clientv3.OpDelete(d.prefix + host)
	if any(asked) != any(*new(S)) {
		value, err := etcd.Encode(asked)
		if err != nil {
			return err
		}
		write = clientv3.OpPut(d.prefix+host, value)
	}
	put, err := d.server.config.Client.Txn(ctx).If(unchanged).Then(write).Commit()
	if err != nil {
		return fmt.Errorf("write %s %q: %w", d.kind, host, err)
	}
	if !put.Succeeded {
		return refusal.ChangedMeanwhile(fmt.Sprintf("%s %q", d.kind, host))
	}
	d.server.config.Logger.Info(verb, d.kind, host, "by", callerOf(ctx).ID)
	return d.server.mirror.WaitRevision(ctx, put.Header.Revision)
}

// unknownHost names some of the hosts that there are.
func unknownHost(kind, host string, known []string) error {
	text := "there are none yet"
	if len(known) > 0 {
		text = "there is " + strings.Join(known[:min(len(known), namesToldMax)], ", ")
	}
	if len(known) > namesToldMax {
		text += fmt.Sprintf(" and %d more", len(known)-namesToldMax)
	}
	return status.Errorf(codes.NotFound, "%s %q: there is none on that host; %s", kind, host, text)
}

// namedAmong are the hosts of a watch: of all, or of those that changed, whether they are there or not.
func namedAmong(hosts state.AgentsByHost, named string, changed []string, isAll bool) ([]string, error) {
	if isAll {
		return hostsNamed(hosts, named)
	}
	if _, err := hostsNamed(nil, named); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(changed), func(host string) bool {
		return named != "" &&
			!pattern.Covers([]string{named}, host)
	}), nil
}

// watchHosts tells of what changed of a kind behind a revision, and goes on until the caller ends it: of all there is
// first when nothing was heard yet, or nobody knows any more what came since.
func (s *Server) watchHosts(ctx context.Context, kind string, last int64,
	tell func(now *state.View, changed []string, isAll bool) error,
) error {
	isFirst := last == 0
	return s.untilEnd(ctx, func() (<-chan struct{}, error) {
		now, changed := s.mirror.Load()
		names, isKnown := s.mirror.History.ChangedSince(kind, last, now.Revision)
		isAll := isFirst || !isKnown || last > now.Revision
		last, isFirst = now.Revision, false
		if !isAll && len(names) == 0 {
			return changed, nil
		}
		return changed, tell(now, names, isAll)
	})
}

package state

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
)

// What ADR 36 goes by: a view of benchStreams streams, their rings on benchAgents targets.
const benchStreams, benchAgents = 10_000, 20

func benchName(i int) string { return fmt.Sprintf("desk%d/orders%05d", i%50, i) }

func benchTarget(i int) string { return fmt.Sprintf("target%02d", i%benchAgents) }

// benchPut puts a message into a view as the mirror does.
func benchPut(b *testing.B, v *View, key string, message proto.Message) {
	b.Helper()
	raw, err := etcd.EncodeBytes(message)
	if err != nil {
		b.Fatal(err)
	}
	if err := v.Put(key, []byte(raw)); err != nil {
		b.Fatal(err)
	}
}

func benchView(b *testing.B) *View {
	b.Helper()
	v := NewView()
	for i := range benchStreams {
		name, target := benchName(i), benchTarget(i)
		if i < benchAgents {
			benchPut(b, v, etcd.KeyTargets+target, &api.TargetState{Agent: &api.Agent{Id: target, Host: target}})
		}
		benchPut(b, v, etcd.KeyStreams+name, &api.Stream{Spec: &api.StreamSpec{Name: name}})
		benchPut(b, v, etcd.KeyRings+name, &api.RingSpec{Target: target})
		benchPut(b, v, etcd.KeyAssignments+name, &api.Assignment{Stream: name, Drain: target})
		benchPut(b, v, etcd.KeyGrants+name, &api.Grant{Epoch: 1})
		benchPut(b, v, etcd.KeyTargetRings+target+"/"+name, &api.RingState{Stream: name, Target: target})
		if err := v.Put(etcd.KeyEpochs+name, []byte("1")); err != nil {
			b.Fatal(err)
		}
	}
	return v
}

// BenchmarkView_Event measures a message of the watch: a view behind the present one, with so many changes of one map.
func BenchmarkView_Event(b *testing.B) {
	name := benchName(77)
	stream := &api.Stream{Spec: &api.StreamSpec{Name: name}}
	for _, one := range []struct {
		what, key string
		message   proto.Message
		count     int
	}{
		{"a stream", etcd.KeyStreams + name, stream, 1},
		{"100 streams", etcd.KeyStreams + name, stream, 100},
		{
			"a ring's report", etcd.KeyTargetRings + benchTarget(77) + "/" + name,
			&api.RingState{Stream: name, Target: benchTarget(77), AppendedLsn: 2}, 1,
		},
	} {
		b.Run(one.what, func(b *testing.B) {
			v := benchView(b)
			b.ReportAllocs()
			for b.Loop() {
				v = v.Clone()
				for range one.count {
					benchPut(b, v, one.key, one.message)
				}
			}
		})
	}
}

// BenchmarkView_Read measures what a plan of one stream and one of all look up.
func BenchmarkView_Read(b *testing.B) {
	v := benchView(b)
	found := 0
	read := func(name string) {
		if v.Streams[name] != nil && v.Rings[name] != nil && v.Assignments[name] != nil && v.Epochs[name] > 0 {
			found++
		}
	}
	b.Run("one stream", func(b *testing.B) {
		name := benchName(77)
		for b.Loop() {
			read(name)
		}
	})
	b.Run("all streams", func(b *testing.B) {
		for b.Loop() {
			for name := range v.Streams {
				read(name)
			}
		}
	})
	if found == 0 {
		b.Error("nothing was found")
	}
}

package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/internal/testenv"
)

// declare changes the stream's spec.
func (b *hostBench) declare(change func(*api.StreamSpec)) {
	b.Helper()
	conn := b.cluster.Dial(b.cluster.ControlAddress)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Timeout)
	defer cancel()
	spec := proto.Clone(b.cluster.Stream(streamName).Stream.Spec).(*api.StreamSpec)
	change(spec)
	if _, err := api.NewControlServiceClient(conn).UpdateStream(ctx, &api.UpdateStreamRequest{Spec: spec}); err != nil {
		b.Fatal(err)
	}
}

// appendUntil appends all the time, and fails with the first append that does. What is acknowledged has the level that
// went before, or from some record on the next one.
func (b *hostBench) appendUntil(
	writer *farlog.Writer,
	before, after farlog.Level,
	is func(farlog.WriterSettings) bool,
) {
	b.Helper()
	testenv.Until(b.T, "the writer has taken the change in", func() (bool, error) {
		position, err := writer.Append(farlog.Entry{Data: []byte("under load"), Class: 1}, 0)
		if err != nil {
			return false, err
		}
		terms, err := writer.Settings()
		wanted := before
		if terms.Level == after && position.LSN >= terms.FromLSN {
			wanted = after
		}
		if position.Level != wanted {
			b.Fatalf("a record is acknowledged at %v, expected %v (the writer runs with %+v)", position.Level, wanted,
				terms)
		}
		return is(terms), err
	})
}

// Level, policy and deadline of a stream are changed while its writer appends: it goes on without a pause and takes
// them in, also those of a time when its agent was away, and says so. A level that its ring cannot give it does not
// take in, but all else. What a program asked for goes before.
func TestHost_RunningWriterTakesChangesIn(t *testing.T) {
	testenv.SkipWhenShort(t)
	b := newHostBench(t)
	own, err := farlog.OpenWriter(b.uri(streamName), farlog.WriterOptions{
		Level:    farlog.LevelVisible,
		Deadline: 10 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	terms, err := own.Settings()
	if err != nil || terms.Level != farlog.LevelVisible || terms.Deadline != 10*time.Second {
		t.Fatalf("%+v, %v", terms, err)
	}
	b.declare(func(spec *api.StreamSpec) { spec.Level, spec.Policy = api.Level_LEVEL_POSTED, api.Policy_POLICY_REJECT })
	b.appendUntil(own, farlog.LevelVisible, farlog.LevelVisible,
		func(terms farlog.WriterSettings) bool { return terms.Policy == farlog.PolicyReject })
	if terms, err = own.Settings(); err != nil || terms.Level != farlog.LevelVisible ||
		terms.Deadline != 10*time.Second {
		t.Errorf("what the program asked for: %+v, %v", terms, err)
	}
	own.Close()

	b.declare(func(spec *api.StreamSpec) {
		spec.Policy, spec.Deadline = api.Policy_POLICY_BLOCK, durationpb.New(10*time.Second)
	})
	writer, err := farlog.OpenWriter(b.uri(streamName), farlog.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	b.appendUntil(writer, farlog.LevelPosted, farlog.LevelPosted, func(farlog.WriterSettings) bool { return true })
	b.agent.Kill()
	b.declare(func(spec *api.StreamSpec) {
		spec.Level, spec.Policy, spec.Deadline = api.Level_LEVEL_VISIBLE, api.Policy_POLICY_REJECT,
			durationpb.New(20*time.Second)
	})
	b.append(writer, 100, "without an agent")
	if terms, err = writer.Settings(); err != nil || terms.Level != farlog.LevelPosted {
		t.Errorf("without an agent: %+v, %v", terms, err)
	}
	b.startAgent()
	b.appendUntil(writer, farlog.LevelPosted, farlog.LevelVisible,
		func(terms farlog.WriterSettings) bool { return terms.Level == farlog.LevelVisible })
	if terms, err = writer.Settings(); err != nil || terms.Policy != farlog.PolicyReject ||
		terms.Deadline != 20*time.Second {
		t.Errorf("behind the change: %+v, %v", terms, err)
	}

	b.declare(func(spec *api.StreamSpec) {
		spec.Level, spec.Deadline = api.Level_LEVEL_PERSISTENT, durationpb.New(30*time.Second)
	})
	b.appendUntil(writer, farlog.LevelVisible, farlog.LevelPersistent,
		func(terms farlog.WriterSettings) bool { return terms.Deadline == 30*time.Second })
	testenv.Until(t, "the stream's status says how it runs", func() (bool, error) {
		shown := testenv.MustRun(t, "farlog", "stream", "show", streamName, "--control", b.cluster.ControlAddress)
		return strings.Contains(shown, "level visible, policy reject, deadline 30s (as it runs)"), nil
	})
	b.cluster.Drain.Stop()
	for err = nil; err == nil; {
		_, err = writer.Append(farlog.Entry{Data: make([]byte, 60000), Class: 1}, 0)
	}
	if !errors.Is(err, farlog.ErrFull) {
		t.Errorf("a full ring: %v", err)
	}
}

package hostile

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/identity"
	"github.com/farlog/farlog/pkg/internal/testenv"
	"github.com/farlog/farlog/pkg/store"
)

const (
	connectionCount = 2000
	flipCount       = 220
	bombMemoryMax   = 1 << 30 // of a program that reads one
)

// dial is a connection to the control plane with a certificate of a kind in a directory.
func (w *world) dial(dir string, kind identity.Kind) *grpc.ClientConn {
	w.Helper()
	choice := identity.Choice{Dir: dir, Control: w.cluster.ControlAddress, Kinds: []identity.Kind{kind}}
	conn, err := api.Dial(w.cluster.ControlAddress, identity.NewClientCredentials(choice.Finder()))
	w.must(err)
	w.Cleanup(func() { conn.Close() })
	return conn
}

// expect fails the test when an attempt did not end with one of the codes.
func (w *world) expect(what string, err error, wanted ...codes.Code) {
	w.Helper()
	if code := status.Code(err); !slices.Contains(wanted, code) {
		w.Errorf("%s: %v (%v), expected one of %v", what, err, code, wanted)
	}
}

func (w *world) calls() context.Context {
	ctx, cancel := context.WithTimeout(w.Context(), testenv.Timeout)
	w.Cleanup(cancel)
	return ctx
}

// Names that leave the directory of rings or streams, or that a terminal takes for something else, are no names.
func hostileNames(w *world) {
	client := api.NewControlServiceClient(w.dial(testenv.TLSDir(w), identity.KindAdmin))
	list := func() int {
		response, err := client.ListStreams(w.calls(), &api.ListStreamsRequest{})
		w.must(err)
		return len(response.Streams)
	}
	before := list()
	for _, name := range []string{
		"", ".", "..", "/", "../../../etc/cron.d/x", "desk8/../../x", "a/..", "/etc/passwd", "desk8//orders", "desk8/",
		"desk8/orders\x00x", "desk8/orders\n", "desk8/\x1b[2J", " desk8/orders", "desk8\\..\\x", "\u202edesk8/x",
		"desk8/\u00f3rders", "desk8/*", "farlog/audit", strings.Repeat("a", 65), strings.Repeat("a/", 1<<19),
	} {
		_, err := client.CreateStream(w.calls(), &api.CreateStreamRequest{
			Spec: &api.StreamSpec{Name: name, RingSizeBytes: 1 << 20, Level: api.Level_LEVEL_VISIBLE},
		})
		w.expect(fmt.Sprintf("create %.40q", name), err, codes.InvalidArgument, codes.PermissionDenied)
		if writer, err := farlog.OpenWriter("farlog://"+name+"?agent="+w.socket, farlog.WriterOptions{}); err == nil {
			writer.Close()
			w.Errorf("the agent opened %.40q", name)
		}
	}
	if after := list(); after != before {
		w.Errorf("%d streams, expected the %d of before", after, before)
	}
}

// A certificate lets its holder do what its kind may, while it is valid, and one of another authority nothing.
func foreignCertificates(w *world) {
	real, now := testenv.TLSDir(w), time.Now()
	grant := &api.AcquireWriterRequest{Stream: neighbourName, Holder: &api.Holder{Host: "trading1", Name: "mallory"}}
	for _, kind := range []identity.Kind{identity.KindHost, identity.KindTarget, identity.KindDrain} {
		client := api.NewControlServiceClient(w.dial(real, kind))
		_, err := client.DeleteStream(w.calls(), &api.DeleteStreamRequest{Name: neighbourName})
		w.expect(fmt.Sprintf("%s: delete a stream", kind), err, codes.PermissionDenied)
		_, err = client.CreateStream(w.calls(), &api.CreateStreamRequest{Spec: &api.StreamSpec{Name: "desk8/new"}})
		w.expect(fmt.Sprintf("%s: create a stream", kind), err, codes.PermissionDenied)
		if kind != identity.KindHost {
			_, err = client.AcquireWriter(w.calls(), grant)
			w.expect(fmt.Sprintf("%s: be granted a writer", kind), err, codes.PermissionDenied)
		}
	}
	_, err := api.NewTargetServiceClient(w.dial(real, identity.KindHost)).ReportTarget(w.calls(),
		&api.ReportTargetRequest{State: &api.TargetState{Agent: &api.Agent{Id: "t", Host: "storage"}}})
	w.expect("host: be a target", err, codes.PermissionDenied)

	authority, err := identity.OpenAuthority(real)
	w.must(err)
	expired, forged := w.path("expired"), w.path("forged")
	_, err = authority.Issue(expired, identity.Order{Kind: identity.KindAdmin, Name: "admin"}, now.AddDate(-20, 0, 0))
	w.must(err)
	other, err := identity.InitAuthority(w.path("other-authority"), authority.TrustDomain(), now)
	w.must(err)
	_, err = other.Issue(forged, identity.Order{Kind: identity.KindAdmin, Name: "admin"}, now)
	w.must(err)
	genuine, err := os.ReadFile(identity.In(real, identity.KindAdmin).Authority)
	w.must(err)
	w.must(os.WriteFile(identity.In(forged, identity.KindAdmin).Authority, genuine, 0o644))
	for _, dir := range []string{expired, forged} {
		client := api.NewControlServiceClient(w.dial(dir, identity.KindAdmin))
		_, err := client.GetStream(w.calls(), &api.GetStreamRequest{Name: neighbourName})
		w.expect(filepath.Base(dir)+": read a status", err, codes.Unavailable, codes.Unauthenticated)
	}
}

// acquire gives mallory a grant for his stream over the network, as a program without an agent gets one.
func (w *world) acquire(client api.ControlServiceClient) *api.Grant {
	w.Helper()
	response, err := client.AcquireWriter(w.calls(), &api.AcquireWriterRequest{
		Stream: malloryName, Transport: "ofi", RequestId: api.NewRequestID(),
		Holder: &api.Holder{Host: "trading1", Name: "mallory", Addresses: []string{"127.0.0.1"}},
	})
	w.must(err)
	return response.Grant
}

// tryWriter opens a ring by a token and an epoch, and closes it if that is let in.
func tryWriter(uri string, token []byte, epoch uint32) error {
	writer, err := farlog.OpenWriter(uri, farlog.WriterOptions{
		Level: farlog.LevelVisible, Token: (*[farlog.TokenLen]byte)(token), Epoch: epoch, CountersDir: "none",
	})
	if err != nil {
		return err
	}
	writer.Close()
	return nil
}

// A grant is for one ring and one epoch: a token opens no other ring, no other token opens that ring, and an epoch that
// was not granted, or that a later one has fenced, writes nothing.
func foreignGrants(w *world) {
	client := api.NewControlServiceClient(w.dial(testenv.TLSDir(w), identity.KindHost))
	grant := w.acquire(client)
	member := grant.Members[0]
	neighbours := w.cluster.Stream(neighbourName).Rings[0].RemoteUris[0]
	random := rand.New(rand.NewPCG(3, 22))
	for range 16 {
		token := slices.Clone(member.Token)
		token[random.IntN(len(token))] ^= 1 << random.IntN(8)
		if tryWriter(member.Uri, token, grant.Epoch) == nil {
			w.Error("a token with one other bit is let in")
		}
		for i := range token {
			token[i] = byte(random.Uint32())
		}
		if tryWriter(neighbours, token, grant.Epoch) == nil {
			w.Error("a guessed token is let in")
		}
	}
	for _, epoch := range []uint32{1, grant.Epoch, grant.Epoch + 1, 1 << 30} {
		if tryWriter(neighbours, member.Token, epoch) == nil {
			w.Errorf("mallory's token opens the neighbour's ring with epoch %d", epoch)
		}
	}
	for _, epoch := range []uint32{grant.Epoch - 1, grant.Epoch + 1, grant.Epoch + 1000, 1<<32 - 1} {
		if tryWriter(member.Uri, member.Token, epoch) == nil {
			w.Errorf("epoch %d is let in, and %d was granted", epoch, grant.Epoch)
		}
	}
	writer, err := farlog.OpenWriter(member.Uri, farlog.WriterOptions{
		Level: farlog.LevelVisible, Token: (*[farlog.TokenLen]byte)(member.Token), Epoch: grant.Epoch,
		CountersDir: "none",
	})
	w.must(err)
	defer writer.Close()
	later := w.acquire(client)
	w.must(tryWriter(later.Members[0].Uri, later.Members[0].Token, later.Epoch))
	_, err = writer.Append(farlog.Entry{Data: []byte("fenced")}, appendDeadline)
	if !errors.Is(err, farlog.ErrFenced) && !errors.Is(err, farlog.ErrUnknown) {
		w.Errorf("the writer of an epoch that was taken over: %v, expected %v", err, farlog.ErrFenced)
	}
	if tryWriter(member.Uri, member.Token, grant.Epoch) == nil {
		w.Error("the token of an epoch that was taken over is let in")
	}
}

// billionLaughs is a YAML file of a few hundred bytes whose aliases stand for 10^9 strings.
func billionLaughs() string {
	var text strings.Builder
	text.WriteString("a: &a [x,x,x,x,x,x,x,x,x,x]\n")
	for i := 'b'; i <= 'i'; i++ {
		fmt.Fprintf(
			&text,
			"%c: &%c [%s]\n",
			i,
			i,
			strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", i-1), 10), ","),
		)
	}
	return text.String() + "streams: *i\n"
}

// Files and messages that are small and stand for much, or are simply large, are refused by who reads them.
func bombs(w *world) {
	for name, text := range map[string]string{
		"laughs": billionLaughs(), "nested": "streams: " + strings.Repeat("[", 200_000), "long": "streams: " +
			strings.Repeat("x", 64<<20),
	} {
		path := w.path(name + ".yaml")
		w.must(os.WriteFile(path, []byte(text), 0o600))
		cmd := exec.CommandContext(
			w.calls(),
			testenv.Program(w, "farlog"),
			"apply",
			"--dry-run",
			"-f",
			path,
			"--control",
			w.cluster.ControlAddress,
		)
		said, err := cmd.CombinedOutput()
		code := cmd.ProcessState.ExitCode()
		if err == nil || code != 1 && code != 2 || strings.Contains(string(said), "goroutine ") {
			w.Errorf("apply of %s: exit code %d: %.300s", name, code, said)
		}
		if used := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10; used > bombMemoryMax {
			w.Errorf("apply of %s took %d bytes of memory", name, used)
		}
	}
	admin := api.NewControlServiceClient(w.dial(testenv.TLSDir(w), identity.KindAdmin))
	large := &api.StreamSpec{Name: strings.Repeat("x", 64<<20)}
	_, err := admin.CreateStream(w.calls(), &api.CreateStreamRequest{Spec: large})
	w.expect("a message of 64 MiB", err, codes.ResourceExhausted)
	// two bytes each on the wire, a hundred and more in memory
	rings := slices.Repeat([]*api.RingState{{}}, 1_500_000)
	_, err = api.NewTargetServiceClient(w.dial(testenv.TLSDir(w), identity.KindTarget)).ReportTarget(w.calls(),
		&api.ReportTargetRequest{State: &api.TargetState{Agent: &api.Agent{Id: "bomb", Host: "storage"}, Rings: rings}})
	w.expect("a report of 1.5 million rings without a name", err, codes.InvalidArgument)
}

// Whoever holds 2,000 connections to all ports and says nothing keeps nobody out.
func manyConnections(w *world) {
	_, target, _ := strings.Cut(w.cluster.TargetArgs[len(w.cluster.TargetArgs)-1], "//")
	places := []string{w.cluster.ControlAddress, target, w.socket}
	for _, url := range w.addresses {
		places = append(places, strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/metrics"))
	}
	stop := w.nobodyKeepsDoing("silent", append([]string{fmt.Sprint(connectionCount)}, places...)...)
	defer stop()
	w.open(malloryName).Close()
	w.cluster.Stream(neighbourName)
	for role := range w.addresses {
		if !strings.Contains(w.scrape(role), "farlog_build_info") {
			w.Errorf("%s has no metrics any more", role)
		}
	}
}

// Any bit of a sealed segment or of its manifest that is another one is found.
func flippedBits(w *world) {
	sealSegment(w)
	copied := w.path("flipped")
	w.must(os.CopyFS(copied, os.DirFS(w.cluster.StoreDir)))
	manifests, err := filepath.Glob(filepath.Join(streamDir(copied, malloryName), "*.json"))
	if w.must(err); len(manifests) == 0 {
		w.Fatal("no segment is sealed")
	}
	verify := func() bool {
		opened, err := store.Open(copied, store.Options{})
		if err != nil {
			return false
		}
		report, err := opened.Verify(w.calls(), store.VerifyOptions{Stream: malloryName})
		return err == nil && report.OK()
	}
	if !verify() {
		w.Fatal("the copy is not whole before a bit is flipped")
	}
	random := rand.New(rand.NewPCG(5, 22))
	for i := range flipCount {
		path := manifests[0]
		if i%10 != 0 {
			path = strings.TrimSuffix(path, ".json") + ".seg"
		}
		bit := flip(w, path, random)
		if verify() {
			w.Errorf("%s: bit %d is another one, and verification finds nothing", filepath.Base(path), bit)
		}
		flipBit(w, path, bit)
	}
	if !verify() {
		w.Error("the copy is not whole after all bits are as they were")
	}
}

func flip(w *world, path string, random *rand.Rand) (bit int64) {
	w.Helper()
	info, err := os.Stat(path)
	w.must(err)
	bit = random.Int64N(8 * info.Size())
	flipBit(w, path, bit)
	return bit
}

func flipBit(w *world, path string, bit int64) {
	w.Helper()
	w.must(os.Chmod(path, 0o640))
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	w.must(err)
	one := make([]byte, 1)
	_, err = file.ReadAt(one, bit/8)
	w.must(err)
	one[0] ^= 1 << (bit % 8)
	_, err = file.WriteAt(one, bit/8)
	w.must(err)
	w.must(file.Close())
}

package service

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/auditlog"
	"github.com/farlog/farlog/pkg/identity"
)

// Whoever may write the file of rules, the list of revoked certificates or the authority's file rules here without a
// call. So what is read there is an audit event, taken or refused, with the digest of what is there: first what is in
// force at the start, then each other content, whether anybody calls or not.
func TestAudit_FilesThatAreReadAgain(t *testing.T) {
	kept := new(sink)
	g := startGuardedWith(t, "rules: []\n", Config{Audit: kept.record})
	path := func(name string) string { return filepath.Join(g.dir, name) }
	write := func(name, content string) {
		t.Helper()
		// By a rename, as an administrator should: a look at the files must not find one that is half there.
		next := filepath.Join(g.dir, "next")
		if err := os.WriteFile(next, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, path(name)); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) string {
		t.Helper()
		raw, err := os.ReadFile(path(name))
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	seen := 0
	step := func(wanted ...string) {
		t.Helper()
		seen = g.waitFileEvents(kept, seen, wanted)
	}
	digest := func(content string) string { return identity.DigestOf([]byte(content))[:8] }
	const rules, list, authority = "access.yaml", "tls/crl.pem", "tls/ca.crt"
	before := read(list)
	step("ReadAuthority /"+authority+" "+digest(read(authority))+" OK",
		"ReadRevocationList /"+list+" "+digest(before)+" OK", "ReadAccessRules /"+rules+" "+digest("rules: []\n")+" OK")

	g.keeper(identity.KindHost, "trading1", time.Hour)
	if _, err := g.authority.Revoke([]string{path("host-trading1/host.crt")}, time.Now()); err != nil {
		t.Fatal(err)
	}
	newer := read(list)
	write(rules, "rules: nonsense\n")
	step("ReadRevocationList /"+list+" "+digest(newer)+" OK",
		"ReadAccessRules /"+rules+" "+digest("rules: nonsense\n")+" FAILEDPRECONDITION access file ")
	write(list, before)
	write(rules, "rules: []\n")
	step("ReadRevocationList /"+list+" "+digest(before)+" FAILEDPRECONDITION the list of revoked certificates that "+
		"is there now is of ", "ReadAccessRules /"+rules+" "+digest("rules: []\n")+" OK")
	write(list, newer)
	if err := os.Remove(path(rules)); err != nil {
		t.Fatal(err)
	}
	step("ReadRevocationList /"+list+" "+digest(newer)+" OK",
		"ReadAccessRules /"+rules+"  FAILEDPRECONDITION access file ")
}

// A file that the keeper reads says who is let in, or who this process is: what the first ones say is told.
func TestAudit_AreAllFilesThatLetIn(t *testing.T) {
	own := []string{"Cert", "Key"} // of this process; they let nobody in
	told := map[string]bool{"Authority": true, "Revoked": true}
	files := reflect.TypeFor[identity.Files]()
	for i := range files.NumField() {
		if field := files.Field(i); field.Type.Kind() == reflect.String && !told[field.Name] &&
			!slices.Contains(own, field.Name) {
			t.Errorf(
				"identity.Files.%s: expected an audit event when it is read again: add it to Keeper.tellRead, or here "+
					"to those that let nobody in",
				field.Name,
			)
		}
	}
	keeper, err := identity.NewKeeper(identity.In(newGuardDir(t), identity.KindControl), nil)
	if err != nil {
		t.Fatal(err)
	}
	received := map[string]bool{}
	keeper.Watch(func(reading identity.Reading) {
		for name := range told {
			received[name] = received[name] ||
				reflect.ValueOf(keeper.Files()).FieldByName(name).String() == reading.File
		}
	})
	if !reflect.DeepEqual(received, told) {
		t.Errorf("told of %v", received)
	}
}

// newGuardDir is a directory with an authority and a control plane's certificate.
func newGuardDir(t *testing.T) string {
	t.Helper()
	authority, err := identity.InitAuthority(filepath.Join(t.TempDir(), "tls"), "farlog", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := authority.Issue(authority.Dir, identity.Order{
		Kind: identity.KindControl, Name: "control1",
		Validity: time.Hour,
	}, time.Now()); err != nil {
		t.Fatal(err)
	}
	return authority.Dir
}

// Backup gives out every token and Restore replaces all there is: who asks for one without the role is recorded, as
// with the calls that have one answer. A watch that is refused is no audit event.
func TestAudit_RefusedBackupAndRestore(t *testing.T) {
	t.Parallel()
	kept := new(sink)
	g := startGuardedWith(t, "rules: []\n", Config{Audit: kept.record})
	conn := g.dial(g.keeper(identity.KindHost, "mallory", time.Hour))
	client := api.NewControlServiceClient(conn)
	backup, err := client.Backup(t.Context(), &api.BackupRequest{})
	if err == nil {
		_, err = backup.Recv()
	}
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("backup: %v", err)
	}
	restore, err := client.Restore(t.Context())
	if err == nil {
		_, err = restore.CloseAndRecv()
	}
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("restore: %v", err)
	}
	watch, err := api.NewFabricServiceClient(conn).WatchTargets(t.Context(), &api.WatchTargetsRequest{})
	if err == nil {
		_, err = watch.Recv()
	}
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("watch: %v", err)
	}
	refused := func() (whats []string) {
		kept.mutex.Lock()
		defer kept.mutex.Unlock()
		for _, event := range kept.events {
			if event.Outcome == "PERMISSIONDENIED" && strings.HasSuffix(event.Who, "/host/mallory") &&
				event.From != "" &&
				strings.Contains(event.Error, "has not the role admin") {
				whats = append(whats, event.What)
			}
		}
		return whats
	}
	for deadline := time.Now().Add(stepTimeout); len(refused()) < 2 && time.Now().Before(deadline); {
		time.Sleep(pollPause)
	}
	if got := refused(); !slices.Equal(got, []string{"Backup", "Restore"}) {
		t.Errorf("recorded as refused: %v", got)
	}
}

// waitFileEvents waits for these audit events of files behind the first `seen`, and returns how many there are then.
// Their order does not count: a poll of the files may fall between the changes of a step.
func (g *guarded) waitFileEvents(kept *sink, seen int, wanted []string) int {
	g.t.Helper()
	for deadline := time.Now().Add(stepTimeout); kept.count() < seen+len(wanted) && time.Now().Before(deadline); {
		time.Sleep(pollPause)
	}
	var got []string
	for _, event := range kept.all()[seen:] {
		var request auditlog.FileReading
		if err := json.Unmarshal(event.Request, &request); err != nil {
			g.t.Fatal(err)
		}
		got = append(got, strings.Join([]string{
			event.What, strings.TrimPrefix(request.File, g.dir),
			request.SHA256[:min(8, len(request.SHA256))], event.Outcome, event.Error,
		}, " "))
		if event.Who != "control" || event.Instance == "" || (event.Outcome == "OK") != (len(event.Changes) == 1) {
			g.t.Errorf("%+v", event)
		}
	}
	slices.Sort(got)
	slices.Sort(wanted)
	isWanted := func(got, want string) bool { return strings.HasPrefix(got, want) }
	if !slices.EqualFunc(got, wanted, isWanted) {
		g.t.Fatalf("audit events:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(wanted, "\n"))
	}
	return seen + len(got)
}

package access

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/identity"
)

// Every call of the API is in the table, and the table has no other.
func TestCalls_AreThoseOfTheAPI(t *testing.T) {
	known := map[string]bool{}
	for _, service := range []grpc.ServiceDesc{
		api.ControlService_ServiceDesc, api.FabricService_ServiceDesc,
		api.TargetService_ServiceDesc, api.DrainService_ServiceDesc, api.HostService_ServiceDesc,
	} {
		for _, method := range service.Methods {
			known["/"+service.ServiceName+"/"+method.MethodName] = true
		}
		for _, method := range service.Streams {
			known["/"+service.ServiceName+"/"+method.StreamName] = true
		}
	}
	for method := range known {
		if len(calls[method]) == 0 {
			t.Errorf("%s is in no line of the table: say which role it needs", method)
		}
	}
	for method := range calls {
		if strings.HasPrefix(method, "/farlog.") && !known[method] {
			t.Errorf("%s is in the table, but is no call", method)
		}
	}
}

func TestCaller_KindsOfOurAuthority(t *testing.T) {
	for id, want := range map[identity.ID]string{
		"spiffe://farlog/farlog/admin/ada":       "admin append replay audit",
		"spiffe://farlog/farlog/host/trading1":   "append replay",
		"spiffe://farlog/farlog/drain/central1":  "drain",
		"spiffe://farlog/farlog/target/storage1": "target",
		"spiffe://farlog/farlog/control/c1":      "",
		"spiffe://bank/desk7":                    "",
		"dns:admin":                              "",
	} {
		caller := Rules(nil).Caller(id)
		for _, role := range Roles {
			isWanted := strings.Contains(" "+want+" ", " "+string(role)+" ")
			if got := len(caller.Streams(role)) > 0; got != isWanted {
				t.Errorf("%s: role %s: %v", id, role, got)
			}
		}
	}
}

func TestRules_TakeThePlaceOfTheKind(t *testing.T) {
	rules, err := ParseRules([]byte(`
rules:
- identities: [spiffe://bank/desk7/*]
  roles: [append]
  streams: [desk7/*]
- identities: [spiffe://bank/desk7/orders]
  roles: [replay]
  streams: [desk8/**]
- identities: [spiffe://farlog/farlog/host/*]
  roles: []
`))
	if err != nil {
		t.Fatal(err)
	}
	const acquire, get = "/farlog.v1.ControlService/AcquireWriter", "/farlog.v1.ControlService/GetStream"
	for _, test := range []struct {
		id             identity.ID
		method, stream string
		want           bool
	}{
		{"spiffe://bank/desk7/orders", acquire, "desk7/orders", true},
		{"spiffe://bank/desk7/orders", acquire, "desk7/a/b", false},
		{"spiffe://bank/desk7/orders", acquire, "desk8/orders", false},
		{"spiffe://bank/desk7/orders", get, "desk8/a/b", true},
		{"spiffe://bank/desk7/other", get, "desk8/a/b", false},
		{"spiffe://bank/desk7", acquire, "desk7/orders", false},
		{"spiffe://farlog/farlog/host/trading1", acquire, "desk7/orders", false},
		{"spiffe://farlog/farlog/admin/ada", acquire, "desk7/orders", true},
	} {
		if got := rules.Caller(test.id).May(test.method, test.stream) == nil; got != test.want {
			t.Errorf("%s on %s: allowed %v", test.id, test.stream, got)
		}
	}
	err = rules.Caller("spiffe://bank/desk7/other").May(acquire, "desk9")
	if err == nil ||
		!strings.Contains(err.Error(), `spiffe://bank/desk7/other has not the role append on stream "desk9"`) {
		t.Errorf("got %v", err)
	}
}

func TestCaller_SpeaksForItsHostOnly(t *testing.T) {
	rules := Rules{
		{Identities: []string{"spiffe://bank/drains"}, Roles: []Role{RoleDrain}, Hosts: []string{"c1", "c2"}},
	}
	for _, test := range []struct {
		id          identity.ID
		role        Role
		host, agent string
		want        bool
	}{
		{"spiffe://farlog/farlog/target/storage1", RoleTarget, "storage1", "storage1-0011aabb", true},
		{"spiffe://farlog/farlog/target/storage1", RoleTarget, "storage2", "storage2-0011aabb", false},
		{"spiffe://farlog/farlog/target/storage1", RoleTarget, "storage1", "storage2-0011aabb", false},
		{"spiffe://farlog/farlog/target/storage1", RoleTarget, "storage1", "storage1-b-0011aabb", false},
		{"spiffe://farlog/farlog/target/any", RoleTarget, "storage2", "whatever", true},
		{"spiffe://farlog/farlog/drain/any", RoleTarget, "storage2", "whatever", false},
		{"spiffe://bank/drains", RoleDrain, "c2", "c2-00000000", true},
		{"spiffe://bank/drains", RoleDrain, "c3", "c3-00000000", false},
	} {
		if got := rules.Caller(test.id).MaySpeakFor(test.role, test.host, test.agent) == nil; got != test.want {
			t.Errorf("%s for %s on %s: allowed %v", test.id, test.agent, test.host, got)
		}
	}
}

// A grant goes to the host that the certificate names.
func TestCaller_HoldsForItsHostOnly(t *testing.T) {
	rules := Rules{
		{Identities: []string{"spiffe://bank/desk7"}, Roles: []Role{RoleAppend}, Hosts: []string{"t1", "t2"}},
	}
	for _, test := range []struct {
		id   identity.ID
		host string
		want bool
	}{
		{"spiffe://farlog/farlog/host/trading1", "trading1", true},
		{"spiffe://farlog/farlog/host/trading1", "trading2", false},
		{"spiffe://farlog/farlog/host/trading1", "", false},
		{"spiffe://farlog/farlog/host/any", "trading2", true},
		{"spiffe://farlog/farlog/admin/ada", "trading2", true},
		{"spiffe://farlog/farlog/drain/any", "trading2", false},
		{"spiffe://bank/desk7", "t2", true},
		{"spiffe://bank/desk7", "t3", false},
	} {
		if got := rules.Caller(test.id).MayHold("desk7/orders", test.host) == nil; got != test.want {
			t.Errorf("%s for host %q: allowed %v", test.id, test.host, got)
		}
	}
}

// One rule gives its streams on its hosts. What another one says of a host or of a stream adds nothing to that.
func TestCaller_RulesDoNotMixStreamsAndHosts(t *testing.T) {
	both := []Role{RoleAppend, RoleDrain}
	caller := Rules{
		{Identities: []string{"bank"}, Roles: both, Streams: []string{"desk7/*"}, Hosts: []string{"h1"}},
		{Identities: []string{"bank"}, Roles: both, Streams: []string{"desk8/*"}, Hosts: []string{"h2"}},
		{Identities: []string{"bank"}, Roles: []Role{RoleReplay}, Hosts: []string{"h3"}}, // of another role
		{Identities: []string{"bank"}, Roles: []Role{RoleDrain}, Streams: []string{"desk9/*"}},
	}.Caller("bank")
	for _, test := range []struct {
		host           string
		desk7, desk8   bool
		reports        bool
		streams, other string // of the agent of this host, and of an agent with somebody else's id
	}{
		{"h1", true, false, true, "[desk7/* desk9/*]", "[desk9/*]"},
		{"h2", false, true, true, "[desk8/* desk9/*]", "[desk9/*]"},
		{"h3", false, false, false, "[desk9/*]", "[desk9/*]"},
		{"", false, false, false, "[desk9/*]", "[desk9/*]"},
	} {
		if got := caller.MayHold("desk7/x", test.host) == nil; got != test.desk7 {
			t.Errorf("desk7 from host %q: allowed %v", test.host, got)
		}
		if got := caller.MayHoldRoute("desk8/x", test.host) == nil; got != test.desk8 {
			t.Errorf("desk8 from host %q: allowed %v", test.host, got)
		}
		if got := caller.MayReport(test.host) == nil; got != test.reports {
			t.Errorf("report of host %q: allowed %v", test.host, got)
		}
		if got := fmt.Sprint(caller.StreamsOf(RoleDrain, test.host, test.host+"-0011aabb")); got != test.streams {
			t.Errorf("drain on host %q: %s, expected %s", test.host, got, test.streams)
		}
		if got := fmt.Sprint(caller.StreamsOf(RoleDrain, test.host, "h9-0011aabb")); got != test.other {
			t.Errorf("drain h9 on host %q: %s, expected %s", test.host, got, test.other)
		}
	}
	if err := caller.MayHold("desk9/x", "h1"); err == nil ||
		!strings.Contains(err.Error(), `bank has not the role append on stream "desk9/x"`) {
		t.Errorf("desk9 from h1: %v", err)
	}
}

func TestParseRules_SaysWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"rules: [{identities: [a], roles: [king]}]": `line 1, column 35: rules[0].roles[0]: role "king": ` +
			`expected one of`,
		"rules: [{roles: [append]}]":                                  "rules[0]: expected identities",
		"rules: [{identities: [a]}]":                                  "rules[0]: expected roles; [] takes away",
		"rules: [{identities: [a], roles: [append], streams: ['[']}]": `rules[0].streams[0]: stream "["`,
		"rules: [{identities: [a], rolls: [append]}]": `line 1, column 27: rules[0] "rolls": unknown key, ` +
			`expected one of identities, roles, streams, hosts`,
		"rulez: []": `line 1, column 1: "rulez": unknown key`,
		"rules: [{roles: []}, 1]": "rules[0]: expected identities, such as spiffe://farlog/farlog/host/trading1; " +
			"line 1, column 22: rules[1]: expected keys",
		"rules: {}":           "expected a list",
		"rules: 1\nrules: []": `"rules": the key is there twice`,
		"":                    "the file is empty (a file without rules says rules: [])",
		"rules: [{identities: [a], roles: [append]}]\n---\nrules: []": "line 2, column 1: a second document begins " +
			"here",
	} {
		if _, err := ParseRules([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

func TestFile_ReadAgainWhenItChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.yaml")
	write := func(text string, modified time.Time) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, modified, modified); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	write("rules: [{identities: [a], roles: [append]}]", now)
	f, err := OpenFile(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	roleOf := func() bool {
		f.looked = time.Time{}
		return len(f.Caller("a").Streams(RoleAppend)) > 0
	}
	if !roleOf() {
		t.Error("not read")
	}
	write("rules: [", now.Add(time.Second))
	if !roleOf() || f.failure == "" {
		t.Error("a broken file took a right away, or was not told of")
	}
	write("", now.Add(1500*time.Millisecond))
	if !roleOf() || !strings.Contains(f.failure, "the file is empty") {
		t.Errorf("an empty file took the rules away, or was not told of: %q", f.failure)
	}
	write("rules: []", now.Add(2*time.Second))
	if roleOf() || f.failure != "" {
		t.Error("not read again")
	}
	write("", now)
	if _, err := OpenFile(path, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("opened an empty file")
	}
	if _, err := OpenFile(path+".none", slog.New(slog.DiscardHandler)); err == nil {
		t.Error("opened what is not there")
	}
}

// What is recorded of all administrative calls is written by the control plane alone, and read by whoever has the role
// audit.
func TestCaller_StreamsOfTheControlPlane(t *testing.T) {
	const stream = "farlog/audit"
	rules := Rules{
		{Identities: []string{"all"}, Roles: Roles, Streams: []string{"farlog/**"}},
		{Identities: []string{"auditor"}, Roles: []Role{RoleAudit}},
	}
	for id, mayRead := range map[identity.ID]bool{
		"all": true, "auditor": true, "spiffe://farlog/farlog/admin/ada": true,
		"spiffe://farlog/farlog/host/trading1": false, "spiffe://farlog/farlog/drain/central1": false,
	} {
		caller := rules.Caller(id)
		for _, method := range []string{acquireWriter, extendWriter, takeOverStream} {
			if err := caller.May(method, stream); err == nil {
				t.Errorf("%s may write by %s", id, method)
			}
		}
		if err := caller.May(acquireReader, stream); (err == nil) != mayRead {
			t.Errorf("%s reads: %v", id, err)
		}
	}
	if err := Local().May(acquireWriter, stream); err == nil {
		t.Error("without certificates everybody may write it")
	}
	if err := rules.Caller("auditor").May(acquireReader, "desk7/orders"); err == nil {
		t.Error("the role audit reads records of others' streams")
	}
}

// The digest of what a caller may do is another one when a rule gives him another stream, and only then.
func TestCaller_RulesDigest(t *testing.T) {
	digest := func(streams ...string) string {
		rules := Rules{{Identities: []string{"dns:b"}, Roles: []Role{RoleReplay}, Streams: streams}}
		return rules.Caller("dns:b").RulesDigest()
	}
	one, again, more := digest("desk7/orders"), digest("desk7/orders"), digest("desk7/orders", "desk8/*")
	if one != again || one == more {
		t.Errorf("digests %s, again %s, with another stream %s; want the first two alike and alone", one, again, more)
	}
}

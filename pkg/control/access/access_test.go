package access

import (
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
	for _, service := range []grpc.ServiceDesc{api.ControlService_ServiceDesc, api.FabricService_ServiceDesc, api.TargetService_ServiceDesc, api.DrainService_ServiceDesc} {
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
	if err == nil || !strings.Contains(err.Error(), `spiffe://bank/desk7/other has not the role append on stream "desk9"`) {
		t.Errorf("got %v", err)
	}
}

func TestCaller_SpeaksForItsHostOnly(t *testing.T) {
	rules := Rules{{Identities: []string{"spiffe://bank/drains"}, Roles: []Role{RoleDrain}, Hosts: []string{"c1", "c2"}}}
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
	rules := Rules{{Identities: []string{"spiffe://bank/desk7"}, Roles: []Role{RoleAppend}, Hosts: []string{"t1", "t2"}}}
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
		if got := rules.Caller(test.id).MayHold(test.host) == nil; got != test.want {
			t.Errorf("%s for host %q: allowed %v", test.id, test.host, got)
		}
	}
}

func TestParseRules_SaysWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"rules: [{identities: [a], roles: [king]}]":                   `rule 1: role "king": expected one of`,
		"rules: [{roles: [append]}]":                                  "rule 1: expected identities",
		"rules: [{identities: [a], roles: [append], streams: ['[']}]": `rule 1: stream "["`,
		"rules: [{identities: [a], rolls: [append]}]":                 `unknown field "rolls"`,
		"rulez: []": `unknown field "rulez"`,
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
	write("rules: []", now.Add(2*time.Second))
	if roleOf() || f.failure != "" {
		t.Error("not read again")
	}
	if _, err := OpenFile(path+".none", slog.New(slog.DiscardHandler)); err == nil {
		t.Error("opened what is not there")
	}
}

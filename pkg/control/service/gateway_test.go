package service

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
	"github.com/farlog/farlog/pkg/identity"
)

// web is a client of the same port that speaks HTTP/1.1 and JSON.
func (g *guarded) web(keeper *identity.Keeper) *http.Client {
	g.t.Helper()
	config, err := keeper.ClientConfig("127.0.0.1")
	if err != nil {
		g.t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: config}
	g.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: stepTimeout}
}

// ask makes a request and gives the code and the body.
func (g *guarded) ask(client *http.Client, method, path, body string) (int, string) {
	g.t.Helper()
	request, err := http.NewRequestWithContext(g.t.Context(), method, "https://"+g.address+path,
		strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		g.t.Fatal(err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return response.StatusCode, string(raw)
}

// httpCalls are calls over HTTP in order, by whom, and what each answers.
var httpCalls = []struct {
	name, client       string
	method, path, body string
	code               int
	want               string
}{
	{
		"create", "admin", "POST", "/v1/streams",
		`{"spec": {"name": "desk7/orders", "ring_size_bytes": 1048576}}`, 200, `"created":true`,
	},
	{
		"create again", "admin", "POST", "/v1/streams",
		`{"spec": {"name": "desk7/orders", "ring_size_bytes": "1048576"}}`, 200, `"created":false`,
	},
	{
		"create what differs", "admin", "POST", "/v1/streams", `{"spec": {"name": "desk7/orders"}}`, 409,
		`its ring size is 1048576, asked for 67108864`,
	},
	{
		"what differs", "admin", "POST", "/v1/streams", `{"spec": {"name": "desk7/orders"}}`, 409,
		`"field":"spec.ring_size_bytes"`,
	},
	{
		"bad field", "admin", "POST", "/v1/streams", `{"spec": {"name": "a", "align": 96}}`, 400,
		`"field":"spec.align"`,
	},
	{
		"bad field's rule", "admin", "POST", "/v1/streams", `{"spec": {"name": "a", "align": 96}}`, 400,
		`"rule":"expected a power of two from 64 to 4096"`,
	},
	{"unknown parameter", "admin", "GET", "/v1/streams?pagesize=5", "", 400, `"field":"pagesize"`},
	{"bad parameter", "admin", "GET", "/v1/streams?page_size=five", "", 400, `"field":"page_size"`},
	{"bad parameter's value", "admin", "GET", "/v1/streams?page_size=-1", "", 400, `"value":"\"-1\""`},
	{"parameter of no such value", "admin", "GET", "/v1/targets?presence=HERE", "", 400, `"value":"\"HERE\""`},
	{
		"parameter of which values", "admin", "GET", "/v1/targets?presence=HERE", "", 400,
		`"rule":"expected one of PRESENCE_ALIVE, PRESENCE_GONE"`,
	},
	{
		"unknown field's value", "admin", "POST", "/v1/streams", `{"spec": {"name": "a", "aling": 96}}`, 400,
		`"value":"96"`,
	},
	{
		"no such value", "admin", "POST", "/v1/streams", `{"spec": {"name": "a", "policy": "POLICY_WAIT"}}`, 400,
		`"rule":"expected one of POLICY_BLOCK, POLICY_REJECT (line`,
	},
	{"not JSON", "admin", "POST", "/v1/streams", `{`, 400, `"code":3`},
	{"without the role", "host", "POST", "/v1/streams", `{"spec": {"name": "a"}}`, 403, `has not the role admin`},
	{"list", "host", "GET", "/v1/streams?page_size=5&name=desk7/*", "", 200, `"name":"desk7/orders"`},
	{"list too much", "host", "GET", "/v1/streams?page_size=50000", "", 400, `"field":"page_size"`},
	{"get", "host", "GET", "/v1/streams/desk7/orders", "", 200, `"condition":"CONDITION_PENDING"`},
	{"get none", "host", "GET", "/v1/streams/desk7/none", "", 404, `there is none of that name`},
	{
		"change", "admin", "PATCH", "/v1/streams",
		`{"spec": {"name": "desk7/orders", "ring_size_bytes": 1048576, "policy": "POLICY_REJECT"}}`, 200,
		`"after":"reject"`,
	},
	{"fabric", "admin", "GET", "/v1/fabric", "", 200, `"policy":"POLICY_REJECT"`},
	{"delete without the role", "host", "DELETE", "/v1/streams/desk7/orders", "", 403, `has not the role admin`},
	{
		"delete, dry", "admin", "DELETE", "/v1/streams/desk7/orders?dry_run=true", "", 200,
		`"stage":"DELETION_STAGE_DRAINING"`,
	},
	{
		"apply", "admin", "PUT", "/v1/fabric", `{"fabric": {"targets": [{"host": "storage1"}]}, "dry_run": true}`,
		200, `"undeclared":["stream desk7/orders"]`,
	},
	{
		"an old revision", "admin", "PATCH", "/v1/streams", `{"spec": {"name": "desk7/orders"}, "revision": 1}`, 409,
		`"field":"revision"`,
	},
	{
		"declare a target", "admin", "POST", "/v1/targets", `{"spec": {"host": "storage1", "rack": "r1"}}`, 200,
		`"created":true`,
	},
	{"declare a bad one", "admin", "POST", "/v1/targets", `{"spec": {"host": "a b"}}`, 400, `"field":"spec.host"`},
	{"targets", "admin", "GET", "/v1/targets?rack=r1&page_size=1", "", 200, `"host":"storage1"`},
	{"target", "admin", "GET", "/v1/targets/storage1", "", 200, `"presence":"PRESENCE_GONE"`},
	{"targets without the role", "host", "GET", "/v1/targets", "", 403, `has not the role admin or audit`},
	{"take it back", "admin", "DELETE", "/v1/targets/storage1?dry_run=true", "", 200, `"rack":"r1"`},
	{
		"declare a drain", "admin", "POST", "/v1/drains", `{"spec": {"host": "c1", "store_dir": "store"}}`, 400,
		`expected an absolute directory`,
	},
	{"drains", "admin", "GET", "/v1/drains", "", 200, `"drains":[]`},
	{"regions", "host", "GET", "/v1/regions", "", 200, `"regions":[]`},
	{"grants", "admin", "GET", "/v1/grants?role=GRANT_ROLE_WRITER", "", 200, `"grants":[]`},
	{"epochs", "host", "GET", "/v1/epochs", "", 200, `"stream":"desk7/orders"`},
	{"backup without the role", "host", "GET", "/v1/backup", "", 403, `has not the role admin`},
	{"backup", "admin", "GET", "/v1/backup", "", 200, `"key":"spec/streams/desk7/orders"`},
	{"restore without the role", "host", "POST", "/v1/restore", `{"key": "a"}`, 403, `has not the role admin`},
	{
		"restore where streams are", "admin", "POST", "/v1/restore", `{"key": "spec/stream_id", "value": "1"}`, 400,
		`this control plane has streams`,
	},
	{"restore what is no backup", "admin", "POST", "/v1/restore", `{"key": "a"}`, 400, `"field":"key"`},
	{
		"report of a target", "target", "POST", "/v1/reports/targets",
		`{"state": {"agent": {"id": "storage1-00000000", "host": "storage1"}}}`, 200, `"interval":"1s"`,
	},
	{
		"report of another one", "target", "POST", "/v1/reports/targets",
		`{"state": {"agent": {"id": "x-00000000", "host": "x"}}}`, 403, `may not speak for agent`,
	},
	{"report without an id", "target", "POST", "/v1/reports/targets", `{}`, 400, `"field":"agent.id"`},
	{
		"report of a drain without the role", "target", "POST", "/v1/reports/drains", `{}`, 403,
		`has not the role drain`,
	},
	{"agents", "host", "GET", "/v1/agents", "", 403, `has not the role admin or audit`},
	{"another method", "admin", "PUT", "/v1/streams", `{}`, 405, "expected another method"},
	{"no such path", "admin", "GET", "/v2/streams", "", 404, `Not Found`},
}

// The same calls over HTTP, with the same rules, roles and details, on the port of gRPC.
func TestHTTP_SamePortSameRules(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, "rules: []\n")
	admin := g.web(g.keeper(identity.KindAdmin, "ada", time.Hour))
	clients := map[string]*http.Client{
		"admin": admin, "host": g.web(g.keeper(identity.KindHost, "trading1", time.Hour)),
		"target": g.web(g.keeper(identity.KindTarget, "storage1", time.Hour)),
	}
	for _, test := range httpCalls {
		code, body := g.ask(clients[test.client], test.method, test.path, test.body)
		if code != test.code || !strings.Contains(strings.ReplaceAll(body, ": ", ":"),
			strings.ReplaceAll(test.want, ": ", ":")) {
			t.Errorf("%s: got %d %s, want %d %s", test.name, code, body, test.code, test.want)
		}
	}
	if code, body := g.ask(admin, "POST", "/v1/streams",
		`{"spec": {"name": "`+strings.Repeat("a", api.RequestLenMax)+`"}}`); code != 413 ||
		!strings.Contains(body, `"code":8`) {
		t.Errorf("more than may be said: got %d %.100s", code, body)
	}
}

// What cannot be read is named by its whole path, with its value.
func TestHTTP_NamesFieldsByTheirPath(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, "rules: []\n")
	admin := g.web(g.keeper(identity.KindAdmin, "ada", time.Hour))
	for _, test := range []struct{ name, method, path, body, want string }{
		{"unknown field", "POST", "/v1/streams", `{"spec": {"nime": "a"}}`, `"field":"spec.nime"`},
		{
			"value of another type", "POST", "/v1/streams", `{"spec": {"name": "a", "align": "x"}}`,
			`"field":"spec.align"`,
		},
		{"its value", "POST", "/v1/streams", `{"spec": {"name": "a", "align": "x"}}`, `"value":"\"x\""`},
		{
			"value in a list", "PUT", "/v1/fabric",
			`{"fabric": {"streams": [{"name": "a"}, {"name": "b", "members": -1}]}}`,
			`"field":"fabric.streams[1].members"`,
		},
		{"unknown in a list", "PUT", "/v1/fabric", "{\"fabric\": {\"routes\": [\n {\"name\": \"\u00e9\", \"rules\": " +
			"[{\"legs\": [{\"streem\": 1}]}]}]}}", `"field":"fabric.routes[0].rules[0].legs[0].streem"`},
		{
			"number for a name", "POST", "/v1/members/replacements",
			`{"stream": "desk7/orders", "member": 99, "reason": "r"}`, `"value":"99"`,
		},
		{
			"no token", "GET", "/v1/streams?page_token=xx", "",
			`page_token \"xx\": expected next_page_token of the page before`,
		},
		{"no token of regions", "GET", "/v1/regions?page_token=ZGVzazcvb3JkZXJz", "", `"field":"page_token"`},
	} {
		code, body := g.ask(admin, test.method, test.path, test.body)
		if code != 400 || !strings.Contains(strings.ReplaceAll(body, ": ", ":"),
			strings.ReplaceAll(test.want, ": ", ":")) {
			t.Errorf("%s: got %d %s, want %s", test.name, code, body, test.want)
		}
	}
}

// badBodies are requests with several mistakes, and what is said of each.
var badBodies = []struct {
	name, method, path, body string
	want                     []string
}{
	{
		"a stream", "POST", "/v1/streams",
		`{"spec": {"nime": "a", "align": 96, "ringSizeBytes": "x", "name": "b", "name": "c", "deadline": "soon", ` +
			`"level": "ETERNAL"}, "dryRun": 7, "x": {"y": [1]}}`,
		[]string{
			`spec.nime="a": ` + fieldRule + ` (line 1:11)`,
			`spec.ringSizeBytes="x": expected a value of type uint64 (line 1:54)`,
			`spec.name="c": expected the field once: it is there twice`,
			`spec.deadline="soon": expected a value of type google.protobuf.Duration`,
			`spec.level="ETERNAL": expected one of LEVEL_POSTED, LEVEL_VISIBLE`,
			`dryRun=7: expected a value of type bool`, "x={\"y\": [1]}: " + fieldRule,
			`spec.align=96: expected a power of two from 64 to 4096`,
		},
	},
	{
		"a fabric", "PUT", "/v1/fabric", "{\"fabric\": {\"streams\": [\n  {\"name\": 5},\n  {\"name\": \"../b\", " +
			"\"colour\": 1},\n  {\"name\": \"\u00e9\", \"size\": 1}, 7], \"targets\": {}}}",
		[]string{
			`fabric.streams[0].name=5: expected a value of type string (line 2:12)`,
			`fabric.streams[1].colour=1: ` + fieldRule + ` (line 3:20)`,
			`fabric.streams[2].size=1: ` + fieldRule + ` (line 4:17)`,
			`fabric.streams[3]=7: expected a value of type a JSON object (line 4:29)`,
			`fabric.targets={}: expected a value of type a list (line 4:44)`,
			`fabric.streams[1].name="../b": expected 1 to 63`,
			`fabric.streams[2].name="é": expected 1 to 63`,
		},
	},
	{
		"a route", "POST", "/v1/routes",
		`{"spec": {"name": "r", "rules": [{"classes": [{"first": -1}, {"last": 1.5}], "legs": [{"stream": 1}]}], ` +
			`"rules": []}}`,
		[]string{
			`spec.rules[0].classes[0].first=-1: expected a value of type uint32`,
			`spec.rules[0].classes[1].last=1.5: expected a value of type uint32`,
			`spec.rules[0].legs[0].stream=1: expected a value of type string`,
			`spec.rules=[]: expected the field once`,
		},
	},
	{
		"no object", "POST", "/v1/streams", `[1]`,
		[]string{`body=[1]: expected a value of type a JSON object (line 1:1)`},
	},
	{"no JSON", "POST", "/v1/streams", `{"spec": }`, []string{`body="": expected the request`}},
}

// All that is wrong with a body is told at once: fields that there are not, values of another type, fields that are
// there twice, and in what can be read of it what breaks the rules.
func TestHTTP_AllProblemsOfABody(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, "rules: []\n")
	admin := g.web(g.keeper(identity.KindAdmin, "ada", time.Hour))
	for _, test := range badBodies {
		code, body := g.ask(admin, test.method, test.path, test.body)
		var answer struct {
			Details []struct {
				Problems []struct{ Field, Value, Rule string }
			}
		}
		if err := json.Unmarshal([]byte(body), &answer); err != nil || code != 400 || len(answer.Details) == 0 {
			t.Errorf("%s: got %d %s, %v", test.name, code, body, err)
			continue
		}
		told := answer.Details[0].Problems
		for i, one := range told {
			if one.Value == "" {
				one.Value = `""`
			}
			if text := one.Field + "=" + one.Value + ": " + one.Rule; i >= len(test.want) ||
				!strings.HasPrefix(text, test.want[i]) {
				t.Errorf("%s: problem %d is %s", test.name, i, text)
			}
		}
		if len(told) != len(test.want) {
			t.Errorf("%s: %d problems, want %d", test.name, len(told), len(test.want))
		}
	}
}

// Whatever a body has: where protojson takes it for a request nothing is found, and where it does not something is,
// with a place in it.
func TestProblemsOfJSON_AsProtojsonHasIt(t *testing.T) {
	words := rapid.SampledFrom([]string{
		`"spec"`, `"name"`, `"align"`, `"fabric"`, `"streams"`, `"deadline"`,
		`"ringSizeBytes"`, `"ring_size_bytes"`, "{", "}", "[", "]", ":", ",", "1", "-1", `"1"`, `"1s"`, "null", "true",
		`"\u0000"`,
	})
	rapid.Check(t, func(rt *rapid.T) {
		raw := []byte(strings.Join(rapid.SliceOfN(words, 0, 24).Draw(rt, "words"), ""))
		if rapid.Bool().Draw(rt, "begun") {
			raw = fmt.Appendf(nil, `{"fabric": {"streams": [{%s}], "targets": %s}}`, raw,
				rapid.SampledFrom([]string{"[]", "{}", "[{}]", "null", "[null]"}).Draw(rt, "targets"))
		}
		if !json.Valid(raw) {
			return
		}
		for _, message := range []proto.Message{new(api.ApplyFabricRequest), new(api.CreateStreamRequest)} {
			err := protojson.Unmarshal(raw, message.ProtoReflect().New().Interface())
			if problems := problemsOfJSON(raw, message); (err != nil) != (len(problems) > 0) {
				rt.Fatalf("%s: protojson says %v, told are %v", raw, err, problems)
			}
		}
	})
}

// A watch over HTTP is a line of JSON a message, as they come.
func TestHTTP_Watch(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, "rules: []\n")
	keeper := g.keeper(identity.KindAdmin, "ada", time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), stepTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, "GET", "https://"+g.address+"/v1/watch/streams", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := g.web(keeper).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	next := func() (names []string) {
		t.Helper()
		if !lines.Scan() {
			t.Fatalf("the watch ended: %v", lines.Err())
		}
		var line struct {
			Result struct {
				Streams []struct{ Spec struct{ Name string } }
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		for _, stream := range line.Result.Streams {
			names = append(names, stream.Spec.Name)
		}
		return names
	}
	if names := next(); len(names) != 0 {
		t.Errorf("got %v", names)
	}
	if _, err := api.NewControlServiceClient(g.dial(keeper)).CreateStream(ctx,
		&api.CreateStreamRequest{Spec: &api.StreamSpec{Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	if names := next(); len(names) != 1 || names[0] != "a" {
		t.Errorf("got %v", names)
	}
}

// Without TLS the first bytes tell gRPC from HTTP; clients that say nothing keep nobody else out.
func TestPort_WithoutTLS(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	address := one.conn.Target()
	for range 100 {
		silent, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
	}
	one.create("a")
	defer http.DefaultClient.CloseIdleConnections()
	response, err := http.Get("http://" + address + "/v1/streams/a")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || response.StatusCode != 200 ||
		!strings.Contains(string(body), `"a"`) {
		t.Errorf("got %d %s, %v", response.StatusCode, body, err)
	}
}

// Without TLS there is nobody's certificate to ask for: a web page in a browser on the host must not pass for a program
// of it.
func TestHTTP_NoWebPageWithoutTLS(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	address := one.conn.Target()
	_, port, _ := net.SplitHostPort(address)
	for name, test := range map[string]struct {
		change func(*http.Request)
		code   int
	}{
		"a program":            {func(*http.Request) {}, 200},
		"by name":              {func(r *http.Request) { r.Host = "localhost:" + port }, 200},
		"a page":               {func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, 403},
		"a page of this host":  {func(r *http.Request) { r.Header.Set("Origin", "null") }, 403},
		"an image of a page":   {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
		"a name that was bent": {func(r *http.Request) { r.Host = "evil.example:" + port }, 403},
	} {
		request, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+address+"/v1/streams",
			strings.NewReader(`{"spec": {"name": "a"}}`))
		if err != nil {
			t.Fatal(err)
		}
		test.change(request)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != test.code {
			t.Errorf("%s: got %d, want %d", name, response.StatusCode, test.code)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

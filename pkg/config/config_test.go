package config

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"pgregory.net/rapid"
)

type settings struct {
	address string
	roles   []string
	timeout time.Duration
	size    uint64
	quiet   bool
}

func declare(t *testing.T, args ...string) (*settings, *Set) {
	t.Helper()
	values, set, err := parse(args...)
	if err != nil {
		t.Fatal(err)
	}
	return values, set
}

func parse(args ...string) (*settings, *Set, error) {
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	values, set := &settings{}, New(flags)
	set.String(&values.address, "metrics.listen", "127.0.0.1:9464", "where", AddressOrOff)
	set.Strings(&values.roles, "roles", []string{"control"}, "which", EachOf("control", "target", "drain"))
	set.Duration(&values.timeout, "flush.timeout", time.Second, "how long",
		Range(time.Microsecond, time.Hour, time.Duration.String))
	set.Size(&values.size, "segment.bytes", 64<<20, "how large", Range(4096, uint64(1<<40), FormatSize))
	set.Bool(&values.quiet, "quiet", false, "say less")
	return values, set, flags.Parse(args)
}

func environment(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "farlog.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoad_PrecedenceIsFlagEnvironmentFileDefault(t *testing.T) {
	path := writeFile(t, "flush:\n  timeout: 1ms\nsegment.bytes: 1MiB\nroles: [drain, target]\nquiet: true\n")
	lookup := environment("FARLOG_SEGMENT_BYTES", "2MiB", "FARLOG_FLUSH_TIMEOUT", "2ms")
	values, set := declare(t, "--flush-timeout", "250us")
	if err := set.Load(path, lookup); err != nil {
		t.Fatal(err)
	}
	if values.timeout != 250*time.Microsecond {
		t.Errorf("flag does not win: %v", values.timeout)
	}
	if values.size != 2<<20 {
		t.Errorf("environment does not win over the file: %d", values.size)
	}
	if strings.Join(values.roles, ",") != "drain,target" || !values.quiet {
		t.Errorf("file is not read: %v %v", values.roles, values.quiet)
	}
	if values.address != "127.0.0.1:9464" {
		t.Errorf("default is lost: %q", values.address)
	}
}

func TestLoad_LargeNumberInFileKeepsItsDigits(t *testing.T) {
	values, set := declare(t)
	if err := set.Load(writeFile(t, "segment:\n  bytes: 67108864\n"), environment()); err != nil {
		t.Fatal(err)
	}
	if values.size != 67108864 {
		t.Errorf("got %d", values.size)
	}
}

func TestLoad_BadInputNamesSettingValueAndExpectation(t *testing.T) {
	cases := []struct {
		name, file string
		env        []string
		args       []string
		want       []string
	}{
		{
			name: "unknown key", file: "flush.timeot: 1s\n",
			want: []string{`unknown setting "flush.timeot"`, "did you mean flush.timeout?"},
		},
		{name: "duplicate key", file: "quiet: true\nquiet: false\n", want: []string{"farlog.yaml", "quiet"}},
		{name: "not YAML", file: "\tx", want: []string{
			"farlog.yaml:1:1: expected YAML of settings: found character that cannot start any token",
		}},
		{
			name: "size in environment", env: []string{"FARLOG_SEGMENT_BYTES", "64MB"},
			want: []string{`FARLOG_SEGMENT_BYTES "64MB"`, "KiB, MiB"},
		},
		{
			name: "negative duration in file", file: "flush: {timeout: -5s}\n",
			want: []string{`flush.timeout "-5s"`, "zero or more"},
		},
		{
			name: "duration without unit in file", file: "flush: {timeout: 5}\n",
			want: []string{`flush.timeout "5"`, "with a unit"},
		},
		{
			name: "out of range", args: []string{"--segment-bytes", "12"},
			want: []string{`--segment-bytes "12"`, "expected 4KiB to 1TiB"},
		},
		{
			name: "address", args: []string{"--metrics-listen", "nine"},
			want: []string{`--metrics-listen "nine"`, "expected host:port"},
		},
		{name: "port", args: []string{"--metrics-listen", "a:99999"}, want: []string{"0 to 65535"}},
		{
			name: "role", args: []string{"--roles", "control,moon"},
			want: []string{`"moon"`, "any of control, target, drain"},
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			_, set := declare(t, tc.args...)
			path := ""
			if tc.file != "" {
				path = writeFile(t, tc.file)
			}
			err := set.Load(path, environment(tc.env...))
			if err == nil {
				t.Fatal("no error")
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
		})
	}
}

func TestLoad_FileMissing(t *testing.T) {
	_, set := declare(t)
	err := set.Load(filepath.Join(t.TempDir(), "none.yaml"), environment())
	if err == nil || !strings.Contains(err.Error(), "none.yaml") {
		t.Fatalf("got %v", err)
	}
}

func TestFlag_BadValueIsRefusedAtParse(t *testing.T) {
	for _, args := range [][]string{
		{"--segment-bytes", "-1"},
		{"--segment-bytes", "1.5MiB"},
		{"--segment-bytes", "99999999999TiB"},
		{"--flush-timeout", "-1s"},
		{"--flush-timeout", "soon"},
	} {
		if _, _, err := parse(args...); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
}

func TestSize_FormatThenParseGivesTheSameNumber(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		bytes := rapid.Uint64().Draw(rt, "bytes") >> rapid.IntRange(0, 63).Draw(rt, "shift")
		again, err := ParseSize(FormatSize(bytes))
		if err != nil || again != bytes {
			rt.Fatalf("%d -> %q -> %d, %v", bytes, FormatSize(bytes), again, err)
		}
	})
	if _, err := ParseSize("18446744073709551615"); err != nil {
		t.Errorf("%d: %v", uint64(math.MaxUint64), err)
	}
}

func TestNearest_OffersTypingMistakesOnly(t *testing.T) {
	known := []string{"desk7/orders", "desk7/fills", "desk8/orders", "market"}
	cases := []struct{ name, want string }{
		{"desk7/order", "desk7/orders desk8/orders"},
		{"orders", "desk7/orders desk8/orders"},
		{"markte", "market"},
		{"zzzzzzzzzzzz", ""},
	}
	for _, tc := range cases {
		if got := strings.Join(Nearest(tc.name, known), " "); got != tc.want {
			t.Errorf("Nearest(%q) = %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestLoad_ListIsToldAsItWasGiven(t *testing.T) {
	_, set := declare(t, "--roles", "target,nothing")
	if err := set.Load("", environment()); err == nil || !strings.HasPrefix(err.Error(), `--roles "target,nothing": `) {
		t.Errorf("expected the list without brackets, got %v", err)
	}
}

// Given tells the source of what is not as by default, for errors about settings that do not go together.
func TestGiven_TellsTheSource(t *testing.T) {
	path := writeFile(t, "flush.timeout: 1ms\n")
	_, set := declare(t, "--roles", "drain")
	if err := set.Load(path, environment("FARLOG_SEGMENT_BYTES", "2MiB")); err != nil {
		t.Fatal(err)
	}
	want := []string{path + `: flush.timeout "1ms"`, `--roles "drain"`, `FARLOG_SEGMENT_BYTES "2MiB"`}
	if got := set.Given("flush.timeout", "roles", "quiet", "segment.bytes"); !slices.Equal(got, want) {
		t.Errorf("got %q, expected %q", got, want)
	}
}

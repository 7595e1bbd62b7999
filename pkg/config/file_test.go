package config

import (
	"errors"
	"strings"
	"testing"
)

// loadError is what Load says of a file.
func loadError(t *testing.T, text string, env ...string) *Error {
	t.Helper()
	_, set := declare(t)
	err := set.Load(writeFile(t, text), environment(env...))
	var found *Error
	if err != nil && !errors.As(err, &found) {
		t.Fatalf("%v is not an *Error", err)
	}
	return found
}

func TestLoad_EveryMistakeOfAFileWithLineAndColumn(t *testing.T) {
	err := loadError(t, strings.Join([]string{
		"flush:",
		"  timeout: 5",
		"  timeot: 1s",
		"roles: [control, moon]",
		"segment.bytes: 12",
		"quiet: perhaps",
		"metrics:",
		"- listen",
		"flush.timeout: 1s",
		"nothing: {at: all}",
		"",
	}, "\n"), "FARLOG_METRICS_LISTEN", "nine")
	want := []string{
		`farlog.yaml:2:12: flush.timeout "5": duration "5": expected a number with a unit, such as 250us`,
		`farlog.yaml:3:3: unknown setting "flush.timeot": did you mean flush.timeout?`,
		`farlog.yaml:4:8: roles "control,moon": "moon": expected any of control, target, drain`,
		`farlog.yaml:5:16: segment.bytes "12": expected 4KiB to 1TiB`,
		`farlog.yaml:6:8: quiet "perhaps": expected true or false`,
		`farlog.yaml:8:1: metrics "": expected settings, as NAME: VALUE`,
		`farlog.yaml:9:1: flush.timeout: the setting is there twice, first in line 2`,
		`farlog.yaml:10:1: unknown setting "nothing": expected one of `,
		`FARLOG_METRICS_LISTEN "nine": expected host:port`,
	}
	if err == nil || len(err.Lines) != len(want) {
		t.Fatalf("got:\n%v\nexpected %d mistakes", err, len(want))
	}
	for i, line := range err.Lines {
		if !strings.Contains(line, want[i]) {
			t.Errorf("line %d:\ngot  %s\nwant %s", i, line, want[i])
		}
	}
}

func TestLoad_ValuesThatAreNone(t *testing.T) {
	for text, want := range map[string]string{
		"flush:\n  timeout:\n": "farlog.yaml:2:11: flush.timeout \"\": expected a value, a list of values, or no such ",
		"flush: 5\n":           "farlog.yaml:1:8: flush \"5\": expected settings, as NAME: VALUE",
		"roles: [{a: b}]\n":    "farlog.yaml:1:9: roles \"\": expected a value, a list of values, or no such key",
		"a: &a\n  b: *a\n":     "farlog.yaml:1:1: unknown setting \"a\"",
		"flush: &a {b: *a}\n":  "unknown setting \"flush.b\"",
		"- quiet\n":            "farlog.yaml:1:1:  \"\": expected settings, as NAME: VALUE",
	} {
		if err := loadError(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

func TestLoad_FileOfCommentsIsNoSettings(t *testing.T) {
	for _, text := range []string{"", "# quiet: true\n", "flush:\n#  timeout: 1s\n"} {
		if err := loadError(t, text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestLoad_WordOffIsAText(t *testing.T) {
	values, set := declare(t)
	if err := set.Load(writeFile(t, "metrics.listen: off\n"), environment()); err != nil || values.address != "off" {
		t.Errorf("got %q, %v", values.address, err)
	}
}

func TestLoad_HidesPasswordsInWhatItReports(t *testing.T) {
	err := loadError(t, "quiet: http://ada:secret@host/\n")
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

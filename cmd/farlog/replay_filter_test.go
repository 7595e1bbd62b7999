package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A filtered replay writes the records that a query with the same flags finds, of a stream and of all in one order.
func TestReplay_FiltersAsAQueryDoes(t *testing.T) {
	dir := storeMixed(t)
	if _, talk, code := runFarlog(t, "merge", dir, "--final"); code != exitOK {
		t.Fatal(talk)
	}
	for _, flags := range [][]string{
		{"--class", "1,3"},
		{"--key", "ORD-3", "--key", "ORD-17"},
		{"--filter", "'35' in fix && fix['35'] == '8'"},
		{"--class", "2", "--filter", "len > 100 && seq % 2 == 0"},
		{"--key", "none"},
		{"--filter", "stream == 'desk7/orders' && store == '" + dir + "'"},
	} {
		var want []string
		for _, stream := range []string{"desk7/orders", "desk7/trades", "desk8/orders"} {
			found, talk, code := runFarlog(t, append([]string{
				"query", dir, "--stream", stream, "-o", "json",
			}, flags...)...)
			if code != exitOK {
				t.Fatal(talk)
			}
			of := places(readLines(t, found))
			got, talk, code := runFarlog(t, append([]string{
				"replay", dir, "--stream", stream, "--speed", "max", "--format", "json",
			}, flags...)...)
			if lines := places(readLines(t, got)); code != exitOK || !slices.Equal(lines, of) {
				t.Errorf("%q of %s: exit code %d: %s; %d records, expected %d", flags, stream, code, talk, len(lines),
					len(of))
			}
			want = append(want, of...)
		}
		got, talk, code := runFarlog(t, append([]string{
			"replay", dir, "--merged", "--speed", "max", "--format", "json",
		}, flags...)...)
		lines := places(readLines(t, got))
		slices.Sort(lines)
		slices.Sort(want)
		if code != exitOK || !slices.Equal(lines, want) {
			t.Errorf("%q merged: exit code %d: %s; %d records, expected %d", flags, code, talk, len(lines), len(want))
		}
	}
	for want, flags := range map[string][]string{
		"--class 65536":                {"--class", "65536"},
		"line 1, column 6":             {"--filter", "len >"},
		"no such key: 55":              {"--filter", "fix['55'] == 'BMW'"},
		"stream desk7/orders, lsn 128": {"--filter", "1 / (lsn - lsn) == 1"},
	} {
		_, talk, code := runFarlog(t, append([]string{
			"replay", dir, "--stream", "desk7/orders", "--speed", "max",
		}, flags...)...)
		if code == exitOK || !strings.Contains(talk, want) {
			t.Errorf("%q: exit code %d: %s, expected %q", flags, code, talk, want)
		}
	}
}

// places are the streams and lsns of records.
func places(lines []queryLine) (places []string) {
	for _, line := range lines {
		places = append(places, fmt.Sprint(line.Stream, line.Epoch, line.LSN, line.Class, line.Key))
	}
	return places
}

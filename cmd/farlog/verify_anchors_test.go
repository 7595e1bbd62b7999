package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/store"
)

// The output of one verification is what the next one is given as anchors: a store that has grown agrees, one that is
// shorter, or another one, does not. A file that says nothing is refused.
func TestVerify_Anchors(t *testing.T) {
	var payloads []string
	for i := range 300 {
		payloads = append(payloads, fmt.Sprintf("order %03d", i))
	}
	dir := storeOf(t, 16<<10, payloads)
	if table, _, code := runFarlog(t, "verify", dir); code != exitOK || !strings.Contains(table, "; not proved: ") {
		t.Fatalf("exit code %d without an anchor:\n%s", code, table)
	}
	document, talk, code := runFarlog(t, "verify", dir, "--output", "json")
	if code != exitOK {
		t.Fatal(talk)
	}
	anchors := filepath.Join(t.TempDir(), "anchors.json")
	if err := os.WriteFile(anchors, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	table, talk, code := runFarlog(t, "verify", dir, "--anchor", anchors)
	if code != exitOK || !strings.Contains(table, "is proved by the anchor of "+anchors+" of ") {
		t.Fatalf("exit code %d, stderr %q:\n%s", code, talk, table)
	}
	var result verifyResult
	document, _, _ = runFarlog(t, "verify", dir, "--anchor", anchors, "--output", "json")
	if err := json.Unmarshal([]byte(document), &result); err != nil || !result.Streams[0].IsEndProved {
		t.Fatalf("%v: %s", err, document)
	}
	last := result.Anchors[0].Segment
	for _, number := range []uint64{last, last + 1} { // and the one that is prepared
		names, err := filepath.Glob(filepath.Join(dir, "streams", "desk7%2Forders", fmt.Sprintf("%010d.*", number)))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if table, _, code = runFarlog(t, "verify", dir); code != exitOK {
		t.Fatalf("exit code %d without the last segment, and without an anchor:\n%s", code, table)
	}
	_, talk, code = runFarlog(t, "verify", dir, "--anchor", anchors)
	if code != exitFailure || !strings.Contains(talk, "its end is missing") {
		t.Errorf("exit code %d, stderr %q", code, talk)
	}
	_, talk, code = runFarlog(t, "verify", storeOf(t, 16<<10, payloads), "--anchor", anchors)
	if code != exitFailure || !strings.Contains(talk, "this is store ") {
		t.Errorf("another store: exit code %d, stderr %q", code, talk)
	}
}

func TestVerify_AnchorFileIsNotThereOrEmpty(t *testing.T) {
	dir := storeOf(t, 16<<10, []string{"order"})
	missing := filepath.Join(t.TempDir(), "missing")
	if _, talk, code := runFarlog(t, "verify", dir, "--anchor", missing); code != exitFailure ||
		!strings.Contains(talk, missing) {
		t.Errorf("exit code %d, stderr %q", code, talk)
	}
	raw, err := store.FormatAnchors(nil)
	if err == nil {
		err = os.WriteFile(missing, raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, talk, code := runFarlog(t, "verify", dir, "--anchor", missing); code != exitFailure ||
		!strings.Contains(talk, "no anchor") {
		t.Errorf("exit code %d, stderr %q", code, talk)
	}
}

// A control plane that does not answer may have an anchor: that is a failure, and not its absence.
func TestVerify_AnchoredWithoutControlPlane(t *testing.T) {
	dir := storeOf(t, 16<<10, []string{"order"})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() // it takes connections and says nothing
	_, talk, code := runFarlog(t, "verify", dir, "--anchored", "--control", listener.Addr().String(), "--insecure",
		"--timeout", "300ms")
	if code != exitFailure || !strings.Contains(talk, "--anchored: ") {
		t.Errorf("exit code %d, stderr %q", code, talk)
	}
}

// A stream without an anchor fails, and a control plane that names another store for it does as well.
func TestVerify_RequiredAnchors(t *testing.T) {
	result := verifyResult{OK: true, Path: "store", Streams: []store.StreamReport{
		{Stream: "a", IsEndProved: true}, {Stream: "b"},
	}}
	result.requireAnchors()
	if result.OK || result.Streams[0].Failure != nil || result.Streams[1].Failure == nil {
		t.Errorf("%+v", result)
	}
	want := "verify store: stream b: no anchor of the stream is known, so its end is not proved"
	if text := result.failure().Error(); text != want {
		t.Error(text)
	}
}

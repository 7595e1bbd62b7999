package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Of inputs that run the same the shortest is kept, none whose blocks others run, and no block is lost.
func TestFewest_RunAllBlocksThatAllRun(t *testing.T) {
	one := func(name string, length int, blocks ...string) *input {
		return &input{name: name, raw: make([]byte, length), blocks: blocks}
	}
	list := []*input{
		one("long", 90, "a", "b", "c"), one("short", 10, "a", "b", "c"), one("part", 1, "a", "b"),
		one("other", 50, "c", "d"), one("nothing", 0),
	}
	kept, blocks := fewest(list)
	var names []string
	for _, each := range kept {
		names = append(names, each.name)
	}
	if got := strings.Join(names, " "); got != "short other" || blocks != 4 {
		t.Errorf("kept %s, %d blocks; expected short other, 4 blocks", got, blocks)
	}
}

// What was saved before may have failed once: it is kept, whatever it runs, and need not be found again.
func TestFewest_KeepsWhatIsSaved(t *testing.T) {
	crasher := &input{name: "crasher", raw: make([]byte, 90), isSaved: true, blocks: []string{"a"}}
	kept, blocks := fewest([]*input{
		{name: "same", blocks: []string{"a"}}, crasher, {name: "more", blocks: []string{"a", "b"}},
	})
	if len(kept) != 2 || kept[0] != crasher || kept[1].name != "more" || blocks != 2 {
		t.Errorf("kept %v, %d blocks; expected crasher, more, 2 blocks", kept, blocks)
	}
}

// An error leaves the tree as it was.
func TestSave_FailureLeavesTheTreeAlone(t *testing.T) {
	cached := t.TempDir()
	one := corpus{folder: t.TempDir(), binary: "/bin/false", target: "FuzzRecord", scratch: t.TempDir()}
	if err := os.MkdirAll(one.saved(), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(cached, "found"), filepath.Join(one.saved(), "crasher")} {
		if err := os.WriteFile(path, []byte("go test fuzz v1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := one.save(cached); err == nil {
		t.Error("saved, although no input could be measured")
	}
	entries, err := os.ReadDir(one.saved())
	if err != nil || len(entries) != 1 || entries[0].Name() != "crasher" {
		t.Errorf("the tree has %v, %v; expected crasher alone", entries, err)
	}
}

package main

import (
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

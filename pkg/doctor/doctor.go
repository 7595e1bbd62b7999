// Package doctor looks at a host and says what stands in the way of farlog there: RDMA devices, limits, memory,
// processor, clock and disks. It changes nothing. What it cannot see is a warning that says so, and never ok. The
// control plane and certificates are looked at by the program that has the means.
package doctor

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/farlog/farlog/pkg/internal/keeper"
)

// State is how a finding is to be taken.
type State string

// The states. Only fail is an error for a probe.
const (
	OK   State = "ok"
	Warn State = "warn"
	Fail State = "fail"
)

// Finding is one line: what was looked at, how it is, why, and the command that mends it.
type Finding struct {
	Check  string `json:"check"`
	State  State  `json:"state"`
	Reason string `json:"reason"`
	Remedy string `json:"remedy,omitempty"`
}

// Host is what is looked at: the files below a root, which is / outside tests.
type Host struct {
	Root  string
	tried func() error // whether io_uring is allowed; nil: this process tries it
}

// Examine looks at everything but disks, which have to be named.
func (h Host) Examine() []Finding {
	return slices.Concat(h.rdma(), h.limits(), h.memory(), h.processor(), h.clock(), []Finding{clockOffset(keeper.Run)})
}

func (h Host) path(path string) string { return filepath.Join(h.Root, path) }

// read gives a file's content without blanks around it; "" when there is none.
func (h Host) read(path string) string {
	raw, err := os.ReadFile(h.path(path))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

// number is false for a file that is not there or holds none.
func (h Host) number(path string) (int64, bool) {
	value, err := strconv.ParseInt(h.read(path), 10, 64)
	return value, err == nil
}

// glob lists paths below the root, as they are below it.
func (h Host) glob(pattern string) []string {
	found, _ := filepath.Glob(h.path(pattern)) // the patterns are ours
	for i, path := range found {
		found[i] = strings.TrimPrefix(path, strings.TrimSuffix(filepath.Clean(h.Root), "/"))
	}
	slices.Sort(found)
	return found
}

// chosen is the word in brackets of a file such as "always [madvise] never".
func chosen(text string) string {
	for _, word := range strings.Fields(text) {
		if inner, ok := strings.CutPrefix(word, "["); ok {
			return strings.TrimSuffix(inner, "]")
		}
	}
	return text
}

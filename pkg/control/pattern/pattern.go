// Package pattern matches names of streams.
package pattern

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// All means every stream.
const All = "*"

// SystemPrefix begins the names of streams that the control plane makes for itself.
const SystemPrefix = "farlog/"

// IsSystem tells a stream of the control plane's own: it is not declared by operators nor made by them, and nobody else
// writes it.
func IsSystem(stream string) bool { return strings.HasPrefix(stream, SystemPrefix) }

// Covers reports whether one of the patterns means a stream: "*" alone all of them, "**" at the end all below, * within
// a part anything.
func Covers(patterns []string, stream string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if pattern == All {
			return true
		}
		if prefix, ok := strings.CutSuffix(pattern, "**"); ok {
			return strings.HasPrefix(stream, prefix)
		}
		isMatch, err := path.Match(pattern, stream)
		return err == nil && isMatch
	})
}

// Check says what is wrong with a pattern.
func Check(pattern string) error {
	if _, err := path.Match(strings.TrimSuffix(pattern, "**"), ""); err != nil || pattern == "" {
		return fmt.Errorf("stream %q: expected a name or a pattern such as desk7/* or desk7/**", pattern)
	}
	return nil
}

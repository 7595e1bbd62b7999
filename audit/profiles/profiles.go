// Package profiles has the mapping files that are shipped (docs/reference/profiles.md).
package profiles

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed *.yaml
var files embed.FS

const suffix = ".yaml"

// Names are those of the mapping files, without .yaml.
func Names() (names []string) {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(err) // of this program
	}
	for _, entry := range entries {
		names = append(names, strings.TrimSuffix(entry.Name(), suffix))
	}
	return names
}

// Read gives a mapping file by its name. The error says which there are.
func Read(name string) ([]byte, error) {
	raw, err := files.ReadFile(name + suffix)
	if err != nil {
		return nil, fmt.Errorf("profile %q: expected one of %s, or the path of a mapping file (./mine.yaml)", name,
			strings.Join(Names(), ", "))
	}
	return raw, nil
}

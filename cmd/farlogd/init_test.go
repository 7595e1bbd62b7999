package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/spf13/pflag"
)

// commentedOut finds the settings that an example names without making them.
var commentedOut = regexp.MustCompile(`(?m)^#([a-z])`)

// Whoever takes the # away from settings of farlog init's examples gets valid ones.
func TestInit_SettingsInCommentsAreValid(t *testing.T) {
	for _, role := range []string{roleControl, roleTarget, roleDrain, roleHost, roleReplica} {
		written, err := os.ReadFile(filepath.Join("..", "farlog", "init", role+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		all := commentedOut.ReplaceAll(written, []byte("$1"))
		if len(all) == len(written) {
			t.Errorf("%s: no setting in a comment", role)
		}
		path := filepath.Join(t.TempDir(), role+".yaml")
		if err := os.WriteFile(path, all, 0o600); err != nil {
			t.Fatal(err)
		}
		_, set, _ := declareSettings(pflag.NewFlagSet(role, pflag.ContinueOnError), role, "off")
		if err := set.Load(path, func(string) (string, bool) { return "", false }); err != nil {
			t.Errorf("%s: %v", role, err)
		}
	}
}

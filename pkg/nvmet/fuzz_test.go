package nvmet

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// Whatever a saved file says, no step leads out of the kernel's directory, and what is taken is saved and read again as
// the same.
func FuzzReadSaved(f *testing.F) {
	known, err := os.ReadFile("testdata/nvmetcli.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(known)
	f.Add([]byte(`{"subsystems":[{"nqn":"..","attr":{"../x":1}}],` +
		`"ports":[{"portid":1,"referrals":[{"name":"a/b"}],"ana_groups":[{"grpid":-1,"ana":{"state":"x"}}]}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		config, err := ReadSaved(raw)
		if err != nil {
			return
		}
		for _, step := range append(Plan(&Config{}, config), Plan(config, &Config{})...) {
			if !filepath.IsLocal(step.Path) || step.Op == Link && !filepath.IsLocal(step.Value) {
				t.Fatalf("a step leads elsewhere: %s", step)
			}
		}
		saved, err := config.Saved()
		if err != nil {
			t.Fatal(err)
		}
		again, err := ReadSaved(saved)
		if err != nil {
			t.Fatalf("what was saved is refused: %v\n%s", err, saved)
		}
		if second, err := again.Saved(); err != nil || !bytes.Equal(second, saved) {
			t.Fatalf("saved again it is %s\nit was %s (%v)", second, saved, err)
		}
	})
}

// Whatever a declaration says, what is taken of it can be planned, and its steps stay in the kernel's directory.
func FuzzReadDeclaration(f *testing.F) {
	f.Add([]byte(declared))
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := ReadDeclaration(raw)
		if err != nil {
			return
		}
		state := &State{Keys: map[string]*HostKeys{}}
		wanted, _ := state.Wanted(d, &Config{})
		for _, step := range Plan(&Config{}, wanted) {
			if !filepath.IsLocal(step.Path) || step.Op == Link && !filepath.IsLocal(step.Value) {
				t.Fatalf("a step leads elsewhere: %s", step)
			}
		}
		if err := wanted.check(); err != nil {
			t.Fatalf("what was taken is not one: %v", err)
		}
	})
}

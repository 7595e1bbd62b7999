package safefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	for name, test := range map[string]struct {
		file, dir os.FileMode
		want      string
	}{
		"of its owner":                {0o600, 0o755, ""},
		"of its group":                {0o664, 0o775, ""},
		"in a directory like /tmp":    {0o644, 0o777 | fs.ModeSticky, ""},
		"of everybody":                {0o666, 0o755, "every user of this host can change it (mode 0666): chmod o-w "},
		"in a directory of everybody": {0o600, 0o777, "every user of this host can replace it: chmod o-w "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "rules.yaml")
			if err := errors.Join(os.WriteFile(path, []byte("rules: []"), 0o600), os.Chmod(path, test.file),
				os.Chmod(dir, test.dir)); err != nil {
				t.Fatal(err)
			}
			raw, info, err := Read(path)
			if test.want == "" {
				if err != nil || string(raw) != "rules: []" || info.Size() != 9 {
					t.Fatalf("%q, %v, %v", raw, info, err)
				}
			} else if err == nil || !strings.Contains(err.Error(), path+": "+test.want) {
				t.Fatalf("%v, expected %s", err, test.want)
			}
		})
	}
	if _, _, err := Read(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("one that is not there: %v", err)
	}
}

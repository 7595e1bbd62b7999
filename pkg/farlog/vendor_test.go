package farlog_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const program = `package main

import (
	"fmt"
	"os"

	"github.com/farlog/farlog/pkg/farlog"
)

func main() {
	options := farlog.FormatOptions{SizeBytes: 1 << 20, StreamName: "desk7/orders"}
	if err := farlog.Format(os.Args[1], options); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("formatted")
}
`

// scratch is a module of its own that uses this one from outside.
type scratch struct {
	t   *testing.T
	dir string
}

func (s scratch) write(name, content string) {
	s.t.Helper()
	path := filepath.Join(s.dir, filepath.FromSlash(name))
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// add puts text at the end of a vendored file, and gives the function that takes it away again.
func (s scratch) add(name, text string) (undo func()) {
	s.t.Helper()
	path := "vendor/github.com/farlog/farlog/" + name
	content, err := os.ReadFile(filepath.Join(s.dir, filepath.FromSlash(path)))
	if err != nil {
		s.t.Fatalf("%v: expected go mod vendor to take it along", err)
	}
	s.write(path, string(content)+text)
	return func() { s.write(path, string(content)) }
}

func (s scratch) run(name string, arguments ...string) (string, error) {
	command := exec.Command(name, arguments...)
	command.Dir = s.dir
	command.Env = append(os.Environ(), "GOFLAGS=", "GOPROXY=off", "GOWORK=off", "CGO_ENABLED=1")
	out, err := command.CombinedOutput()
	return string(out), err
}

func (s scratch) mustRun(name string, arguments ...string) string {
	s.t.Helper()
	out, err := s.run(name, arguments...)
	if err != nil {
		s.t.Fatalf("%s %s: %v\n%s", name, strings.Join(arguments, " "), err, out)
	}
	return out
}

func newScratch(t *testing.T) scratch {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	stubs, err := filepath.Glob(filepath.Join(root, "rdma", "*", "*", "*.go"))
	if err != nil || len(stubs) == 0 {
		t.Fatalf("find the packages of the C core below %s: %v", root, err)
	}
	for _, stub := range stubs { // what is read here makes go test run this again when it has changed
		if _, err := os.ReadFile(stub); err != nil {
			t.Fatal(err)
		}
	}
	s := scratch{t: t, dir: t.TempDir()}
	version := strings.TrimSpace(s.mustRun("go", "list", "-C", root, "-m", "-f", "{{.GoVersion}}"))
	s.write("go.mod", "module example.com/scratch\n\ngo "+version+"\n\nrequire github.com/farlog/farlog v0.0.0\n\n"+
		"replace github.com/farlog/farlog => "+root+"\n")
	s.write("main.go", program)
	return s
}

// A module that vendors this one has all of the C core, and compiles again what a change of a header concerns, though
// the header lies in another package.
func TestVendor_BuildsAndSeesHeadersChange(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the C core")
	}
	s := newScratch(t)
	s.mustRun("go", "mod", "vendor")
	s.add("rdma/src/ring/record.c",
		"\n#if defined(CHANGED_IN_BASE) || defined(CHANGED_IN_PUBLIC)\n#error compiled again\n#endif\n")
	s.mustRun("go", "build", "-mod=vendor", "-o", "scratch", ".")
	if out := s.mustRun("./scratch", "mem:"+filepath.Join(s.dir, "ring")); out != "formatted\n" {
		t.Fatalf("the program says %q, expected \"formatted\"", out)
	}
	for header, macro := range map[string]string{
		"rdma/src/base/crc32c.h":       "CHANGED_IN_BASE",
		"rdma/include/farlog/farlog.h": "CHANGED_IN_PUBLIC",
	} {
		undo := s.add(header, "#define "+macro+"\n")
		if out, err := s.run("go", "build", "-mod=vendor", "-o", "scratch", "."); err == nil ||
			!strings.Contains(out, "compiled again") {
			t.Errorf("%s has changed, and rdma/src/ring was not compiled again (%v):\n%s", header, err, out)
		}
		undo() // to what the build cache has
	}
}

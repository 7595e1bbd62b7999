package hardened_test

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/internal/hardened"
	"github.com/farlog/farlog/pkg/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// What the linker and the compiler did is read from the programs as scripts/build.sh makes them. The shared libraries
// are checked where they are built: rdma/test/run.sh install, scripts/java.sh native.
func TestCheck_ProgramsAsShipped(t *testing.T) {
	testenv.SkipWhenShort(t)
	for _, name := range []string{"farlog", "farlogd"} {
		lacks, err := hardened.Check(testenv.Program(t, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, lack := range lacks {
			t.Errorf("%s lacks %s", name, lack)
		}
	}
}

// An auditor's machine has none of our libraries, nor perhaps a C library.
func TestVerify_IsStatic(t *testing.T) {
	testenv.SkipWhenShort(t)
	file, err := elf.Open(testenv.Program(t, "farlog-verify"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	libraries, err := file.ImportedLibraries()
	if err != nil || len(libraries) > 0 || file.Section(".interp") != nil {
		t.Errorf("libraries %q, %v: expected a static program", libraries, err)
	}
}

const source = `
#include <string.h>
void use(char *);
void fill(const char *text) { char page[9000]; strcpy(page, text); use(page); }
`

// protections is all that a shared library of C is compiled and linked with.
var protections = []string{
	"-O2", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=3", "-fstack-protector-strong", "-fstack-clash-protection",
	"-fcf-protection=full", "-Wl,-z,relro,-z,now,-z,noexecstack,-z,shstk",
}

func compile(t *testing.T, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	path, output := filepath.Join(dir, "fill.c"), filepath.Join(dir, "fill.so")
	if err := os.WriteFile(path, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-shared", "-fPIC", "-o", output, path}, flags...)
	if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
		t.Fatalf("cc %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return output
}

func TestCheck_EachProtectionTakenAway(t *testing.T) {
	skipUnlessX86(t)
	lacks, err := hardened.Check(compile(t, protections...))
	if err != nil || len(lacks) > 0 {
		t.Fatalf("with all protections: %q, %v; expected nothing missing", lacks, err)
	}
	lacks, err = hardened.Check(compile(t, protections[:len(protections)-1]...))
	if err != nil || !slices.ContainsFunc(lacks, func(l string) bool { return strings.Contains(l, "shadow stacks") }) {
		t.Errorf("linked without protections: %q, %v; expected shadow stacks among what is missing", lacks, err)
	}
	for lack, flag := range map[string]string{
		"full RELRO":             "-Wl,-z,lazy",
		"stack: ":                "-Wl,-z,execstack",
		"stack protector":        "-fno-stack-protector",
		"checked calls of libc":  "-U_FORTIFY_SOURCE",
		"stack probes":           "-fno-stack-clash-protection",
		"landing pads":           "-fcf-protection=none",
		"no search path of its ": "-Wl,-rpath,/tmp",
	} {
		lacks, err := hardened.Check(compile(t, append(protections[:len(protections):len(protections)], flag)...))
		if err != nil {
			t.Fatal(err)
		}
		if len(lacks) != 1 || !strings.HasPrefix(lacks[0], lack) {
			t.Errorf("with %s: %q, expected one that begins with %q", flag, lacks, lack)
		}
	}
}

func TestCheck_ProgramOfFixedAddress(t *testing.T) {
	dir := t.TempDir()
	path, program := filepath.Join(dir, "main.c"), filepath.Join(dir, "main")
	if err := os.WriteFile(path, []byte("int main(void) { return 0; }"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-no-pie", "-o", program, path).CombinedOutput(); err != nil {
		t.Fatalf("cc -no-pie: %v\n%s", err, out)
	}
	lacks, err := hardened.Check(program)
	if err != nil || len(lacks) == 0 || !strings.HasPrefix(lacks[0], "PIE") {
		t.Errorf("%q, %v; expected PIE first", lacks, err)
	}
}

func TestCheck_NotAProgram(t *testing.T) {
	if _, err := hardened.Check("hardened_test.go"); err == nil {
		t.Error("a text file was judged; expected an error")
	}
}

func skipUnlessX86(t *testing.T) {
	t.Helper()
	out, err := exec.Command("cc", "-dumpmachine").Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(out), "x86_64") {
		t.Skipf("the compiler makes code for %s: stack probes and CET are read from x86-64 only",
			strings.TrimSpace(string(out)))
	}
}

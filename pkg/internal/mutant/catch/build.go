package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// edge is one command of a ninja build.
type edge struct {
	Command string `json:"command"`
	File    string `json:"file"` // its first input
	Output  string `json:"output"`
}

// build is a directory that meson and ninja have made, with all test programs in it.
type build struct {
	root, dir  string
	compiles   map[string][]edge   // by the source's path from root
	links      map[string]edge     // by the program's name
	dependents map[string][]string // the objects that include a header, by its path from root
}

const programFolder = "test/"

// isCore says whether an object is one of the two archives that all programs are linked with: meson compiles those of
// libfarlog.a once, for its shared library.
func isCore(object string) bool {
	return strings.HasPrefix(object, "libfarlog.so.") || strings.HasPrefix(object, "libfarlog-history.a.p/")
}

func openBuild(root, dir string) (*build, error) {
	b := &build{
		root: root, dir: dir,
		compiles: map[string][]edge{}, links: map[string]edge{}, dependents: map[string][]string{},
	}
	if err := b.readEdges(); err != nil {
		return nil, err
	}
	return b, b.readDependents()
}

func (b *build) readEdges() error {
	var edges []edge
	out, err := exec.Command("ninja", "-C", b.dir, "--quiet", "-t", "compdb", "-x").Output()
	if err == nil {
		err = json.Unmarshal(out, &edges)
	}
	if err != nil {
		return fmt.Errorf("read the commands of %s (ninja -t compdb): %w", b.dir, err)
	}
	for _, e := range edges {
		switch {
		case strings.HasSuffix(e.Output, ".o"):
			source := b.fromRoot(e.File)
			b.compiles[source] = append(b.compiles[source], e)
		case strings.HasPrefix(e.Output, programFolder) && strings.Contains(e.Command, " -o "+e.Output+" "):
			b.links[strings.TrimPrefix(e.Output, programFolder)] = e
		}
	}
	if len(b.links) == 0 {
		return fmt.Errorf("%s has no test programs; expected what rdma/test/run.sh builds", b.dir)
	}
	return nil
}

func (b *build) readDependents() error {
	list := exec.Command("ninja", "-C", b.dir, "--quiet", "-t", "deps")
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("read the headers of %s (ninja -t deps): %w", b.dir, err)
	}
	object := ""
	lines := bufio.NewScanner(strings.NewReader(string(out)))
	for lines.Scan() {
		line := lines.Text()
		if name, _, isObject := strings.Cut(line, ": #deps"); isObject {
			object = name
		} else if strings.HasSuffix(line, ".h") {
			header := b.fromRoot(strings.TrimSpace(line))
			b.dependents[header] = append(b.dependents[header], object)
		}
	}
	return lines.Err()
}

// fromRoot turns a path of the build into one from the root of the repository.
func (b *build) fromRoot(path string) string {
	if !filepath.IsAbs(path) {
		path = filepath.Join(b.dir, path)
	}
	if short, err := filepath.Rel(b.root, path); err == nil {
		return short
	}
	return path
}

// affected is the objects of a program, and of the core below it, that a file is compiled into.
func (b *build) affected(program, path string) []edge {
	isOurs := func(object string) bool {
		return isCore(object) || strings.HasPrefix(object, programFolder+program+".p/")
	}
	var found []edge
	for _, e := range b.compiles[path] {
		if isOurs(e.Output) {
			found = append(found, e)
		}
	}
	for _, object := range b.dependents[path] {
		if isOurs(object) {
			found = append(found, b.compileOf(object))
		}
	}
	return found
}

func (b *build) compileOf(object string) edge {
	for _, edges := range b.compiles {
		for _, e := range edges {
			if e.Output == object {
				return e
			}
		}
	}
	return edge{}
}

// tree is a mutant's files and what is built of them.
type tree struct {
	b       *build
	dir     string
	objects map[string]string // a mutated object, by the object of the build that it takes the place of
}

// newTree writes the mutant's files below dir, by their paths from the root.
func newTree(b *build, dir string, files map[string]string) (*tree, error) {
	for path, text := range files {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	return &tree{b: b, dir: dir, objects: map[string]string{}}, nil
}

// compile makes the object of e again, from the mutant's copy of its source where there is one, with the mutant's
// headers before the others.
func (t *tree) compile(e edge) error {
	if t.objects[e.Output] != "" {
		return nil
	}
	object := filepath.Join(t.dir, strings.ReplaceAll(e.Output, "/", "_"))
	command := strings.ReplaceAll(e.Command, e.Output, object)
	if copied := filepath.Join(t.dir, t.b.fromRoot(e.File)); isFile(copied) {
		command = strings.ReplaceAll(command, " -c "+e.File, " -c "+copied)
	}
	for _, folder := range []string{
		filepath.Join(t.dir, "rdma/src"), filepath.Join(t.dir, "rdma/test"),
		filepath.Dir(filepath.Join(t.b.dir, e.File)),
	} {
		command += " -iquote " + folder
	}
	// What a fault leaves unused is no error; what the compiler says is for a log.
	if err := t.run(command + " -w -fdiagnostics-color=never"); err != nil {
		return fmt.Errorf("compile %s: %w", t.b.fromRoot(e.File), err)
	}
	t.objects[e.Output] = object
	return nil
}

// link makes the program with the mutant's objects in it, and gives its path.
func (t *tree) link(program string, files map[string]string) (string, error) {
	e, isKnown := t.b.links[program]
	if !isKnown {
		return "", fmt.Errorf("%s is no test program of %s", program, t.b.dir)
	}
	affected := map[string]edge{} // by the object: a file and its header are compiled into the same one
	for file := range files {
		for _, compiled := range t.b.affected(program, file) {
			affected[compiled.Output] = compiled
		}
	}
	if len(affected) == 0 {
		return "", fmt.Errorf("%s contains none of the files that the patch changes", program)
	}
	path := filepath.Join(t.dir, program)
	before := ""
	command := " " + e.Command
	for object, compiled := range affected {
		if err := t.compile(compiled); err != nil {
			return "", err
		}
		if isCore(object) {
			before += " " + t.objects[object] // and the archive's is not taken
		} else {
			command = strings.ReplaceAll(command, " "+object+" ", " "+t.objects[object]+" ")
		}
	}
	command = strings.Replace(command, " -o "+e.Output+" ", " -o "+path+before+" ", 1)
	if err := t.run(command); err != nil {
		return "", fmt.Errorf("link %s: %w", program, err)
	}
	return path, nil
}

func (t *tree) run(command string) error {
	shell := exec.Command("sh", "-c", command)
	shell.Dir = t.b.dir
	if out, err := shell.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, firstLines(string(out), 6))
	}
	return nil
}

func isFile(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func firstLines(text string, count int) string {
	return strings.Join(strings.SplitN(strings.TrimSpace(text), "\n", count+1)[:min(count,
		strings.Count(strings.TrimSpace(text), "\n")+1)], "\n")
}

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/farlog/farlog/pkg/internal/mutant"
)

// playMax is how long a test may take; the slowest one, which a mutant survives, plays 200,000 crashes.
const playMax = 5 * time.Minute

// result is what came of one test of a mutant.
type result struct {
	isCaught bool
	text     string
}

// catcher plays mutants, and the tests without them.
type catcher struct {
	b       *build
	scratch string

	mutex sync.Mutex
	sound map[string]func() error // a test without a mutant, played once
}

func newCatcher(b *build, scratch string) *catcher {
	return &catcher{b: b, scratch: scratch, sound: map[string]func() error{}}
}

// catch plays all tests of one mutant.
func (c *catcher) catch(m mutant.Mutant) []result {
	dir := filepath.Join(c.scratch, m.Name)
	defer os.RemoveAll(dir)
	files, err := m.Apply(c.b.root)
	var t *tree
	if err == nil {
		t, err = newTree(c.b, dir, files)
	}
	if err != nil {
		return []result{{text: "ERROR: " + err.Error()}}
	}
	var results []result
	for _, test := range m.Tests {
		said, err := c.play(t, test, files)
		text := "caught by " + test.Line + ": " + said
		if err != nil {
			text = err.Error()
		}
		results = append(results, result{isCaught: err == nil, text: text})
	}
	return results
}

// play runs one test with the mutant, and without it. It gives the line that tells why the test failed, or an error
// that says why the mutant is not caught.
func (c *catcher) play(t *tree, test mutant.Test, files map[string]string) (string, error) {
	program, err := t.link(test.Program, files)
	if err != nil {
		return "", fmt.Errorf("ERROR: %w", err)
	}
	out, err := start(c.b.dir, program, test.Env, test.Args)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return "", fmt.Errorf("SURVIVED %s", test.Line)
	case errors.As(err, &exit) && exit.ExitCode() == 1:
	default:
		return "", fmt.Errorf("ERROR: %s: %w; expected exit code 1: %s", test.Line, err, lastLines(out))
	}
	said, isFound := c.find(out, test.Fails)
	if !isFound {
		return "", fmt.Errorf("ERROR: %s failed for another reason; expected %q: %s",
			test.Line, test.Fails, lastLines(out))
	}
	if err := c.checkSound(test, out); err != nil {
		return "", fmt.Errorf("ERROR: %s fails without the mutant as well: %w", test.Line, err)
	}
	return said, nil
}

var failedAt = regexp.MustCompile(`^\[   LINE   \] --- (.*):(\d+): error: `)

// find looks for what the test was to say, in what it said and in the assertions at which it ended.
func (c *catcher) find(out, fails string) (string, bool) {
	for _, line := range strings.Split(out, "\n") {
		if strings.Contains(line, fails) {
			return line, true
		}
		at := failedAt.FindStringSubmatch(line)
		if at == nil {
			continue
		}
		number, _ := strconv.Atoi(at[2])
		if source := c.sourceLine(at[1], number); strings.Contains(source, fails) {
			return fmt.Sprintf("%s:%d: %s", c.b.fromRoot(at[1]), number, source), true
		}
	}
	return "", false
}

func (c *catcher) sourceLine(path string, number int) string {
	text, err := os.ReadFile(filepath.Join(c.b.root, c.b.fromRoot(path)))
	lines := strings.Split(string(text), "\n")
	if err != nil || number < 1 || number > len(lines) {
		return ""
	}
	return strings.TrimSpace(lines[number-1])
}

var reproduce = regexp.MustCompile(`(?m): reproduce: (.*)$`)

// checkSound plays the test without a mutant. One that plays a seed's runs until one fails plays that run; each other
// one is played once for all mutants.
func (c *catcher) checkSound(test mutant.Test, out string) error {
	if found := reproduce.FindStringSubmatch(out); found != nil {
		return c.playSound(test, strings.Fields(found[1]))
	}
	c.mutex.Lock()
	once := c.sound[test.Line]
	if once == nil {
		once = sync.OnceValue(func() error { return c.playSound(test, nil) })
		c.sound[test.Line] = once
	}
	c.mutex.Unlock()
	return once()
}

var somePassed = regexp.MustCompile(`(?m)[1-9][0-9]* passed, 0 failed`)

func (c *catcher) playSound(test mutant.Test, env []string) error {
	program := filepath.Join(c.b.dir, programFolder, test.Program)
	out, err := start(c.b.dir, program, append(append([]string{}, test.Env...), env...), test.Args)
	if err == nil && !somePassed.MatchString(out) {
		err = errors.New("it has run nothing")
	}
	if err != nil {
		return fmt.Errorf("%w: %s", err, lastLines(out))
	}
	return nil
}

// start runs a program in the build's directory, and gives all that it said.
func start(dir, program string, env, args []string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), playMax)
	defer cancel()
	var out bytes.Buffer
	command := exec.CommandContext(ctx, program, args...)
	command.Dir = dir
	command.Env = append(os.Environ(), env...)
	command.Stdout, command.Stderr = &out, &out
	command.WaitDelay = 5 * time.Second // a target that it started may keep its output open
	err := command.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("has not ended within %s", playMax)
	}
	return out.String(), err
}

func lastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-6):], " | ")
}

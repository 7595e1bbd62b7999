package tidy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/farlog/farlog/pkg/internal/docpage"
)

const (
	pageLinesMax       = 200
	pageLineLenMax     = 120
	readmeLinesMax     = 150
	pageGeneratedNote  = "; do not edit." // of pages that a program writes: they are as long as what they list
	pageGeneratedLines = 6
)

// guideLanguages are what a code block of a tutorial or how-to page may be: sh is run, text is what it prints, the rest
// is shown.
var guideLanguages = []string{"sh", "text", "yaml", "ini", "json", "c", "cpp", "go", "java", "xml"}

func isGeneratedPage(f file) bool {
	lines := f.lines()
	return strings.Contains(strings.Join(lines[:min(len(lines), pageGeneratedLines)], "\n"), pageGeneratedNote)
}

// docPages are the pages of the site and the README.
func docPages(t *testing.T) []file {
	return slices.DeleteFunc(tracked(t, ".md"), func(f file) bool {
		return !strings.HasPrefix(f.path, "docs/") &&
			f.path != "README.md"
	})
}

func TestDocs_PagesAreShort(t *testing.T) {
	for _, f := range docPages(t) {
		most := pageLinesMax
		if f.path == "README.md" {
			most = readmeLinesMax
		}
		if length := len(f.lines()) - 1; length > most && !isGeneratedPage(f) {
			t.Errorf("%s has %d lines, the limit is %d: it answers two questions; give each a page", f.path, length,
				most)
		}
	}
}

func TestDocs_LinesFitTheScreen(t *testing.T) {
	for _, f := range tracked(t, ".md") {
		for i, line := range f.lines() {
			if length := utf8.RuneCountInString(line); length > pageLineLenMax {
				t.Errorf("%s:%d has %d columns, the limit is %d: wrap it; make a list of a table with long cells",
					f.path, i+1, length, pageLineLenMax)
			}
		}
	}
}

// What is not run has to be seen as that: a block of another language would pass the test that runs commands.
func TestDocs_GuidesHideNoCommands(t *testing.T) {
	pages, err := docpage.Guides(root(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		for _, block := range page.Blocks {
			if !slices.Contains(guideLanguages, block.Language) {
				t.Errorf("%s:%d: a code block of language %q: commands are sh, what they print is text, others are "+
					"one of %v",
					page.Path, block.Line, block.Language, guideLanguages)
			}
			if block.NotRun != "" && block.Language != "sh" {
				t.Errorf("%s:%d: only a block of commands (sh) can be marked as not run", page.Path, block.Line)
			}
		}
	}
}

var (
	docLink   = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	docHeader = regexp.MustCompile(`^#{1,6} (.*)$`)
	notInSlug = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	linkText  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// slug is the anchor of a heading, as GitHub and mkdocs' own toc make it.
func slug(heading string) string {
	text := linkText.ReplaceAllString(heading, "$1")
	text = notInSlug.ReplaceAllString(strings.ToLower(text), "")
	return strings.ReplaceAll(strings.TrimSpace(text), " ", "-")
}

// prose gives the lines that are in no code block.
func prose(content string) []string {
	var lines []string
	inCode := false
	for line := range strings.Lines(content) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			inCode = !inCode
		} else if !inCode {
			lines = append(lines, strings.TrimRight(line, "\n"))
		}
	}
	return lines
}

func anchorsOf(content string) map[string]bool {
	anchors := map[string]bool{"": true}
	for _, line := range prose(content) {
		if match := docHeader.FindStringSubmatch(line); match != nil {
			anchors[slug(match[1])] = true
		}
	}
	return anchors
}

func TestDocs_LinksLeadSomewhere(t *testing.T) {
	top := root(t)
	for _, f := range tracked(t, ".md") {
		if f.path == "CHANGELOG.md" {
			continue // its entries link to pages as they were then
		}
		for _, match := range docLink.FindAllStringSubmatch(strings.Join(prose(string(f.content)), "\n"), -1) {
			target, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			path := filepath.Join(top, filepath.Dir(f.path), target)
			if target == "" {
				path = filepath.Join(top, f.path)
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s links to %s, which is not there: mend the link", f.path, target)
				continue
			}
			if anchor == "" || filepath.Ext(path) != ".md" {
				continue
			}
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !anchorsOf(string(content))[anchor] {
				t.Errorf("%s links to %s, and no heading there is #%s: mend the link", f.path, match[1], anchor)
			}
		}
	}
}

func TestDocs_SlugsAreThoseOfTheSite(t *testing.T) {
	for heading, want := range map[string]string{
		"What a deadline bounds":                    "what-a-deadline-bounds",
		"A hole in the log: a power cut, or damage": "a-hole-in-the-log-a-power-cut-or-damage",
		"2. Record":               "2-record",
		"`farlog plan`, in short": "farlog-plan-in-short",
		"[Members](members.md)":   "members",
	} {
		if got := slug(heading); got != want {
			t.Errorf("%q: %q, expected %q", heading, got, want)
		}
	}
}

func TestDocs_GeneratedPagesAreFresh(t *testing.T) {
	check := exec.Command("go", "run", "./pkg/internal/gen/pages", "-check", ".")
	check.Dir = root(t)
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%s", strings.TrimSpace(string(out)))
	}
}

var adrParts = regexp.MustCompile(
	`(?s)^# (\d+)\. .*\n## Status\n\n(?:Accepted|Superseded).*\n## Context\n.*\n## Decision\n.*\n## Consequences\n`,
)

// A decision has the parts that its reader looks for, a number that is its file's, and a place in the index.
func TestDocs_DecisionsHaveTheirParts(t *testing.T) {
	index, err := os.ReadFile(filepath.Join(root(t), "docs", "adr", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range tracked(t, ".md") {
		name := filepath.Base(f.path)
		if filepath.Dir(f.path) != "docs/adr" || name == "README.md" {
			continue
		}
		match := adrParts.FindStringSubmatch(string(f.content))
		if match == nil || strings.TrimLeft(name[:4], "0") != match[1] {
			t.Errorf("%s: expected # NUMBER. TITLE with the file's number, then Status (Accepted or Superseded), "+
				"Context, Decision, Consequences", f.path)
		}
		if !strings.Contains(string(index), "]("+name+")") {
			t.Errorf("%s is not in docs/adr/README.md: add it there", f.path)
		}
	}
}

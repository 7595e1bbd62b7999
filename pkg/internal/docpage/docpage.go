// Package docpage reads the pages of docs/: their code blocks, the commands among them, and what those are said to
// print.
package docpage

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Block is a fenced code block.
type Block struct {
	Language string
	Text     string
	Line     int    // of its first fence
	NotRun   string // the reason in <!-- not run: REASON --> before it; "" = it runs
	Expected string // the text block behind it: what it prints
}

// Page is one Markdown file.
type Page struct {
	Path   string // slash-separated, from the root of the tree
	Blocks []Block
}

// notRunMark stands alone on the line before a block that cannot run on a test machine.
var notRunMark = regexp.MustCompile(`^<!-- not run: (.+) -->$`)

// Parse reads the blocks of a page.
func Parse(path, content string) Page {
	page := Page{Path: path}
	reason, open := "", -1
	for i, line := range strings.Split(content, "\n") {
		trimmed := strings.TrimSpace(line)
		switch language, isFence := strings.CutPrefix(trimmed, "```"); {
		case isFence && open < 0:
			page.Blocks = append(page.Blocks, Block{Language: language, Line: i + 1, NotRun: reason})
			open, reason = len(page.Blocks)-1, ""
		case isFence:
			open = -1
		case open >= 0:
			page.Blocks[open].Text += line + "\n"
		case trimmed != "":
			reason = ""
			if match := notRunMark.FindStringSubmatch(trimmed); match != nil {
				reason = match[1]
			}
		}
	}
	for i := 1; i < len(page.Blocks); i++ {
		if page.Blocks[i].Language == "text" && page.Blocks[i-1].Language == "sh" {
			page.Blocks[i-1].Expected = page.Blocks[i].Text
		}
	}
	return page
}

// Guides reads the pages that a reader follows step by step: the README, tutorials and how-to pages.
func Guides(root string) ([]Page, error) {
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		return nil, err
	}
	pages := []Page{Parse("README.md", string(readme))}
	for _, folder := range []string{"tutorials", "how-to"} {
		paths, err := filepath.Glob(filepath.Join(root, "docs", folder, "*.md"))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			content, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			pages = append(pages, Parse("docs/"+folder+"/"+filepath.Base(path), string(content)))
		}
	}
	return pages, nil
}

// Commands are the blocks with commands.
func (p Page) Commands() []Block {
	return slices.DeleteFunc(slices.Clone(p.Blocks), func(block Block) bool { return block.Language != "sh" })
}

// Run are the blocks with commands that a test machine can run.
func (p Page) Run() []Block {
	return slices.DeleteFunc(p.Commands(), func(block Block) bool { return block.NotRun != "" })
}

// separator stands in the output before what a block prints.
const separator = "--- farlog docs: the next block ---"

// Script is one shell script of all blocks that run; it stops at the first command that fails. "" = none runs.
func (p Page) Script() string {
	blocks := p.Run()
	if len(blocks) == 0 {
		return ""
	}
	script := "set -euo pipefail\n"
	for _, block := range blocks {
		script += "echo '" + separator + "'\n" + block.Text
	}
	return script
}

// Outputs splits what Script printed: one text a block that was begun.
func Outputs(output string) []string {
	return strings.Split(output, separator+"\n")[1:]
}

// Prints reports whether the expected lines are in the output, in this order, with others between them. "..." stands
// for any text within a line, and alone on a line for any lines. Without: the line that is missing.
func Prints(output, expected string) (string, bool) {
	lines := strings.Split(output, "\n")
	for want := range strings.Lines(expected) {
		want = strings.TrimSpace(want)
		if want == "" || want == "..." {
			continue
		}
		pattern := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(squeeze(want)), `\.\.\.`, ".*") + "$")
		found := slices.IndexFunc(lines, func(line string) bool { return pattern.MatchString(squeeze(line)) })
		if found < 0 {
			return want, false
		}
		lines = lines[found+1:]
	}
	return "", true
}

// squeeze makes columns one blank wide: their width depends on names of the machine.
func squeeze(line string) string { return strings.Join(strings.Fields(line), " ") }

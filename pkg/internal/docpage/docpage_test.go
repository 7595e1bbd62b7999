package docpage

import (
	"os/exec"
	"testing"
)

const page = "# Page\n\n```sh\necho one\necho two  2\n```\n\n```text\ntwo ...\n```\n\n<!-- not run: needs a card " +
	"-->\n```sh\nfalse\n```\n\n```yaml\na: 1\n```\n"

func TestParse_BlocksReasonsAndOutput(t *testing.T) {
	got := Parse("docs/how-to/page.md", page)
	commands := got.Commands()
	if len(commands) != 2 || commands[0].Line != 3 || commands[0].Expected != "two ...\n" ||
		commands[1].NotRun != "needs a card" {
		t.Errorf("commands: %+v", commands)
	}
	if run := got.Run(); len(run) != 1 || run[0].Text != "echo one\necho two  2\n" {
		t.Errorf("run: %+v", run)
	}
}

func TestParse_AReasonIsOfTheNextBlockAlone(t *testing.T) {
	got := Parse("p", "<!-- not run: old -->\nText between.\n```sh\ntrue\n```\n")
	if len(got.Run()) != 1 {
		t.Errorf("the block is left out by a mark that is not before it: %+v", got.Blocks)
	}
}

func TestScript_StopsAtTheFirstFailure(t *testing.T) {
	output, err := exec.Command("bash", "-c", Parse("p",
		"```sh\necho a\nfalse\necho b\n```\n```sh\necho c\n```\n").Script()).Output()
	if texts := Outputs(string(output)); err == nil || len(texts) != 1 || texts[0] != "a\n" {
		t.Errorf("error %v, output %q; expected a failure behind a", err, output)
	}
}

func TestPrints_LinesInOrderWithGaps(t *testing.T) {
	for _, test := range []struct {
		expected string
		missing  string
	}{
		{"one\n...\nthree   x\n", ""},
		{"th...x\n", ""},
		{"three x\none\n", "one"},
		{"on\n", "on"},
	} {
		if missing, _ := Prints("one\ntwo\nthree x\n", test.expected); missing != test.missing {
			t.Errorf("%q: missing %q, expected %q", test.expected, missing, test.missing)
		}
	}
}

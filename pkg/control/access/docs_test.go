package access

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The table of docs/reference/access.md has each call once, with the roles that the guard asks for. What stands behind
// a semicolon says more of it.
func TestCalls_AreDocumented(t *testing.T) {
	raw, err := os.ReadFile("../../../docs/reference/access.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(raw), "\n| call | roles, any of |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	told := map[string]string{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 {
			t.Fatalf("line %q: expected two cells", line)
		}
		roles, _, _ := strings.Cut(cells[2], ";")
		for _, call := range regexp.MustCompile(`\b[A-Z]\w+`).FindAllString(cells[1], -1) {
			if told[call] != "" {
				t.Errorf("%s is in the table twice", call)
			}
			told[call] = rolesIn(roles)
		}
	}
	for method, roles := range calls {
		call := method[strings.LastIndexByte(method, '/')+1:]
		if want := joined(roles); strings.HasPrefix(method, "/farlog.") && told[call] != want {
			t.Errorf("%s: docs/reference/access.md has %q, expected %q: say it there, in the table of calls", call,
				told[call], want)
		}
		if strings.HasPrefix(method, "/farlog.") {
			delete(told, call)
		}
	}
	for call := range told {
		t.Errorf("%s is in the table of docs/reference/access.md, but is no call", call)
	}
}

// rolesIn are the roles that a text names, in order.
func rolesIn(text string) string {
	words := regexp.MustCompile(`\w+`).FindAllString(text, -1)
	if slices.Contains(words, "any") {
		return joined(Roles)
	}
	var roles []Role
	for _, role := range Roles {
		if slices.Contains(words, string(role)) {
			roles = append(roles, role)
		}
	}
	return joined(roles)
}

func joined(roles []Role) string {
	words := make([]string, len(roles))
	for i, role := range roles {
		words[i] = string(role)
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

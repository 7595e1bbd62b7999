package export

import (
	"errors"
	"strings"
	"testing"

	"github.com/farlog/farlog/audit/profiles"
)

func TestMapping_Mistakes(t *testing.T) {
	for text, want := range map[string]string{
		"format: farlog-profile\nname: x\nversion: 1\nrows: records\nfeilds: []": "m.yaml:5:1: unknown key \"feilds\"",
		"":                 "m.yaml:1:1: the file is empty",
		"- a":              "m.yaml:1:1: the mapping file: expected KEY: VALUE",
		"format: [":        "m.yaml:",
		"format: x":        "m.yaml:1:9: format \"x\": expected farlog-profile",
		"name: !!str x":    "m.yaml:1:7: name of the mapping file: expected a value without an alias or a tag",
		"name: x\nname: y": "twice",
	} {
		expectMistake(t, text, want)
	}
	const head = "format: farlog-profile\nname: x\nversion: 1\nrows: records\nfields:\n"
	for field, want := range map[string]string{
		"- {name: A, source: fix.0}":                             "m.yaml:6:21: source \"fix.0\": unknown tag",
		"- {name: A, source: fix.99999999}":                      "m.yaml:6:21: source \"fix.99999999\": unknown tag",
		"- {name: A, source: fix.x}":                             "unknown tag",
		"- {name: A, source: fix.011}":                           "unknown tag",
		"- {name: A, source: record.price}":                      "unknown field of a record",
		"- {name: A, source: clock.day}":                         "expected record.FIELD",
		"- {name: A, source: fix.1, requierd: true}":             "m.yaml:6:28: unknown key \"requierd\"",
		"- {name: A, about: a text for people}":                  "m.yaml:6:3: a field has no source",
		"- {name: A, source: fix.1, required: maybe}":            "m.yaml:6:38: required \"maybe\"",
		"- {name: A, source: constant, form: utc-us}":            "expected a source that is a time",
		"- {name: A, source: fix.1, values: [x]}":                "values: expected VALUE: VALUE",
		"- {name: A, source: fix.1, values: {a: {b: c}}}":        "expected one value of each",
		"- {name: A, source: fix.1}\n- {name: A, source: fix.2}": "m.yaml:7:10: field \"A\" is there twice",
		"- &a {name: A, source: fix.1}\n- *a":                    "a field: expected KEY: VALUE",
		"  x":                                                    "fields: expected a list",
	} {
		expectMistake(t, head+field, want)
	}
	expectMistake(t, strings.Replace(head, "records", "records\nwhere: lsn >", 1)+"- {name: A, source: fix.1}",
		"m.yaml:5:8: ")
	expectMistake(t, strings.Replace(head, "records", "clock", 1)+"- {name: A, source: fix.1}",
		"expected clock.COLUMN, constant or unmapped")
	expectMistake(t, strings.Replace(head, "records", "clock", 1)+"- {name: A, source: clock.hour}",
		"unknown column of the clock evidence")
}

func expectMistake(t *testing.T, text, want string) {
	t.Helper()
	if _, err := ParseMapping("m.yaml", []byte(text)); !errors.Is(err, ErrInvalid) ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("%q: %v, expected %q", text, err, want)
	}
}

// A mapping file that is cut off or has another byte somewhere is read, or refused with a place.
func TestMapping_Hostile(t *testing.T) {
	rng := newRandom(t)
	for range 2000 {
		raw := []byte(ordersMapping)[:rng.IntN(len(ordersMapping)+1)]
		for range rng.IntN(3) {
			if len(raw) > 0 {
				raw[rng.IntN(len(raw))] = byte(rng.IntN(256))
			}
		}
		if m, err := ParseMapping("m.yaml", raw); err != nil && (!errors.Is(err, ErrInvalid) ||
			!strings.Contains(err.Error(), "m.yaml:")) || err == nil && len(m.Fields) == 0 {
			t.Errorf("%q: %v", raw, err)
		}
	}
}

// All profiles that are shipped are sound; a name that there is not says which there are.
func TestProfiles_AreSound(t *testing.T) {
	for _, name := range profiles.Names() {
		raw, err := profiles.Read(name)
		if err != nil {
			t.Fatal(err)
		}
		m, err := ParseMapping(name+".yaml", raw)
		if err != nil || m.Name != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := profiles.Read("fix-lug"); err == nil || !strings.Contains(err.Error(), "fix-log") {
		t.Errorf("%v", err)
	}
}

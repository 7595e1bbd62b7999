package export

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/farlog/farlog/audit/profiles"
	"github.com/farlog/farlog/pkg/query"
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

// memory keeps what is written.
type memory map[string]*bytes.Buffer

type memoryFile struct{ *bytes.Buffer }

func (memoryFile) close(bool) error { return nil }

func (m memory) create(name string) (output, error) {
	m[name] = &bytes.Buffer{}
	return memoryFile{m[name]}, nil
}

func (m memory) parquet(string) (query.Encoder, output, error) {
	return nil, nil, errors.ErrUnsupported
}

// A shipped profile that nobody has completed names all that is missing; completed, it makes a row of an order, and
// names the field that an order without it lacks.
func TestProfiles_Completed(t *testing.T) {
	full := []string{
		"35=D", "1=ACC-1", "11=ORD-1", "15=EUR", "37=X1", "38=100", "40=2", "44=9.5", "48=DE0005190003", "54=1",
		"55=BMW", "59=0",
	}
	for name, test := range map[string]struct{ missing, row, tag, lacks string }{
		"rts24-orders": {
			missing: "1_EntityIdentification, 2_DirectElectronicAccess, 7_TradingCapacity, 8_LiquidityProvision, " +
				"16_SegmentMIC, 21_Event",
			row: "DE0005190003", tag: "48=", lacks: "18_InstrumentIdentification is required: fix.48",
		},
		"cat-meno": {
			missing: "actionType, CATReporterIMID, manualFlag", row: ",MENO,", tag: "55=",
			lacks: "symbol is required: fix.55",
		},
		"fix-log": {row: "ORD-1", tag: "35=", lacks: "expected 35 (MsgType)"},
	} {
		raw, err := profiles.Read(name)
		if err != nil {
			t.Fatal(err)
		}
		m := newMapping(t, string(raw))
		err = m.CheckConstants(nil)
		if test.missing != "" && (err == nil || !strings.Contains(err.Error(), test.missing)) {
			t.Errorf("%s: %v, expected that %s are not mapped", name, err, test.missing)
		}
		m = newMapping(t, strings.ReplaceAll(string(raw), "source: unmapped, required", "source: constant, required"))
		constants := map[string]string{}
		for _, f := range m.Fields {
			if f.Source == sourceConstant {
				constants[f.Name] = "given"
			}
		}
		to := memory{}
		r, err := (&derivation{}).openReport(to, m, constants)
		if err != nil {
			t.Fatal(err)
		}
		row := &query.Row{Stream: "desk7/orders"}
		row.Payload = message(full...)
		if err := r.record(t.Context(), row); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		row.Payload = message(slices.DeleteFunc(slices.Clone(full), func(field string) bool {
			return strings.HasPrefix(field, test.tag)
		})...)
		if err := r.record(t.Context(), row); err == nil || !strings.Contains(err.Error(), test.lacks) {
			t.Errorf("%s: %v, expected %q", name, err, test.lacks)
		}
		row.Payload = []byte("not FIX")
		if err := r.record(t.Context(), row); err != nil || r.rows != 1 {
			t.Errorf("%s: %v, %d rows, expected that another payload makes none", name, err, r.rows)
		}
		r.table.out.Flush()
		if got := to[reportFile].String(); !strings.Contains(got, test.row) {
			t.Errorf("%s: %s, expected %q", name, got, test.row)
		}
	}
}

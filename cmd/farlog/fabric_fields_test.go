package main

import (
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// A fabric.yaml has a key for each field of what it declares, and each key is a field: what the API gets later is
// exported and read as well.
func TestFabricFields_AreThoseOfTheAPI(t *testing.T) {
	checkFields(t, new(api.Fabric).ProtoReflect().Descriptor(), fabricFields)
}

func checkFields(t *testing.T, of protoreflect.MessageDescriptor, keys []apiField) {
	t.Helper()
	byField := map[string]apiField{}
	for _, one := range keys {
		if byField[one.field].key != "" {
			t.Errorf("%s: field %s has the keys %s and %s", of.Name(), one.field, byField[one.field].key, one.key)
		}
		byField[one.field] = one
	}
	fields := of.Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		one := byField[string(field.Name())]
		if one.key == "" {
			t.Errorf("%s: field %s has no key in fabricFields", of.Name(), field.Name())
		}
		if one.items != nil {
			checkFields(t, field.Message(), one.items)
		}
		delete(byField, string(field.Name()))
	}
	for name := range byField {
		t.Errorf("%s: key %s is of field %s, which the API does not have", of.Name(), byField[name].key, name)
	}
}

// What the control plane says of a field is told by the key that the file has, also far down and where the file does
// not have it.
func TestFileName_IsTheKeyOfTheFile(t *testing.T) {
	for field, want := range map[string]string{
		"streams[1].ring_size_bytes":                    "streams[1].size",
		"targets[0].wear_limit_percent":                 "targets[0].wear_limit",
		"routes[0].rules[2].legs[11].buffer_size_bytes": "routes[0].rules[2].legs[11].buffer",
		"routes[0].rules[2].criticality_min":            "routes[0].rules[2].criticality",
		"streams[1].later":                              "streams[1].later",
		"later":                                         "later",
	} {
		if got := fileName(field); got != want {
			t.Errorf("%s is called %q, expected %q", field, got, want)
		}
	}
}

// Routes are exported and read as they were, with every name that a file has for a level and a policy.
func TestWriteFabric_RoutesReadAsThemselves(t *testing.T) {
	const text = `routes:
    - name: desk7/all
      rules:
        - criticality: 2
          classes: [1-3, 9]
          legs:
            - stream: a
              level: posted
              policy: fail
            - stream: b
              level: visible
              optional: true
              policy: spill
              buffer: 64MiB
              deadline: 1.5ms
            - stream: c
              level: persistent
              optional: true
              policy: drop
        - route: second-site
`
	file := readFabric([]byte(text))
	if len(file.problems) > 0 {
		t.Fatal(file.problems)
	}
	raw, err := writeFabric(file.fabric)
	if err != nil || string(raw) != text {
		t.Errorf("%v, got\n%s\nexpected\n%s", err, raw, text)
	}
}

package service

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// jsonWalk goes through a text of JSON beside the message that it should be. Whether a value is one of its field
// protojson says, of the smallest part that has one.
type jsonWalk struct {
	raw      []byte
	problems []*api.Problem
	isTold   map[string]bool // fields, as the protocol spells them, whose values are left out of what is readable
}

// object looks at what stands from begin to end, which should be a message, and gives what can be read of it. path is
// as the body has it, field as the protocol has it.
func (w *jsonWalk) object(message protoreflect.Message, begin, end int, path, field string) []byte {
	text := bytes.TrimSpace(w.raw[begin:end])
	if err := protojson.Unmarshal(text, message.New().Interface()); err == nil {
		return text
	}
	if isWellKnown(message.Descriptor()) || len(text) == 0 || text[0] != '{' {
		w.fail(begin, path, field, text, "a JSON object")
		return nil
	}
	members, seen := [][]byte{}, map[protoreflect.Name]bool{}
	w.members(begin, end, func(name string, at, from, to int) {
		one := fieldNamed(message.Descriptor(), name)
		if one == nil {
			w.addProblem(at, join(path, name), join(field, name), shortValue(w.raw[from:to]), fieldRule)
			return
		}
		own := join(field, string(one.Name()))
		if seen[one.Name()] {
			w.addProblem(
				at,
				join(path, name),
				own,
				shortValue(w.raw[from:to]),
				"expected the field once: it is there twice",
			)
			return
		}
		seen[one.Name()] = true
		if readable := w.value(message, one, from, to, join(path, name), own); readable != nil {
			members = append(members, fmt.Appendf(nil, "%q: %s", one.Name(), readable))
		}
	})
	return fmt.Appendf(nil, "{%s}", bytes.Join(members, []byte(", ")))
}

// value looks at the value of a field, and gives what can be read of it; nil: nothing.
func (w *jsonWalk) value(message protoreflect.Message, one protoreflect.FieldDescriptor, begin, end int, path,
	field string,
) []byte {
	text := w.raw[begin:end]
	if err := unmarshalField(message, one, text); err == nil {
		return text
	}
	switch isMessage := one.Message() != nil && !one.IsMap() && !isWellKnown(one.Message()); {
	case one.IsList() && text[0] == '[':
		return w.list(message, one, begin, end, path, field)
	case one.IsList():
		w.fail(begin, path, field, text, "a list")
	case isMessage:
		return w.object(message.NewField(one).Message(), begin, end, path, field)
	default:
		w.failKind(begin, path, field, text, one)
	}
	return nil
}

func (w *jsonWalk) list(message protoreflect.Message, one protoreflect.FieldDescriptor, begin, end int, path,
	field string,
) []byte {
	decoder := json.NewDecoder(bytes.NewReader(w.raw[begin:end]))
	_, _ = decoder.Token()
	var items [][]byte
	for i := 0; decoder.More(); i++ {
		var item json.RawMessage
		if decoder.Decode(&item) != nil {
			return nil
		}
		to := begin + int(decoder.InputOffset())
		from, at := to-len(item), fmt.Sprintf("[%d]", i)
		switch isMessage := one.Message() != nil && !isWellKnown(one.Message()); {
		case isMessage:
			if item = w.object(message.NewField(one).List().NewElement().Message(), from, to, path+at,
				field+at); item == nil {
				item = []byte("{}") // so that those behind it keep their places
			}
			items = append(items, item)
		case unmarshalField(message, one, fmt.Appendf(nil, "[%s]", item)) == nil:
			items = append(items, item)
		default:
			w.failKind(from, path+at, field+at, item, one)
		}
	}
	return fmt.Appendf(nil, "[%s]", bytes.Join(items, []byte(", ")))
}

// members goes through an object: where each name and each value stands.
func (w *jsonWalk) members(begin, end int, each func(name string, at, from, to int)) {
	decoder := json.NewDecoder(bytes.NewReader(w.raw[begin:end]))
	_, _ = decoder.Token()
	for decoder.More() {
		at := begin + int(decoder.InputOffset())
		at += bytes.IndexByte(w.raw[at:], '"') // behind a comma and spaces
		token, err := decoder.Token()
		name, isName := token.(string)
		if err != nil || !isName {
			return
		}
		var value json.RawMessage
		if decoder.Decode(&value) != nil {
			return
		}
		to := begin + int(decoder.InputOffset())
		each(name, at, to-len(value), to)
	}
}

// isSaid reports whether a field, or what it is in, is left out of what is readable.
func (w *jsonWalk) isSaid(field string) bool {
	for end := len(field); end > 0; end = strings.LastIndexAny(field[:end], ".[") {
		if w.isTold[field[:end]] {
			return true
		}
	}
	return false
}

func (w *jsonWalk) fail(at int, path, field string, value []byte, expected string) {
	w.addProblem(at, path, field, shortValue(value), "expected a value of type "+expected)
}

// failKind says what a value that is no message may be.
func (w *jsonWalk) failKind(at int, path, field string, value []byte, one protoreflect.FieldDescriptor) {
	if one.Enum() != nil && !one.IsMap() {
		w.addProblem(at, path, field, shortValue(value), enumRule(one.Enum()))
		return
	}
	w.fail(at, path, field, value, typeText(one))
}

// shortValue is as much of a value as a problem has of it.
func shortValue(value []byte) string { return fmt.Sprintf("%.80s", value) }

func (w *jsonWalk) addProblem(at int, path, field, value, rule string) {
	w.isTold[field] = true
	path = cmp.Or(path, "body")
	if len(w.problems) < problemsMost {
		w.problems = append(w.problems, &api.Problem{
			Field: path, Value: value,
			Rule: fmt.Sprintf("%s (line %s)", rule, lineOf(w.raw, at)),
		})
	}
}

// lineOf is the line and the column, both from 1 and of characters, of an offset.
func lineOf(raw []byte, at int) string {
	before := raw[:at]
	return fmt.Sprintf("%d:%d", bytes.Count(before, []byte("\n"))+1,
		utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])+1)
}

func unmarshalField(message protoreflect.Message, one protoreflect.FieldDescriptor, value []byte) error {
	return protojson.Unmarshal(fmt.Appendf(nil, "{%q: %s}", one.Name(), value), message.New().Interface())
}

// isWellKnown tells messages that JSON has a text for, such as durations.
func isWellKnown(message protoreflect.MessageDescriptor) bool {
	return message.FullName().Parent() == "google.protobuf"
}

func typeText(one protoreflect.FieldDescriptor) string {
	switch {
	case one.IsMap():
		return "a map"
	case one.Message() != nil:
		return string(one.Message().FullName())
	}
	return one.Kind().String()
}

func fieldNamed(message protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if field := message.Fields().ByJSONName(name); field != nil {
		return field
	}
	return message.Fields().ByName(protoreflect.Name(name))
}

func join(path, name string) string { return strings.TrimPrefix(path+"."+name, ".") }

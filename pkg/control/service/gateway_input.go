package service

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/refusal"
)

// fieldRule is what is told of a field that there is not.
const fieldRule = "expected a field of the request, as docs/reference/api.md has them: there is none of that name"

// readRequest reads the request of a call from the body, or from the path and what stands behind the ?.
func (c *webCall) readRequest(response http.ResponseWriter, request *http.Request, into proto.Message) error {
	values := request.URL.Query()
	if c.hasBody {
		raw, err := io.ReadAll(http.MaxBytesReader(response, request.Body, api.RequestLenMax))
		if err != nil {
			return bodyError(err)
		}
		if err := checkNoParameters(values); err != nil || len(bytes.TrimSpace(raw)) == 0 {
			return err
		}
		return unmarshalJSON(raw, into)
	}
	for _, name := range c.variables {
		values[name] = append(values[name], request.PathValue(name))
	}
	return readParameters(values, into)
}

// checkNoParameters refuses what stands behind the ? where the request is the body: nobody would read it.
func checkNoParameters(values url.Values) error {
	var problems []*api.Problem
	for _, name := range slices.Sorted(maps.Keys(values)) {
		problems = append(problems, &api.Problem{
			Field: name, Value: shownValue(values[name]), Rule: "expected no parameter: this call reads its body alone",
		})
	}
	if len(problems) == 0 {
		return nil
	}
	return refusal.InvalidArgument("", problems)
}

// readParameters fills a request with texts by their fields, and tells of all that cannot be.
func readParameters(values url.Values, into proto.Message) error {
	var problems []*api.Problem
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if rule := readParameter(name, values[name], into); rule != "" {
			problems = append(problems, &api.Problem{Field: name, Value: shownValue(values[name]), Rule: rule})
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return refusal.InvalidArgument("", problems)
}

func shownValue(texts []string) string { return strconv.Quote(strings.Join(texts, ",")) }

// readParameter sets one field, by way of the JSON that has it alone; "" or what was expected.
func readParameter(name string, texts []string, into proto.Message) string {
	path := strings.Split(name, ".")
	field := fieldAt(into.ProtoReflect().Descriptor(), path)
	if field == nil {
		return fieldRule
	}
	if len(texts) > 1 && !field.IsList() {
		return "expected the parameter once"
	}
	values := make([]any, len(texts))
	for i, text := range texts {
		value, isOne := parameterValue(field, text)
		if !isOne {
			return enumRule(field.Enum())
		}
		values[i] = value
	}
	var object any = values
	if !field.IsList() {
		object = values[0]
	}
	for _, one := range slices.Backward(path) {
		object = map[string]any{one: object}
	}
	raw, err := json.Marshal(object)
	if err != nil {
		return err.Error()
	}
	read := into.ProtoReflect().New().Interface()
	if protojson.Unmarshal(raw, read) != nil {
		return "expected a value of type " + typeText(field)
	}
	proto.Merge(into, read)
	return ""
}

// parameterValue is a text as JSON has it in a field; false: the field's kind has no such value.
func parameterValue(field protoreflect.FieldDescriptor, text string) (any, bool) {
	if isTrue, err := strconv.ParseBool(text); field.Kind() == protoreflect.BoolKind && err == nil {
		return isTrue, true
	}
	if field.Enum() == nil {
		return text, true
	}
	if number, err := strconv.ParseInt(text, 10, 32); err == nil {
		return number, field.Enum().Values().ByNumber(protoreflect.EnumNumber(number)) != nil
	}
	return text, field.Enum().Values().ByName(protoreflect.Name(text)) != nil
}

// enumRule lists the values of a kind, without the one that stands for none of them.
func enumRule(kind protoreflect.EnumDescriptor) string {
	var names []string
	for i := range kind.Values().Len() {
		if one := kind.Values().Get(i); !strings.HasSuffix(string(one.Name()), "_UNSPECIFIED") {
			names = append(names, string(one.Name()))
		}
	}
	return "expected one of " + strings.Join(names, ", ")
}

// fieldAt finds a field of a message, or of one within it; nil: there is none.
func fieldAt(message protoreflect.MessageDescriptor, path []string) protoreflect.FieldDescriptor {
	field := fieldNamed(message, path[0])
	if field == nil || len(path) == 1 {
		return field
	}
	if field.Message() == nil {
		return nil
	}
	return fieldAt(field.Message(), path[1:])
}

// unmarshalJSON reads a message. Of what is none it tells all that is wrong, each with the path of its field: of a
// fabric with many streams the name alone tells nobody which one it is.
func unmarshalJSON(raw []byte, into proto.Message) error {
	err := protojson.Unmarshal(raw, into)
	if err == nil {
		return nil
	}
	if syntax := json.Unmarshal(raw, new(json.RawMessage)); syntax != nil {
		err = syntax
	} else if problems := problemsOfJSON(raw, into); len(problems) > 0 {
		return refusal.InvalidArgument("", problems)
	}
	return refusal.InvalidArgument("", []*api.Problem{{
		Field: "body",
		Rule:  fmt.Sprintf("expected the request as docs/reference/api.md has it: %v", err),
	}})
}

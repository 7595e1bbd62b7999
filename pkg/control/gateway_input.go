package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// How protojson and the reader of parameters say what is wrong with a text; protojson's spaces vary.
var (
	unknownParameter = regexp.MustCompile(`unknown parameter ("(?:[^"\\]|\\.)*"), value ("(?:[^"\\]|\\.)*")`)
	badParameter     = regexp.MustCompile(`parsing (?:field|list) "([^"]*)": (?:parsing )?("[^"]*")?:? ?(.*)$`)
	jsonUnknown      = regexp.MustCompile(`\(line (\d+:\d+)\): unknown field "([^"]*)"`)
	jsonValue        = regexp.MustCompile(`\(line (\d+:\d+)\): invalid value for (\S+) (?:field|type) ([^:\s]*):? ?(.*)$`)
	jsonSyntax       = regexp.MustCompile(`(?:syntax error )?\(line (\d+:\d+)\): (.*)$`)
)

// writeHTTPError answers with a problem in the details where the body was not to be read, as the calls themselves do.
func writeHTTPError(ctx context.Context, mux *runtime.ServeMux, marshaler runtime.Marshaler, response http.ResponseWriter, request *http.Request, err error) {
	if answer := bodyAnswer(err); answer != nil {
		err = answer
	} else if answer, ok := status.FromError(err); ok && answer.Code() == codes.InvalidArgument && len(answer.Details()) == 0 {
		err = withProblems(codes.InvalidArgument, answer.Message(), problemsOfText(answer.Message()))
	}
	runtime.DefaultHTTPErrorHandler(ctx, mux, marshaler, response, request, err)
}

// writeRoutingError answers where no call is. A path that has other methods is not one that is still to be written, as the gateway would have it.
func writeRoutingError(ctx context.Context, mux *runtime.ServeMux, marshaler runtime.Marshaler, response http.ResponseWriter, request *http.Request, code int) {
	if code == http.StatusMethodNotAllowed {
		writeHTTPError(ctx, mux, marshaler, response, request, &runtime.HTTPStatusError{
			HTTPStatus: code, Err: status.Errorf(codes.Unimplemented, "%s %s: expected another method, as docs/reference/api.md has them", request.Method, request.URL.Path),
		})
		return
	}
	runtime.DefaultRoutingErrorHandler(ctx, mux, marshaler, response, request, code)
}

// problemsOfText finds fields, values and rules in what the reader of JSON, or of parameters, says.
func problemsOfText(text string) (problems []*api.Problem) {
	text = strings.ReplaceAll(text, "\u00a0", " ")
	for _, found := range unknownParameter.FindAllStringSubmatch(text, -1) {
		name, _ := strconv.Unquote(found[1])
		problems = append(problems, &api.Problem{Field: name, Value: found[2], Rule: fieldRule})
	}
	if len(problems) > 0 {
		return problems
	}
	one := &api.Problem{Field: "body", Rule: "expected the request as docs/reference/api.md has it: " + text}
	if found := badParameter.FindStringSubmatch(text); found != nil {
		one = &api.Problem{Field: found[1], Value: found[2], Rule: "expected a value of the field's type: " + found[3]}
	} else if found := jsonUnknown.FindStringSubmatch(text); found != nil {
		one = &api.Problem{Field: found[2], Rule: fieldRule + " (line " + found[1] + ")"}
	} else if found := jsonValue.FindStringSubmatch(text); found != nil {
		one = &api.Problem{Field: found[3], Value: found[4], Rule: fmt.Sprintf("expected a value of type %s (line %s)", found[2], found[1])}
	} else if found := jsonSyntax.FindStringSubmatch(text); found != nil {
		one = &api.Problem{Field: "body", Rule: fmt.Sprintf("expected JSON: %s (line %s)", found[2], found[1])}
	}
	return []*api.Problem{one}
}

// fieldRule is what is told of a field that there is not.
const fieldRule = "expected a field of the request, as docs/reference/api.md has them: there is none of that name"

// queryParser reads what stands behind the ? of a request, and refuses what the request has no field for.
type queryParser struct{ runtime.DefaultQueryParser }

// Parse implements runtime.QueryParameterParser.
func (p queryParser) Parse(into proto.Message, values url.Values, filter *utilities.DoubleArray) error {
	var unknown []string
	for _, name := range sortedKeys(values) {
		if !hasField(into.ProtoReflect().Descriptor(), strings.Split(name, ".")) {
			unknown = append(unknown, fmt.Sprintf("unknown parameter %q, value %q", name, strings.Join(values[name], ",")))
		}
	}
	if len(unknown) > 0 {
		return errors.New(strings.Join(unknown, "; ")) // of which writeHTTPError makes problems
	}
	return p.DefaultQueryParser.Parse(into, values, filter)
}

func hasField(message protoreflect.MessageDescriptor, path []string) bool {
	field := message.Fields().ByName(protoreflect.Name(path[0]))
	if field == nil {
		field = message.Fields().ByJSONName(path[0])
	}
	switch {
	case field == nil:
		return false
	case len(path) == 1:
		return true
	}
	return field.Message() != nil && hasField(field.Message(), path[1:])
}

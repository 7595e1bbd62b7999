package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/refusal"
)

// How protojson and the reader of parameters say what is wrong with a text; protojson's spaces vary.
var (
	unknownParameter = regexp.MustCompile(`unknown parameter ("(?:[^"\\]|\\.)*"), value ("(?:[^"\\]|\\.)*")`)
	badParameter     = regexp.MustCompile(
		`parsing (?:field|list) "([^"]*)": (?:\w+\.\w+: )?(?:parsing )?("(?:[^"\\]|\\.)*")?:? ?(.*)$`,
	)
	jsonSyntax = regexp.MustCompile(`(?:syntax error )?\(line (\d+:\d+)\): (.*)$`)
)

// writeHTTPError answers with a problem in the details where the body was not to be read, as the calls themselves do.
func writeHTTPError(ctx context.Context, mux *runtime.ServeMux, marshaler runtime.Marshaler,
	response http.ResponseWriter, request *http.Request, err error,
) {
	if answer := bodyAnswer(err); answer != nil {
		err = answer
	} else if answer, ok := status.FromError(err); ok && answer.Code() == codes.InvalidArgument &&
		len(answer.Details()) == 0 {
		if body, ok := request.Body.(*jsonBody); ok && len(body.problems) > 0 {
			err = refusal.InvalidArgument("", body.problems)
		} else {
			err = refusal.WithProblems(codes.InvalidArgument, answer.Message(), problemsOfText(answer.Message()))
		}
	}
	runtime.DefaultHTTPErrorHandler(ctx, mux, marshaler, response, request, err)
}

// writeRoutingError answers where no call is. A path that has other methods is not one that is still to be written, as
// the gateway would have it.
func writeRoutingError(ctx context.Context, mux *runtime.ServeMux, marshaler runtime.Marshaler,
	response http.ResponseWriter, request *http.Request, code int,
) {
	if code == http.StatusMethodNotAllowed {
		writeHTTPError(ctx, mux, marshaler, response, request, &runtime.HTTPStatusError{
			HTTPStatus: code, Err: status.Errorf(codes.Unimplemented,
				"%s %s: expected another method, as docs/reference/api.md has them", request.Method, request.URL.Path),
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
		one = &api.Problem{Field: found[1], Value: found[2], Rule: found[3]}
		if !strings.HasPrefix(one.Rule, "expected ") {
			one.Rule = "expected a value of the field's type: " + one.Rule
		}
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
	var wrong error
	for _, name := range slices.Sorted(maps.Keys(values)) {
		field := fieldAt(into.ProtoReflect().Descriptor(), strings.Split(name, "."))
		if field == nil {
			unknown = append(unknown, fmt.Sprintf("unknown parameter %q, value %q", name,
				strings.Join(values[name], ",")))
		} else if field.Enum() != nil {
			wrong = cmp.Or(wrong, checkEnum(name, values[name], field.Enum()))
		}
	}
	if len(unknown) > 0 {
		return errors.New(strings.Join(unknown, "; ")) // of which writeHTTPError makes problems
	}
	if wrong != nil {
		return wrong
	}
	return p.DefaultQueryParser.Parse(into, values, filter)
}

// checkEnum says which values there are: the gateway says only that this is none.
func checkEnum(name string, values []string, kind protoreflect.EnumDescriptor) error {
	for _, value := range values {
		number, err := strconv.ParseInt(value, 10, 32)
		if err == nil && kind.Values().ByNumber(protoreflect.EnumNumber(number)) != nil ||
			kind.Values().ByName(protoreflect.Name(value)) != nil {
			continue
		}
		return fmt.Errorf("parsing field %q: %q: %s", name, value, enumRule(kind))
	}
	return nil
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

package service

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// pathVariable is a field of the request in a path of the protocol: {host}, or {name=**} for all that follows.
var pathVariable = regexp.MustCompile(`\{(\w+)(=\*\*)?\}`)

// routePaths routes each call of the API by its google.api.http option, which docs/reference/api.md shows.
func (s *Server) routePaths(mux *http.ServeMux) error {
	taken := map[string][]string{} // methods by path
	for _, service := range overHTTP {
		descriptor, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service.ServiceName))
		if err != nil {
			return fmt.Errorf("find service %s: %w", service.ServiceName, err)
		}
		methods := descriptor.(protoreflect.ServiceDescriptor).Methods()
		for _, one := range callsOf(service) {
			one.server = s
			method, path := one.bind(methods.ByName(protoreflect.Name(one.name)).Options())
			if path == "" {
				return fmt.Errorf("%s: expected option google.api.http with one path and with body \"*\" or none",
					one.fullName)
			}
			mux.Handle(method+" "+path, one)
			taken[path] = append(taken[path], method)
		}
	}
	for path, methods := range taken {
		mux.HandleFunc(path, func(response http.ResponseWriter, request *http.Request) {
			writeMethodError(response, request, methods)
		})
	}
	return nil
}

// callsOf lists the calls of a service.
func callsOf(service grpc.ServiceDesc) (calls []*webCall) {
	for i, one := range service.Methods {
		calls = append(calls, &webCall{name: one.MethodName, unary: &service.Methods[i]})
	}
	for i, one := range service.Streams {
		calls = append(calls, &webCall{name: one.StreamName, stream: &service.Streams[i]})
	}
	for _, one := range calls {
		one.fullName = "/" + service.ServiceName + "/" + one.name
	}
	return calls
}

// bind gives the method and the path of a call as http.ServeMux has them, and notes where its request is. "": it has
// none, or such as are not understood.
func (c *webCall) bind(options proto.Message) (method, path string) {
	rule, _ := proto.GetExtension(options, annotations.E_Http).(*annotations.HttpRule)
	switch rule.GetPattern().(type) {
	case *annotations.HttpRule_Get:
		method = http.MethodGet
	case *annotations.HttpRule_Put:
		method = http.MethodPut
	case *annotations.HttpRule_Post:
		method = http.MethodPost
	case *annotations.HttpRule_Delete:
		method = http.MethodDelete
	case *annotations.HttpRule_Patch:
		method = http.MethodPatch
	}
	path = cmp.Or(rule.GetGet(), rule.GetPut(), rule.GetPost(), rule.GetDelete(), rule.GetPatch())
	if c.hasBody = rule.GetBody() == "*"; !c.hasBody && rule.GetBody() != "" ||
		len(rule.GetAdditionalBindings()) > 0 || rule.GetResponseBody() != "" {
		return "", ""
	}
	for _, found := range pathVariable.FindAllStringSubmatch(path, -1) {
		c.variables = append(c.variables, found[1])
		path = strings.Replace(path, found[0], "{"+found[1]+strings.Replace(found[2], "=**", "...", 1)+"}", 1)
	}
	return method, path
}

// writeMethodError answers a path that has other methods.
func writeMethodError(response http.ResponseWriter, request *http.Request, methods []string) {
	slices.Sort(methods)
	response.Header().Set("Allow", strings.Join(methods, ", "))
	writeHTTPError(response, codedError{http.StatusMethodNotAllowed, status.Errorf(codes.Unimplemented,
		"%s %s: expected another method, as docs/reference/api.md has them", request.Method, request.URL.Path)})
}

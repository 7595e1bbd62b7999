package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/encoding/protojson"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/identity"
)

const (
	httpHeaderMax = 5 * time.Second
	httpIdleMax   = 2 * time.Minute
)

// newHTTP makes the API over HTTP/JSON: the same calls, by way of the same guard, as whoever the connection's
// certificate says.
func (s *Server) newHTTP(ctx context.Context) (*http.Server, error) {
	mux := runtime.NewServeMux(runtime.WithMarshalerOption(runtime.MIMEWildcard, pathJSON{&runtime.JSONPb{
		MarshalOptions:   protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true},
		UnmarshalOptions: protojson.UnmarshalOptions{DiscardUnknown: false},
	}}), runtime.WithErrorHandler(writeHTTPError), runtime.WithRoutingErrorHandler(writeRoutingError),
		runtime.SetQueryParameterParser(queryParser{}))
	here := inProcess{s}
	err := errors.Join(
		api.RegisterControlServiceHandlerClient(ctx, mux, api.NewControlServiceClient(here)),
		api.RegisterFabricServiceHandlerClient(ctx, mux, api.NewFabricServiceClient(here)),
		api.RegisterTargetServiceHandlerClient(ctx, mux, api.NewTargetServiceClient(here)),
		api.RegisterDrainServiceHandlerClient(ctx, mux, api.NewDrainServiceClient(here)),
		api.RegisterHostServiceHandlerClient(ctx, mux, api.NewHostServiceClient(here)))
	if err != nil {
		return nil, fmt.Errorf("set up HTTP: %w", err)
	}
	handler := http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		if s.config.Keeper == nil && !isLocalRequest(request) {
			http.Error(response, "without TLS only programs of this host are answered, and no web page",
				http.StatusForbidden)
			return
		}
		from := &peer.Peer{Addr: clientAddress(request.RemoteAddr)}
		if request.TLS != nil {
			from.AuthInfo = tlsInfo(*request.TLS)
		}
		request.Body = &jsonBody{ReadCloser: limitBody(response, request)}
		mux.ServeHTTP(response, request.WithContext(peer.NewContext(request.Context(), from)))
	})
	return &http.Server{Handler: handler, ReadHeaderTimeout: httpHeaderMax, IdleTimeout: httpIdleMax}, nil
}

// isLocalRequest tells a program from a web page in a browser on this host, which has nobody's certificate to show
// either: a page of somebody else's says where it is from, or has given its own name this host's address.
func isLocalRequest(request *http.Request) bool {
	host := request.Host
	if _, _, err := net.SplitHostPort(host); err != nil {
		host = net.JoinHostPort(strings.Trim(host, "[]"), "80")
	}
	return request.Header.Get("Origin") == "" && request.Header.Get("Sec-Fetch-Site") == "" && identity.IsLoopback(host)
}

// clientAddress is a net.Addr by its text.
type clientAddress string

// Network implements net.Addr.
func (clientAddress) Network() string { return "tcp" }

// String implements net.Addr.
func (a clientAddress) String() string { return string(a) }

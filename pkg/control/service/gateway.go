package service

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/identity"
)

const (
	httpHeaderMax = 5 * time.Second
	httpIdleMax   = 2 * time.Minute
)

// overHTTP are the services that HTTP reaches.
var overHTTP = []grpc.ServiceDesc{
	api.ControlService_ServiceDesc, api.FabricService_ServiceDesc,
	api.TargetService_ServiceDesc, api.DrainService_ServiceDesc,
	api.HostService_ServiceDesc,
}

// newHTTP makes the API over HTTP/1.1: JSON by the paths that the protocol gives its calls, Connect and gRPC-Web by
// their names. All go through the same guard, as whoever the connection's certificate says.
func (s *Server) newHTTP(overGRPC http.Handler) (*http.Server, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(response http.ResponseWriter, request *http.Request) {
		writeHTTPError(response, status.Error(codes.NotFound, http.StatusText(http.StatusNotFound)))
	})
	if err := s.routePaths(mux); err != nil {
		return nil, fmt.Errorf("set up HTTP: %w", err)
	}
	if err := routeNames(mux, overGRPC); err != nil {
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
		request = request.WithContext(peer.NewContext(request.Context(), from))
		limitPace(response, request)
		mux.ServeHTTP(response, request)
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

// Package metrics gives every daemon the same registry and the same HTTP server with /metrics and /healthz. Names are
// farlog_<subsystem>_<what>_<base unit>[_total], in seconds and bytes. What is measured elsewhere (a ring's cursors, a
// writer's shared counters) is read at the moment of the scrape and never copied into counters of our own.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// namespace starts every name.
const namespace = "farlog"

const (
	readHeaderTimeout = 5 * time.Second
	shutdownTimeout   = time.Second
)

// NewRegistry makes a registry that holds what every process exports: the Go runtime, the process and its build.
func NewRegistry(version string) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "build_info", Help: "1; the label names the version that runs.",
	}, []string{"version"})
	build.WithLabelValues(version).Set(1)
	registry.MustRegister(build, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// Server serves /metrics and /healthz on a listener that is already open, so that a port in use is found before
// anything else starts.
type Server struct {
	listener net.Listener
	server   *http.Server
}

// NewServer makes a Server. healthy says what is wrong, nil for nothing: /healthz answers 200 or 503 with the text.
func NewServer(listener net.Listener, registry *prometheus.Registry, healthy func() error) *Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry,
		promhttp.HandlerOpts{EnableOpenMetrics: true, Registry: registry}))
	mux.HandleFunc("GET /healthz", func(response http.ResponseWriter, _ *http.Request) {
		response.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if err := healthy(); err != nil {
			response.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintln(response, err)
			return
		}
		_, _ = io.WriteString(response, "ok\n")
	})
	return &Server{listener: listener, server: &http.Server{Handler: mux, ReadHeaderTimeout: readHeaderTimeout}}
}

// Run serves until ctx is done.
func (s *Server) Run(ctx context.Context) error {
	served := make(chan error, 1)
	go func() { served <- s.server.Serve(s.listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve metrics on %s: %w", s.listener.Addr(), err)
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := s.server.Shutdown(stopping); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("stop metrics server: %w", err)
	}
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/farlog/farlog/cmd/internal/version"
)

const (
	traceFlushMax  = 2 * time.Second
	traceExportMax = 5 * time.Second
)

// openTraces sends spans of the control path to a collector, when there is one. Nothing waits for it: what it does not
// take is dropped. Nothing of the data path is traced.
func (d *daemon) openTraces(ctx context.Context) error {
	if d.settings.traceEndpoint == "" {
		return nil
	}
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(d.settings.traceEndpoint),
		otlptracegrpc.WithTimeout(traceExportMax))
	if err != nil {
		return fmt.Errorf("trace.endpoint %q: %w", d.settings.traceEndpoint, err)
	}
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter, trace.WithBatchTimeout(time.Second)),
		trace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "farlogd-"+strings.Join(d.settings.roles, "-")),
			attribute.String("service.version", version.Of()), attribute.String("host.name", d.settings.hostName))))
	otel.SetTracerProvider(provider)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { d.logger.Debug("spans were dropped", "error", err) }))
	d.parts = append(d.parts, part{
		run:     func(_ context.Context, ready func()) error { ready(); return nil },
		healthy: func() error { return nil },
		close: func() error {
			ctx, cancel := context.WithTimeout(context.Background(), traceFlushMax)
			defer cancel()
			_ = provider.Shutdown(ctx) // a collector that is away must not spoil an orderly end
			return nil
		},
	})
	return nil
}

// traceURL checks where spans go.
func traceURL(text string) error {
	if text == "" {
		return nil
	}
	at, err := url.Parse(text)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Port() == "" {
		return errors.New("expected http://host:port or https://host:port of an OpenTelemetry collector (OTLP over " +
			"gRPC), such as http://127.0.0.1:4317")
	}
	return nil
}

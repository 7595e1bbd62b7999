// Package tracing makes the spans of the control plane.
package tracing

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Tracer makes the spans of the control plane; without a collector they cost nothing. No token goes into one.
var Tracer = otel.Tracer("github.com/farlog/farlog/pkg/control")

// InSpan does a step of a call as a span of its own.
func InSpan(ctx context.Context, name, stream string, do func(context.Context) error) error {
	ctx, span := Tracer.Start(ctx, name, trace.WithAttributes(attribute.String("farlog.stream", stream)))
	err := do(ctx)
	EndSpan(span, err)
	return err
}

// EndSpan ends a span, with the error if there is one.
func EndSpan(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

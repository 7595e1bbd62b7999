package control

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// tracer makes the spans of the control plane; without a collector they cost nothing. No token goes into one.
var tracer = otel.Tracer("github.com/farlog/farlog/pkg/control")

// inSpan does a step of a call as a span of its own.
func inSpan(ctx context.Context, name, stream string, do func(context.Context) error) error {
	ctx, span := tracer.Start(ctx, name, trace.WithAttributes(attribute.String("farlog.stream", stream)))
	err := do(ctx)
	endSpan(span, err)
	return err
}

func endSpan(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/config"
	"github.com/farlog/farlog/pkg/identity"
)

// callTimeoutDefault bounds one question to the control plane.
const callTimeoutDefault = 10 * time.Second

// controlClient is a connection to the control plane whose errors are fit to be printed.
type controlClient struct {
	api.ControlServiceClient
	api.FabricServiceClient
	conn    *patientConn
	address string
	choice  identity.Choice
	timeout time.Duration // of one question

	isInsecure bool
}

// dialControl makes the connection; nothing is sent before the first call. A call waits for a control plane until its
// timeout. The caller closes it.
func (e *environment) dialControl() (*controlClient, error) {
	client, err := e.dialControlOnce()
	if err == nil {
		client.conn.isPatient = true
	}
	return client, err
}

// dialControlOnce is dialControl for one who asks again by itself, and has something to do meanwhile.
func (e *environment) dialControlOnce() (*controlClient, error) {
	conn, err := api.Dial(e.control, e.credentials())
	if err != nil {
		return nil, fmt.Errorf("control %q: %w", e.control, err)
	}
	client := &controlClient{address: e.control, choice: e.choice(), timeout: e.callTimeout(), isInsecure: e.isInsecure}
	client.conn = &patientConn{ClientConn: conn, client: client, stderr: e.stderr}
	client.ControlServiceClient = api.NewControlServiceClient(client.conn)
	client.FabricServiceClient = api.NewFabricServiceClient(client.conn)
	return client, nil
}

func (c *controlClient) Close() error { return c.conn.Close() }

func (e *environment) callTimeout() time.Duration { return cmp.Or(e.timeout, callTimeoutDefault) }

// holder is who asks for a grant: this program, on this host.
func (e *environment) holder(name string) *api.Holder {
	host, _ := os.Hostname() // empty is allowed: it is shown to people only
	if why := identity.WhyAny(e.addresses); why != "" {
		fmt.Fprintf(e.stderr, "%s\n", why)
	}
	return &api.Holder{Host: host, Pid: uint32(os.Getpid()), Name: name, Addresses: identity.Addresses(e.addresses)}
}

// ask makes one call to the control plane, within the time for one. stream is the one that it is about, "" = none.
func ask[Q, A any](ctx context.Context, env *environment, stream string, request Q,
	call func(*controlClient, context.Context, Q, ...grpc.CallOption) (A, error),
) (answer A, err error) {
	client, err := env.dialControl()
	if err != nil {
		return answer, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, client.timeout)
	defer cancel()
	if answer, err = call(client, ctx, request); err != nil {
		err = client.explain(ctx, stream, err)
	}
	return answer, err
}

// streamStatus is what the control plane knows of one stream.
func (e *environment) streamStatus(ctx context.Context, stream string) (*api.StreamStatus, error) {
	response, err := ask(ctx, e, stream, &api.GetStreamRequest{Name: stream}, (*controlClient).GetStream)
	return response.GetStream(), err
}

// explain turns the error of a call into one line that says what to do. stream is the one that was asked for, "" =
// none.
func (c *controlClient) explain(ctx context.Context, stream string, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return errors.New("interrupted")
	}
	answer := status.Convert(err)
	if refusal := c.refusal(answer); refusal != nil {
		return refusal
	}
	switch answer.Code() {
	case codes.NotFound:
		return errors.New(c.nearest(ctx, stream, answer.Message()))
	case codes.Unavailable, codes.DeadlineExceeded:
		if isUnreached(answer.Message()) || answer.Code() == codes.DeadlineExceeded {
			return fmt.Errorf("control plane %s does not answer: start one (farlogd dev --data-dir DIR), or give "+
				"--control HOST:PORT", c.address)
		}
	case codes.InvalidArgument:
		return usageErrorf("%s", answer.Message())
	case codes.ResourceExhausted:
		if strings.Contains(answer.Message(), "larger than max") { // which gRPC says by itself
			return fmt.Errorf(
				"the request is too large for control plane %s: expected at most %s: ask for less at once", c.address,
				config.FormatSize(api.RequestLenMax))
		}
	case codes.Unimplemented:
		return fmt.Errorf("%s is not a farlog control plane, or an older one: %s", c.address, answer.Message())
	}
	return errors.New(answer.Message())
}

// isUnreached tells a connection that could not be made from a control plane that answered "not now".
func isUnreached(text string) bool {
	return strings.Contains(text, "connection error") || strings.Contains(text, "name resolver") ||
		strings.Contains(text, "error reading")
}

// nearest adds the streams that were probably meant.
func (c *controlClient) nearest(ctx context.Context, stream, message string) string {
	response, err := c.ListStreams(ctx, &api.ListStreamsRequest{})
	if err != nil {
		return message
	}
	names := make([]string, 0, len(response.Streams))
	for _, one := range response.Streams {
		names = append(names, one.Stream.Spec.Name)
	}
	if near := config.Nearest(stream, names); len(near) > 0 {
		return fmt.Sprintf("stream %q: there is none of that name: did you mean %s?", stream,
			strings.Join(near, " or "))
	}
	return message
}

// writeJSON prints one value as indented JSON on stdout.
func (e *environment) writeJSON(value any) error {
	encoder := json.NewEncoder(e.stdout)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// writeProto prints a message of the control plane as JSON, with the field names of the .proto file.
func (e *environment) writeProto(message proto.Message) error {
	raw, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(message)
	if err != nil {
		return err
	}
	return e.writeJSON(json.RawMessage(raw))
}

package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/identity"
)

// protocol is one of those that the API is reached by. Its calls give errors of gRPC.
type protocol struct {
	name   string
	create func(ctx context.Context, g *guarded, as *identity.Keeper, request *api.CreateStreamRequest) error
	// watch gives a function that gives the names of the next message
	watch func(ctx context.Context, g *guarded, as *identity.Keeper) func() ([]string, error)
}

var protocols = []protocol{
	{"gRPC", createOverGRPC, watchOverGRPC},
	{"JSON", createOverJSON, watchOverJSON},
	overConnect("Connect"),
	overConnect("Connect, JSON", connect.WithProtoJSON()),
	overConnect("Connect, packed", connect.WithSendGzip()),
	overConnect("gRPC-Web", connect.WithGRPCWeb()),
	overConnect("gRPC-Web, JSON", connect.WithGRPCWeb(), connect.WithProtoJSON()),
}

func createOverGRPC(ctx context.Context, g *guarded, as *identity.Keeper, request *api.CreateStreamRequest) error {
	_, err := api.NewControlServiceClient(g.dial(as)).CreateStream(ctx, request,
		grpc.MaxCallSendMsgSize(2*api.RequestLenMax))
	return err
}

func watchOverGRPC(ctx context.Context, g *guarded, as *identity.Keeper) func() ([]string, error) {
	watch, err := api.NewControlServiceClient(g.dial(as)).WatchStreams(ctx, &api.WatchStreamsRequest{})
	return func() ([]string, error) {
		if err != nil {
			return nil, err
		}
		answer, err := watch.Recv()
		return namesOf(answer), err
	}
}

func namesOf(answer *api.WatchStreamsResponse) (names []string) {
	for _, one := range answer.GetStreams() {
		names = append(names, one.Spec.Name)
	}
	return names
}

func createOverJSON(ctx context.Context, g *guarded, as *identity.Keeper, request *api.CreateStreamRequest) error {
	raw, err := protojson.Marshal(request)
	if err != nil {
		return err
	}
	response, err := doOverJSON(ctx, g, as, http.MethodPost, "/v1/streams", raw)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// doOverJSON gives what is told as an error as one.
func doOverJSON(ctx context.Context, g *guarded, as *identity.Keeper, method, path string, body []byte,
) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, "https://"+g.address+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	otel.GetTextMapPropagator().Inject(ctx, propagation.HeaderCarrier(request.Header))
	response, err := g.web(as).Do(request)
	if err != nil || response.StatusCode == http.StatusOK {
		return response, err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	told := new(statuspb.Status)
	if err := errors.Join(err, protojson.Unmarshal(raw, told)); err != nil {
		return nil, err
	}
	return nil, status.FromProto(told).Err()
}

func watchOverJSON(ctx context.Context, g *guarded, as *identity.Keeper) func() ([]string, error) {
	response, err := doOverJSON(ctx, g, as, http.MethodGet, "/v1/watch/streams", nil)
	if err != nil {
		return func() ([]string, error) { return nil, err }
	}
	g.t.Cleanup(func() { response.Body.Close() })
	lines := json.NewDecoder(response.Body)
	return func() ([]string, error) {
		var line struct{ Result, Error json.RawMessage }
		if err := lines.Decode(&line); err != nil {
			return nil, err
		}
		if line.Error != nil {
			told := new(statuspb.Status)
			return nil, errors.Join(protojson.Unmarshal(line.Error, told), status.FromProto(told).Err())
		}
		answer := new(api.WatchStreamsResponse)
		err := protojson.Unmarshal(line.Result, answer)
		return namesOf(answer), err
	}
}

// connectClient makes a client of one call.
func connectClient[Q, A any](g *guarded, as *identity.Keeper, method string, options ...connect.ClientOption,
) *connect.Client[Q, A] {
	return connect.NewClient[Q, A](g.web(as), "https://"+g.address+method, options...)
}

func overConnect(name string, options ...connect.ClientOption) protocol {
	return protocol{
		name,
		func(ctx context.Context, g *guarded, as *identity.Keeper, message *api.CreateStreamRequest) error {
			client := connectClient[api.CreateStreamRequest, api.CreateStreamResponse](g, as,
				api.ControlService_CreateStream_FullMethodName, options...)
			request := connect.NewRequest(message)
			otel.GetTextMapPropagator().Inject(ctx, propagation.HeaderCarrier(request.Header()))
			_, err := client.CallUnary(ctx, request)
			return ofConnect(err)
		},
		func(ctx context.Context, g *guarded, as *identity.Keeper) func() ([]string, error) {
			client := connectClient[api.WatchStreamsRequest, api.WatchStreamsResponse](g, as,
				api.ControlService_WatchStreams_FullMethodName, options...)
			stream, err := client.CallServerStream(ctx, connect.NewRequest(&api.WatchStreamsRequest{}))
			return func() ([]string, error) {
				if err != nil {
					return nil, ofConnect(err)
				}
				if !stream.Receive() {
					return nil, ofConnect(stream.Err())
				}
				return namesOf(stream.Msg()), nil
			}
		},
	}
}

// ofConnect makes an error of gRPC out of one of Connect.
func ofConnect(err error) error {
	var coded *connect.Error
	if !errors.As(err, &coded) {
		return err
	}
	told := &statuspb.Status{Code: int32(coded.Code()), Message: coded.Message()}
	for _, one := range coded.Details() {
		value, err := one.Value()
		if err != nil {
			return err
		}
		detail, err := anypb.New(value)
		if err != nil {
			return err
		}
		told.Details = append(told.Details, detail)
	}
	return status.FromProto(told).Err()
}

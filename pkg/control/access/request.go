package access

import api "github.com/farlog/farlog/pkg/api/v1"

// HostOf is the host of whose targets or drains a request changes what is declared: they are every stream's.
func HostOf(request any) (string, bool) {
	switch request := request.(type) {
	case *api.CreateTargetRequest, *api.UpdateTargetRequest:
		return request.(interface{ GetSpec() *api.TargetSpec }).GetSpec().GetHost(), true
	case *api.CreateDrainRequest, *api.UpdateDrainRequest:
		return request.(interface{ GetSpec() *api.DrainSpec }).GetSpec().GetHost(), true
	case *api.DeleteTargetRequest, *api.DeleteDrainRequest:
		return request.(interface{ GetHost() string }).GetHost(), true
	}
	return "", false
}

// named and ofStream are what a request has that is about one stream, or route.
type (
	named    interface{ GetName() string }
	ofStream interface{ GetStream() string }
)

// StreamOf is the stream, or the route, that a request is about.
func StreamOf(request any) (string, bool) {
	switch request := request.(type) {
	case *api.CreateStreamRequest, *api.UpdateStreamRequest:
		return request.(interface{ GetSpec() *api.StreamSpec }).GetSpec().GetName(), true
	case *api.DeleteStreamRequest, *api.GetStreamRequest:
		return request.(named).GetName(), true
	case *api.AcquireWriterRequest, *api.ExtendWriterRequest, *api.AcquireReaderRequest, *api.TakeOverStreamRequest,
		*api.RebindStreamRequest, *api.ReplaceMemberRequest, *api.AcceptLossRequest:
		return request.(ofStream).GetStream(), true
	case *api.ReportConsumerRequest:
		return request.GetConsumer().GetStream(), true
	}
	return RouteOf(request)
}

// RouteOf is the route that a request is about.
func RouteOf(request any) (string, bool) {
	switch request := request.(type) {
	case *api.CreateRouteRequest, *api.UpdateRouteRequest:
		return request.(interface{ GetSpec() *api.RouteSpec }).GetSpec().GetName(), true
	case *api.DeleteRouteRequest, *api.GetRouteRequest:
		return request.(named).GetName(), true
	case *api.AcquireRouteRequest:
		return request.Route, true
	}
	return "", false
}

package access

import api "github.com/farlog/farlog/pkg/api/v1"

// HostOf is the host of whose targets or drains a request changes what is declared: they are every stream's.
func HostOf(request any) (string, bool) {
	switch request := request.(type) {
	case *api.CreateTargetRequest:
		return request.GetSpec().GetHost(), true
	case *api.UpdateTargetRequest:
		return request.GetSpec().GetHost(), true
	case *api.DeleteTargetRequest:
		return request.Host, true
	case *api.CreateDrainRequest:
		return request.GetSpec().GetHost(), true
	case *api.UpdateDrainRequest:
		return request.GetSpec().GetHost(), true
	case *api.DeleteDrainRequest:
		return request.Host, true
	}
	return "", false
}

// StreamOf is the stream, or the route, that a request is about.
func StreamOf(request any) (string, bool) {
	switch request := request.(type) {
	case *api.CreateStreamRequest:
		return request.GetSpec().GetName(), true
	case *api.UpdateStreamRequest:
		return request.GetSpec().GetName(), true
	case *api.DeleteStreamRequest:
		return request.Name, true
	case *api.GetStreamRequest:
		return request.Name, true
	case *api.AcquireWriterRequest:
		return request.Stream, true
	case *api.ExtendWriterRequest:
		return request.Stream, true
	case *api.AcquireReaderRequest:
		return request.Stream, true
	case *api.ReportConsumerRequest:
		return request.GetConsumer().GetStream(), true
	case *api.TakeOverStreamRequest:
		return request.Stream, true
	case *api.RebindStreamRequest:
		return request.Stream, true
	case *api.ReplaceMemberRequest:
		return request.Stream, true
	case *api.AcceptLossRequest:
		return request.Stream, true
	}
	return RouteOf(request)
}

// RouteOf is the route that a request is about.
func RouteOf(request any) (string, bool) {
	switch request := request.(type) {
	case *api.CreateRouteRequest:
		return request.GetSpec().GetName(), true
	case *api.UpdateRouteRequest:
		return request.GetSpec().GetName(), true
	case *api.DeleteRouteRequest:
		return request.Name, true
	case *api.GetRouteRequest:
		return request.Name, true
	case *api.AcquireRouteRequest:
		return request.Route, true
	}
	return "", false
}

package refusal

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// AsStatus gives errors of this package and of etcd a gRPC code. An etcd that does not answer is UNAVAILABLE: the
// caller may try again.
func AsStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	var ofEtcd rpctypes.EtcdError // of gRPC it is none: without a leader, or when its disk is slow, etcd gives this
	switch {
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, err.Error())
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &ofEtcd) && ofEtcd.Code() == codes.Unavailable:
		return status.Error(codes.Unavailable, err.Error())
	}
	return status.Error(codes.Internal, err.Error())
}

package service

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/farlog/farlog/pkg/identity"
)

// Failed is a control plane whose state is damaged. Its process stays, so that whoever asks is told what to do.
type Failed struct {
	Keeper *identity.Keeper // as Config's
	Reason error
}

// Run answers every call on listener with the reason (DATA_LOSS, over HTTP 500) until ctx is done. ready is called
// once, when calls are answered. It may be called once.
func (f Failed) Run(ctx context.Context, listener net.Listener, ready func()) error {
	credentials := identity.Insecure()
	if f.Keeper != nil {
		credentials = handshaken{credentials}
	}
	refuse := func(any, grpc.ServerStream) error { return status.Error(codes.DataLoss, f.Reason.Error()) }
	server := grpc.NewServer(grpc.Creds(credentials), grpc.ConnectionTimeout(connectMax),
		grpc.MaxRecvMsgSize(messageReadMax), grpc.UnknownServiceHandler(refuse))
	web := &http.Server{
		ReadHeaderTimeout: connectMax,
		Handler: http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) {
			http.Error(response, f.Reason.Error(), http.StatusInternalServerError)
		}),
	}
	both := newPort(listener, f.Keeper)
	served := make(chan error, 3)
	go func() { served <- server.Serve(both.grpc) }()
	go func() { served <- web.Serve(both.http) }()
	go func() { served <- both.run(ctx) }()
	ready()
	var err error
	select {
	case err = <-served:
		err = fmt.Errorf("serve %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	_ = listener.Close()
	timer := time.AfterFunc(gracefulStopMax, server.Stop)
	defer timer.Stop()
	server.GracefulStop()
	_ = web.Close()
	return err
}

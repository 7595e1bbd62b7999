package service

import (
	"context"
	"maps"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// trial makes one call and gives its code.
type trial func(context.Context, *grpc.ClientConn) error

func trials() map[string]trial {
	all := agentTrials(&api.Agent{Id: "alpha-00000000", Host: "alpha"})
	maps.Copy(all, streamTrials())
	maps.Copy(all, operatorTrials())
	maps.Copy(all, memberTrials())
	maps.Copy(all, routeTrials())
	maps.Copy(all, fabricTrials())
	maps.Copy(all, systemTrials())
	return all
}

// systemTrials are for the stream that the control plane writes: no role lets anybody else do that.
func systemTrials() map[string]trial {
	const stream = "farlog/audit"
	holder := &api.Holder{Host: "h", Name: "test"}
	return map[string]trial{
		"WriteAudit": func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := api.NewControlServiceClient(conn).AcquireWriter(ctx,
				&api.AcquireWriterRequest{Stream: stream, Holder: holder})
			return err
		},
		"ExtendAudit": func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := api.NewControlServiceClient(conn).ExtendWriter(ctx,
				&api.ExtendWriterRequest{Stream: stream, Epoch: 1, Holder: holder})
			return err
		},
		"TakeOverAudit": func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := api.NewControlServiceClient(conn).TakeOverStream(ctx,
				&api.TakeOverStreamRequest{Stream: stream, Reason: "test"})
			return err
		},
		"ReadAudit": func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := api.NewControlServiceClient(conn).AcquireReader(ctx,
				&api.AcquireReaderRequest{Stream: stream, Holder: holder})
			return err
		},
	}
}

// streamTrials are calls that make, change and delete a stream.
func streamTrials() map[string]trial {
	return map[string]trial{
		"CreateStream": func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := api.NewControlServiceClient(conn).CreateStream(ctx,
				&api.CreateStreamRequest{Spec: &api.StreamSpec{Name: "desk7/orders"}})
			return err
		},
		"UpdateStream": func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := api.NewControlServiceClient(conn).UpdateStream(ctx,
				&api.UpdateStreamRequest{Spec: &api.StreamSpec{Name: "desk7/orders"}})
			return err
		},
		"DeleteStream": func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := api.NewControlServiceClient(conn).DeleteStream(ctx,
				&api.DeleteStreamRequest{Name: "desk7/orders", DryRun: true})
			return err
		},
		"WatchStreams": func(ctx context.Context, conn *grpc.ClientConn) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			watch, err := api.NewControlServiceClient(conn).WatchStreams(ctx, &api.WatchStreamsRequest{})
			if err == nil {
				_, err = watch.Recv()
			}
			return err
		},
	}
}

// operatorTrials are the other calls of operators, and of those who append.
func operatorTrials() map[string]trial {
	holder := &api.Holder{Host: "h", Name: "test"}
	return map[string]trial{
		"ApplyFabric": func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := api.NewControlServiceClient(conn).ApplyFabric(ctx,
				&api.ApplyFabricRequest{Fabric: &api.Fabric{Streams: []*api.StreamSpec{{Name: "desk7/orders"}}}})
			return err
		},
		"Backup": func(ctx context.Context, conn *grpc.ClientConn) error {
			backup, err := api.NewControlServiceClient(conn).Backup(ctx, &api.BackupRequest{})
			if err == nil {
				_, err = backup.Recv()
			}
			return err
		},
		"Restore": func(ctx context.Context, conn *grpc.ClientConn) error {
			restore, err := api.NewControlServiceClient(conn).Restore(ctx)
			if err == nil {
				_, err = restore.CloseAndRecv()
			}
			return err
		},
		"GetFabric": func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := api.NewControlServiceClient(conn).GetFabric(ctx, &api.GetFabricRequest{})
			return err
		},
		"ListStreams": func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := api.NewControlServiceClient(conn).ListStreams(ctx, &api.ListStreamsRequest{})
			return err
		},
		"GetStream": func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := api.NewControlServiceClient(conn).GetStream(ctx, &api.GetStreamRequest{Name: "desk7/orders"})
			return err
		},
		"AcquireWriter": func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := api.NewControlServiceClient(conn).AcquireWriter(ctx,
				&api.AcquireWriterRequest{Stream: "desk7/orders", Holder: holder})
			return err
		},
		"ListAgents": func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := api.NewControlServiceClient(conn).ListAgents(ctx, &api.ListAgentsRequest{})
			return err
		},
		"Health": func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
			return err
		},
	}
}

func memberTrials() map[string]trial {
	return map[string]trial{
		"TakeOverStream": func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := api.NewControlServiceClient(conn).TakeOverStream(ctx,
				&api.TakeOverStreamRequest{Stream: "desk7/orders", Reason: "test"})
			return err
		},
		"ExtendWriter": func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := api.NewControlServiceClient(conn).ExtendWriter(ctx,
				&api.ExtendWriterRequest{Stream: "desk7/orders", Epoch: 1, Holder: &api.Holder{Host: "alpha"}})
			return err
		},
		"CheckWriters": func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := api.NewControlServiceClient(conn).CheckWriters(ctx,
				&api.CheckWritersRequest{
					Host:    "alpha",
					Writers: []*api.RunningWriter{{Stream: "desk7/orders", Epoch: 1}},
				})
			return err
		},
		"WatchWriters": func(ctx context.Context, conn *grpc.ClientConn) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			watch, err := api.NewControlServiceClient(conn).WatchWriters(ctx, &api.WatchWritersRequest{Host: "alpha"})
			if err == nil {
				_, err = watch.Recv()
			}
			return err
		},
		"RebindStream": func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := api.NewControlServiceClient(conn).RebindStream(ctx,
				&api.RebindStreamRequest{Stream: "desk7/orders", Drain: "alpha", Reason: "test"})
			return err
		},
		"ReplaceMember": func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := api.NewControlServiceClient(conn).ReplaceMember(ctx,
				&api.ReplaceMemberRequest{Stream: "desk7/orders", Member: "alpha", Reason: "test"})
			return err
		},
		"AcceptLoss": func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := api.NewControlServiceClient(conn).AcceptLoss(ctx,
				&api.AcceptLossRequest{Stream: "desk7/orders", Reason: "test"})
			return err
		},
	}
}

func agentTrials(agent *api.Agent) map[string]trial {
	return map[string]trial{
		"WatchRings": func(ctx context.Context, conn *grpc.ClientConn) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			watch, err := api.NewTargetServiceClient(conn).WatchRings(ctx, &api.WatchRingsRequest{Agent: agent})
			if err == nil {
				_, err = watch.Recv()
			}
			return err
		},
		"ReportTarget": func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := api.NewTargetServiceClient(conn).ReportTarget(ctx,
				&api.ReportTargetRequest{State: &api.TargetState{Agent: agent}})
			return err
		},
		"WatchAssignments": func(ctx context.Context, conn *grpc.ClientConn) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			watch, err := api.NewDrainServiceClient(conn).WatchAssignments(ctx,
				&api.WatchAssignmentsRequest{Agent: agent})
			if err == nil {
				_, err = watch.Recv()
			}
			return err
		},
		"ReportConsumer": func(ctx context.Context, conn *grpc.ClientConn) error {
			told := &api.SlowConsumer{Stream: "desk7/orders", Holder: &api.Holder{Host: agent.Host}}
			_, err := api.NewControlServiceClient(conn).ReportConsumer(ctx, &api.ReportConsumerRequest{Consumer: told})
			return err
		},
		"ReportHost": func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := api.NewHostServiceClient(conn).ReportHost(ctx,
				&api.ReportHostRequest{State: &api.HostState{Host: agent.Host}})
			return err
		},
		"ReportDrain": func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := api.NewDrainServiceClient(conn).ReportDrain(ctx,
				&api.ReportDrainRequest{State: &api.DrainState{Agent: agent}})
			return err
		},
	}
}

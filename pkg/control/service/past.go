package service

import (
	"context"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
)

const pastPageMost = 1000 // streams in an answer with them

const pastAtOnce = 100 // streams in one question to etcd, which takes at most 128

// addPast puts what is kept of the epochs before into what is known of each stream's.
func (s *Server) addPast(ctx context.Context, epochs []*api.EpochInfo) error {
	for part := range slices.Chunk(epochs, pastAtOnce) {
		var asked []clientv3.Op
		for _, one := range part {
			asked = append(asked, clientv3.OpGet(etcd.KeyPastEpochs+one.Stream))
		}
		got, err := s.config.Client.Txn(ctx).Then(asked...).Commit()
		if err != nil {
			return fmt.Errorf("read past epochs: %w", err)
		}
		for i, one := range part {
			past := new(api.PastEpochs)
			for _, kv := range got.Responses[i].GetResponseRange().Kvs {
				if err := etcd.Decode(string(kv.Key), kv.Value, past); err != nil {
					return err
				}
			}
			// The last may have become one of the past since the view.
			one.Past = slices.DeleteFunc(past.Epochs,
				func(past *api.PastEpoch) bool { return past.Epoch >= one.Granted })
			slices.Reverse(one.Past)
		}
	}
	return nil
}

package identity

import (
	"log/slog"
	"sync"
)

// keeperSlot holds the keeper of the files that were asked for last.
type keeperSlot struct {
	mutex  sync.Mutex
	keeper *Keeper
}

func (s *keeperSlot) of(files Files, logger *slog.Logger) (*Keeper, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.keeper != nil && s.keeper.files == files {
		return s.keeper, nil
	}
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	keeper, err := NewKeeper(files, logger)
	if err != nil {
		return nil, err
	}
	s.keeper = keeper
	return keeper, nil
}

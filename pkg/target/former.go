package target

import (
	"errors"
	"fmt"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/nvmet"
)

// Rings are those in the namespaces of this host's NVMe target, by the devices and files that they are made of.
type Rings struct{}

// Number is that of a host in a ring's header.
func (Rings) Number(hostNQN string) uint64 { return farlog.HostNumber(hostNQN) }

// Formers gives who wrote each ring of a device last. A device that has no ring has none.
func (Rings) Formers(device string) ([]nvmet.Former, error) {
	uris, err := ringsOf(device)
	if err != nil {
		return nil, err
	}
	var formers []nvmet.Former
	for _, uri := range uris {
		one, err := farlog.FormerOf(uri)
		switch {
		case errors.Is(err, farlog.ErrNotARing) || errors.Is(err, farlog.ErrNotFound):
			continue
		case err != nil:
			return formers, err
		}
		formers = append(formers, nvmet.Former{Ring: uri, Host: one.Host, Epoch: one.Epoch, IsOut: one.IsClosed ||
			one.Epoch == 0 || one.Host == 0, IsFenced: one.EpochMin > one.Epoch, IsShared: uri != "nvme:"+device})
	}
	return formers, nil
}

// Out says in the ring that its former writer writes no more.
func (Rings) Out(former nvmet.Former) error {
	return farlog.FormerOut(former.Ring, former.Host, former.Epoch)
}

func ringsOf(device string) ([]string, error) {
	uri := "nvme:" + device
	list, err := farlog.ListRegion(uri)
	switch {
	case errors.Is(err, farlog.ErrExists):
		return []string{uri}, nil // one ring
	case errors.Is(err, farlog.ErrNotARing) || errors.Is(err, farlog.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("rings of %s: %w", device, err)
	}
	var uris []string
	for _, ring := range list.Rings {
		if ring.State == farlog.RingReady {
			uris = append(uris, inRegion(uri, ring.Name).uri)
		}
	}
	return uris, nil
}

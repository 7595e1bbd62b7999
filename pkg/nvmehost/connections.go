package nvmehost

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Wanted is a namespace that this host is to have connected. It is number 1 of its subsystem.
type Wanted struct {
	Target, Name string // the host that exports it, and what it is called there
	NQN          string
	Specs        []Spec // one for each address of the target, the first that succeeds is used
	Err          error  // why it cannot be connected, whatever the target says; nil: it can
}

// Connection is what has come of a Wanted.
type Connection struct {
	Wanted Wanted
	Device Device // Path "": it is not connected
	Err    error  // why it is not; nil: it is, or nothing was tried yet
}

// Connections keeps namespaces connected. Follow and Close are called by one goroutine; List by any.
type Connections struct {
	kernel Kernel
	tell   func(Wanted, Event) // by many goroutines

	keepers sync.WaitGroup
	ended   map[string]<-chan struct{} // by NQN: closed when its last keeper has ended. Of who calls Follow
	mutex   sync.Mutex
	kept    map[string]*kept // by NQN
}

type kept struct {
	connection Connection
	stop       context.CancelFunc
}

// NewConnections keeps none yet.
func NewConnections(kernel Kernel, tell func(Wanted, Event)) *Connections {
	return &Connections{kernel: kernel, tell: tell, ended: map[string]<-chan struct{}{}, kept: map[string]*kept{}}
}

// Follow keeps these connected from now on, and no others. What is connected already stays so when it is no longer
// wanted: the target ends it, and until then programs may have its device open.
func (c *Connections) Follow(wanted []Wanted) {
	isWanted := map[string]bool{}
	for _, one := range wanted {
		isWanted[one.NQN] = true
		c.mutex.Lock()
		before := c.kept[one.NQN]
		c.mutex.Unlock()
		if before != nil && before.connection.Wanted.isSame(one) {
			continue
		}
		if before != nil {
			before.stop()
		}
		c.keep(one)
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for nqn, one := range c.kept {
		if !isWanted[nqn] {
			one.stop()
			delete(c.kept, nqn)
		}
	}
}

func (w Wanted) isSame(other Wanted) bool {
	return w.Target == other.Target && w.Name == other.Name && slices.Equal(w.Specs, other.Specs) &&
		fmt.Sprint(w.Err) == fmt.Sprint(other.Err)
}

func (c *Connections) keep(wanted Wanted) {
	ctx, stop := context.WithCancel(context.Background())
	one := &kept{Connection{Wanted: wanted, Err: wanted.Err}, stop}
	c.mutex.Lock()
	c.kept[wanted.NQN] = one
	c.mutex.Unlock()
	if wanted.Err != nil {
		c.tell(wanted, Event{Err: wanted.Err})
		return
	}
	before, ended := c.ended[wanted.NQN], make(chan struct{})
	c.ended[wanted.NQN] = ended
	c.keepers.Go(func() {
		defer close(ended)
		if before != nil {
			<-before // it may be in the kernel, which would connect the subsystem twice
		}
		if ctx.Err() != nil {
			return
		}
		c.kernel.Keep(ctx, wanted.Specs, 1, func(event Event) {
			c.mutex.Lock()
			one.connection.Device, one.connection.Err = event.Device, event.Err
			c.mutex.Unlock()
			c.tell(wanted, event)
		})
	})
}

// List is how they are, by NQN.
func (c *Connections) List() (list []Connection) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, one := range c.kept {
		list = append(list, one.connection)
	}
	slices.SortFunc(list, func(a, b Connection) int { return strings.Compare(a.Wanted.NQN, b.Wanted.NQN) })
	return list
}

// Close ends the keeping, and leaves what is connected.
func (c *Connections) Close() {
	c.Follow(nil)
	c.keepers.Wait()
}

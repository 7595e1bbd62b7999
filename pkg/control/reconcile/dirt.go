package reconcile

// Dirt is what has changed in a world since it was last planned: only these streams can need something. The zero value
// is none.
type Dirt struct {
	isAll       bool
	isUnsettled bool
	streams     map[string]bool
}

// TouchAll says that every stream may need something.
func (d *Dirt) TouchAll() { d.isAll = true }

// TouchUnsettled says that what streams wait for may be there: a target, a drain, space.
func (d *Dirt) TouchUnsettled() { d.isUnsettled = true }

// Touch says that something of this stream has changed.
func (d *Dirt) Touch(stream string) {
	if d.streams == nil {
		d.streams = map[string]bool{}
	}
	d.streams[stream] = true
}

// Add takes over what another one has.
func (d *Dirt) Add(other Dirt) {
	d.isAll, d.isUnsettled = d.isAll || other.isAll, d.isUnsettled || other.isUnsettled
	for stream := range other.streams {
		d.Touch(stream)
	}
}

// IsClean tells that nothing can need anything.
func (d *Dirt) IsClean() bool { return !d.isAll && !d.isUnsettled && len(d.streams) == 0 }

// Streams lists the streams that can need something, in order; unsettled are those that waited for something when they
// were last planned.
func (d *Dirt) Streams(world World, unsettled map[string]bool) []string {
	if d.isAll {
		return sortedNames(world.Streams)
	}
	touched := map[string]bool{}
	for name := range d.streams {
		touched[name] = true
	}
	if d.isUnsettled {
		for name := range unsettled {
			touched[name] = true
		}
	}
	for name := range touched {
		if world.Streams[name] == nil {
			delete(touched, name)
		}
	}
	return sortedNames(touched)
}

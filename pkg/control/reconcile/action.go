package reconcile

// Verb says what an action does, in a word.
func (a Action) Verb() string {
	switch {
	case a.Place != nil:
		return "place"
	case a.Renew != nil:
		return "renew"
	case a.Bind != nil:
		return "bind"
	case a.Keep != nil:
		return "keep"
	case a.Retire != "":
		return "retire"
	case a.Forget != "":
		return "forget"
	}
	return "assign"
}

// Stream is the name of the stream that an action is about.
func (a Action) Stream() string {
	switch {
	case a.Place != nil:
		return a.Place.Stream.Spec.Name
	case a.Renew != nil:
		return a.Renew.Stream.Spec.Name
	case a.Bind != nil:
		return a.Bind.Stream.Spec.Name
	case a.Keep != nil:
		return a.Keep.Stream
	case a.Retire != "" || a.Forget != "":
		return a.Retire + a.Forget
	}
	return a.Assign.Stream
}

// IsEnd tells the actions that change many keys of one stream at once, and are done one by one.
func (a Action) IsEnd() bool { return a.Retire != "" || a.Forget != "" }

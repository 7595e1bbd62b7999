package main

import (
	"math"

	"github.com/spf13/pflag"

	"github.com/farlog/farlog/pkg/query"
)

// recordFilter has the flags by which query and replay choose records, beside streams and times.
type recordFilter struct {
	classes []uint
	keys    []string
	filter  string
}

func (f *recordFilter) declare(flags *pflag.FlagSet) {
	flags.UintSliceVar(&f.classes, "class", nil, "only of this `class`, or of these: 3,4")
	flags.StringArrayVar(
		&f.keys,
		"key",
		nil,
		"only with this `key`, byte by byte; several times: with any of them",
	)
	flags.StringVar(&f.filter, "filter", "", "only those for which this `expression` of CEL is true")
}

// complete checks the flags, and puts what they ask for into a request.
func (f *recordFilter) complete(request *query.Request) (err error) {
	request.Keys = f.keys
	for _, class := range f.classes {
		if class > math.MaxUint16 {
			return usageErrorf("--class %d: expected a whole number from 0 to 65535", class)
		}
		request.Classes = append(request.Classes, uint16(class))
	}
	if f.filter == "" {
		return nil
	}
	if request.Filter, err = query.NewFilter(f.filter); err != nil {
		return usageErrorf("--filter: %s", err)
	}
	return nil
}

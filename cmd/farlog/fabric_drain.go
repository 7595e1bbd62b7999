package main

import (
	api "github.com/farlog/farlog/pkg/api/v1"
)

// drainFields are the keys of a drain in a fabric.yaml.
var drainFields = []fileField[*api.DrainSpec]{
	{
		"host", "host", func(d *api.DrainSpec, text string) error { d.Host = text; return nil },
		func(d *api.DrainSpec) string { return d.Host },
	},
	{
		"store", "store_dir", func(d *api.DrainSpec, text string) error { d.StoreDir = text; return nil },
		func(d *api.DrainSpec) string { return d.StoreDir },
	},
	{
		"streams_max", "streams_max", func(d *api.DrainSpec, text string) (err error) {
			d.StreamsMax,
				err = readCount(text)
			return err
		},
		func(d *api.DrainSpec) string { return countOrNothing(d.StreamsMax) },
	},
	{
		"closed", "is_closed", func(d *api.DrainSpec, text string) (err error) {
			d.IsClosed,
				err = readBool(text)
			return err
		},
		func(d *api.DrainSpec) string { return map[bool]string{true: "true"}[d.IsClosed] },
	},
}

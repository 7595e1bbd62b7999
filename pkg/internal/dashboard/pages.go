package dashboard

import "fmt"

// once counts a writer's figures once: the target and the host agent of its host both export them.
func once(expr string) string { return "max without (instance, job) (" + expr + ")" }

// appends are the buckets of all appends, of each ring once.
func appends(where string) string {
	return "max by (stream, target, le) (rate(farlog_writer_append_seconds_bucket" + where + "[$__rate_interval]))"
}

// quantiles are the lines of a latency by stream, made of the rates of its buckets.
func quantiles(buckets string) []Query {
	var queries []Query
	for _, one := range []struct{ quantile, name string }{
		{"0.5", "p50"},
		{"0.99", "p99"},
		{"0.999", "p99.9"},
		{"1", "max"},
	} {
		queries = append(queries, Query{
			Expr:   fmt.Sprintf("histogram_quantile(%s, sum by (stream, le) (%s))", one.quantile, buckets),
			Legend: one.name + " {{stream}}",
		})
	}
	return queries
}

const ofStream, ofInstance = `{stream=~"$stream"}`, `{instance=~"$instance"}`

func lines(unit, title string, queries ...Query) Panel {
	return Panel{Title: title, Unit: unit, Kind: kindGraph, Queries: queries}
}

func number(unit, title, expr string, warn, alarm float64) Panel {
	return Panel{Title: title, Unit: unit, Kind: kindStat, Warn: warn, Alarm: alarm, Queries: []Query{{expr, ""}}}
}

func (p Panel) marks(warn, alarm float64) Panel {
	p.Warn, p.Alarm = warn, alarm
	return p
}

func (p Panel) says(about string) Panel {
	p.About = about
	return p
}

func (p Panel) wide(columns int) Panel {
	p.Width = columns
	return p
}

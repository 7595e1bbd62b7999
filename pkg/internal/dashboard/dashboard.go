// Package dashboard makes Grafana's dashboards of farlog: what they show is a table here, and the JSON in
// deploy/grafana is made from it. Log lag comes first on each of them.
package dashboard

import (
	"encoding/json"
	"fmt"
)

// Dashboard is one page.
type Dashboard struct {
	Name, Title, About string
	Variables          []Variable
	Rows               []Row
}

// Variable is what a page can be narrowed to: the values that a label has on some metric.
type Variable struct{ Name, Metric, Label string }

// Row is a heading with its panels, which stand side by side as far as there is space.
type Row struct {
	Title  string
	Panels []Panel
}

// Panel is one picture.
type Panel struct {
	Title, About string
	Unit         string // as Grafana names it: s, bytes, ops, percentunit, short
	Kind         string // kindGraph, kindStat or kindTable
	Width        int    // of gridColumns; 0 = as the kind has it
	Warn, Alarm  float64
	Queries      []Query
}

// Query is an expression and the name of each line that comes of it.
type Query struct{ Expr, Legend string }

const (
	kindGraph = "timeseries"
	kindStat  = "stat"
	kindTable = "table"

	gridColumns = 24
	// schemaVersion is that of Grafana 10; later ones read it and bring it up to date.
	schemaVersion = 38
)

var (
	widths  = map[string]int{kindGraph: 8, kindStat: 4, kindTable: 12}
	heights = map[string]int{kindGraph: 8, kindStat: 4, kindTable: 8}
)

// All are the dashboards that there are.
func All() []Dashboard { return []Dashboard{fabric(), stream(), drain(), host()} }

// JSON is what Grafana takes in.
func (d Dashboard) JSON() ([]byte, error) {
	raw, err := json.MarshalIndent(d.model(), "", "  ")
	return append(raw, '\n'), err
}

type object = map[string]any

func (d Dashboard) model() object {
	return object{
		"uid": "farlog-" + d.Name, "title": d.Title, "description": d.About, "tags": []string{"farlog"},
		"schemaVersion": schemaVersion, "version": 1,
		"editable": true, "refresh": "5s", "timezone": "utc", "time": object{"from": "now-15m", "to": "now"},
		"graphTooltip": 1,
		"templating":   object{"list": d.variables()}, "panels": d.panels(), "annotations": object{"list": []any{}},
		"links": []any{object{
			"title": "farlog", "type": "dashboards", "tags": []string{"farlog"}, "asDropdown": false,
			"includeVars": true, "keepTime": true, "icon": "external link", "targetBlank": false, "tooltip": "",
		}},
	}
}

var source = object{"type": "prometheus", "uid": "${datasource}"}

func (d Dashboard) variables() []object {
	list := []object{{
		"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus",
		"hide": 0,
	}}
	for _, one := range d.Variables {
		list = append(list, object{
			"name": one.Name, "label": one.Name, "type": "query", "datasource": source,
			"query":      fmt.Sprintf("label_values(%s, %s)", one.Metric, one.Label),
			"includeAll": true, "allValue": ".*", "multi": true, "refresh": 2, "sort": 1,
			"current": object{"text": "All", "value": []string{"$__all"}},
		})
	}
	return list
}

// panels lays the rows out: from left to right, and below where there is no space.
func (d Dashboard) panels() []object {
	var list []object
	x, y, tallest := 0, 0, 0
	breakLine := func() { x, y, tallest = 0, y+tallest, 0 }
	for _, row := range d.Rows {
		breakLine()
		list = append(list, object{
			"id": len(list) + 1, "type": "row", "title": row.Title, "collapsed": false,
			"panels": []any{}, "gridPos": place(0, y, gridColumns, 1),
		})
		y++
		for _, panel := range row.Panels {
			width, height := panel.Width, heights[panel.Kind]
			if width == 0 {
				width = widths[panel.Kind]
			}
			if x+width > gridColumns {
				breakLine()
			}
			one := panel.model(len(list) + 1)
			one["gridPos"] = place(x, y, width, height)
			list = append(list, one)
			x, tallest = x+width, max(tallest, height)
		}
	}
	return list
}

func place(x, y, width, height int) object { return object{"x": x, "y": y, "w": width, "h": height} }

func (p Panel) model(id int) object {
	targets := make([]object, len(p.Queries))
	for i, query := range p.Queries {
		targets[i] = object{
			"refId": string(rune('A' + i)), "datasource": source, "expr": query.Expr, "legendFormat": query.Legend,
			"editorMode": "code",
			"range":      p.Kind == kindGraph, "instant": p.Kind != kindGraph,
		}
		if p.Kind == kindTable {
			targets[i]["format"] = "table"
		}
	}
	return object{
		"id": id, "type": p.Kind, "title": p.Title, "description": p.About, "datasource": source, "targets": targets,
		"fieldConfig": object{"defaults": p.defaults(), "overrides": []any{}}, "options": p.options(),
	}
}

func (p Panel) defaults() object {
	steps := []object{{"color": "green", "value": nil}}
	if p.Warn != 0 {
		steps = append(steps, object{"color": "orange", "value": p.Warn})
	}
	if p.Alarm != 0 {
		steps = append(steps, object{"color": "red", "value": p.Alarm})
	}
	if p.Alarm != 0 && p.Alarm < p.Warn { // less is worse
		steps = []object{
			{"color": "red", "value": nil},
			{"color": "orange", "value": p.Alarm},
			{"color": "green", "value": p.Warn},
		}
	}
	defaults := object{"unit": p.Unit, "thresholds": object{"mode": "absolute", "steps": steps}}
	if p.Kind == kindGraph {
		style := "off"
		if len(steps) > 1 {
			style = "line"
		}
		defaults["custom"] = object{
			"drawStyle": "line", "lineWidth": 1, "fillOpacity": 8, "showPoints": "never",
			"spanNulls": false, "thresholdsStyle": object{"mode": style},
		}
	}
	return defaults
}

func (p Panel) options() object {
	switch p.Kind {
	case kindGraph:
		return object{"legend": object{
			"calcs": []string{}, "displayMode": "list", "placement": "bottom",
			"showLegend": true,
		}, "tooltip": object{"mode": "multi", "sort": "desc"}}
	case kindStat:
		return object{
			"colorMode": "value", "graphMode": "none", "textMode": "auto",
			"reduceOptions": object{"calcs": []string{"lastNotNull"}, "fields": "", "values": false},
		}
	}
	return object{"showHeader": true}
}

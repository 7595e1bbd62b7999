package dashboard

func fabric() Dashboard {
	return Dashboard{
		Name: "fabric", Title: "farlog / fabric",
		About: "All streams: lag, latency, and what is missing.", Rows: []Row{
			fabricLag(),
			fabricAppends(),
			fabricControlPlanes(),
		},
	}
}

func fabricLag() Row {
	return Row{"Log lag", []Panel{
		number("s", "Oldest undrained record", "max(farlog_ring_lag_seconds)", 5, 60),
		number("bytes", "Undrained bytes", "sum(max by (stream) (farlog_ring_lag_bytes))", 0, 0),
		number("s", "Shortest time to full", "min(farlog_ring_time_to_full_seconds)", 300,
			60).says("Nothing while no ring fills."),
		number("percentunit", "Fullest ring", "max(farlog_ring_full_ratio)", 0.7, 0.85),
		number(
			"short",
			"Streams not ok",
			`count(count by (stream) (farlog_stream_condition_info{condition!~"ok|writer_gone"})) or vector(0)`,
			1,
			0,
		).
			says("Streams that nobody writes at present are left out: their writer closed or ended."),
		number(
			"short",
			"Alerts",
			`count(ALERTS{alertname=~"Farlog.*", alertstate="firing"}) or vector(0)`,
			1,
			0,
		),
		lines("s", "Age of the oldest record", Query{
			"topk(20, max by (stream) (farlog_ring_lag_seconds))",
			"{{stream}}",
		}).marks(5, 60).wide(12),
		lines("bytes", "Undrained bytes", Query{
			"topk(20, max by (stream) (farlog_ring_lag_bytes))",
			"{{stream}}",
		}).wide(12),
		lines("percentunit", "Rings in use", Query{
			"topk(20, max by (stream) (farlog_ring_full_ratio))",
			"{{stream}}",
		}).marks(0.7, 0.85),
		lines("s", "Time to full", Query{
			"bottomk(20, min by (stream) (farlog_ring_time_to_full_seconds))",
			"{{stream}}",
		}).says("Nothing while no ring fills."),
		{
			Title: "Streams not ok, or without a writer", Kind: kindTable, Width: 8, Unit: "short",
			Queries: []Query{{
				`max by (stream, condition) (farlog_stream_condition_info{condition!="ok"}) == 1`,
				"",
			}},
		},
	}}
}

func fabricAppends() Row {
	return Row{"Appends and drains", []Panel{
		lines("ops", "Records a second", Query{"sum(" +
			once("rate(farlog_writer_records_total[$__rate_interval])") + ")", "appended"},
			Query{"sum(rate(farlog_drain_records_total[$__rate_interval]))", "stored"}),
		lines("s", "Append, all streams", Query{
			"histogram_quantile(0.5, sum by (le) (" + appends("") + "))",
			"p50",
		},
			Query{"histogram_quantile(0.99, sum by (le) (" + appends("") + "))", "p99"},
			Query{"histogram_quantile(0.999, sum by (le) (" + appends("") + "))", "p99.9"}),
		lines("s", "Sync of a store", Query{"histogram_quantile(0.99, sum by (instance, le) " +
			"(rate(farlog_store_sync_seconds_bucket[$__rate_interval])))", "p99 {{instance}}"}),
	}}
}

func fabricControlPlanes() Row {
	return Row{"Members and control planes", []Panel{
		number("short", "Rings missing", "sum(max by (stream) (farlog_stream_members)) - sum(min by (stream) "+
			"(farlog_stream_members_ready))", 1, 1),
		number("short", "Streams without a drain",
			"count(min by (stream) (farlog_stream_drain_alive) == 0) or vector(0)", 1, 1),
		number("short", "Targets", `max(farlog_control_agents{role="target"})`, 0, 0),
		number("short", "Drains", `max(farlog_control_agents{role="drain"})`, 0, 0),
		number("short", "Leaders", "sum(farlog_control_leader)", 0, 0),
		number("short", "Control planes connected to etcd", "sum(farlog_control_etcd_connected)", 0, 0),
		number("short", "Audit events pending", "max(farlog_control_audit_events_pending)", 1000, 5000),
		lines("ops", "Calls", Query{
			"sum by (code) (rate(farlog_control_request_seconds_count[$__rate_interval]))",
			"{{code}}",
		}),
		lines(
			"s",
			"Answer",
			Query{
				"histogram_quantile(0.99, sum by (method, le) (rate(farlog_control_request_seconds_bucket" +
					`{method!~".*Watch.*"}[$__rate_interval])))`,
				"p99 {{method}}",
			},
		),
		lines("ops", "Grants", Query{
			"sum by (stream) (rate(farlog_control_grants_total[$__rate_interval]))",
			"{{stream}}",
		}),
	}}
}

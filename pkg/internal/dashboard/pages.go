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

func fabric() Dashboard {
	return Dashboard{
		Name: "fabric", Title: "farlog / fabric",
		About: "All streams: lag, latency, and what is missing.", Rows: []Row{
			{"Log lag", []Panel{
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
			}},
			{"Appends and drains", []Panel{
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
			}},
			{"Members and control planes", []Panel{
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
						`histogram_quantile(0.99, sum by (method, le) (rate(farlog_control_request_seconds_bucket{method!~".*Watch.*"}[$__rate_interval])))`,
						"p99 {{method}}",
					},
				),
				lines("ops", "Grants", Query{
					"sum by (stream) (rate(farlog_control_grants_total[$__rate_interval]))",
					"{{stream}}",
				}),
			}},
		},
	}
}

func stream() Dashboard {
	return Dashboard{
		Name: "stream", Title: "farlog / stream",
		About:     "One stream: its lag, its ring, its appends, its writer.",
		Variables: []Variable{{"stream", "farlog_ring_lag_bytes", "stream"}}, Rows: []Row{
			{"Log lag", []Panel{
				lines("s", "Age of the oldest record", Query{
					"farlog_ring_lag_seconds" + ofStream,
					"{{stream}} {{target}}",
				}).marks(5, 60),
				lines("bytes", "Undrained bytes", Query{"farlog_ring_lag_bytes" + ofStream, "{{stream}} {{target}}"}),
				lines("short", "Undrained records", Query{
					"farlog_ring_lag_records" + ofStream,
					"{{stream}} {{target}}",
				}),
				lines("percentunit", "Ring in use", Query{
					"farlog_ring_full_ratio" + ofStream,
					"{{stream}} {{target}}",
				}).marks(0.7, 0.85),
				lines("s", "Time to full", Query{
					"farlog_ring_time_to_full_seconds" + ofStream,
					"{{stream}} {{target}}",
				}).says("Nothing while the ring does not fill."),
				lines("ops", "Records a second", Query{
					"sum by (stream) (" +
						once("rate(farlog_writer_records_total"+ofStream+"[$__rate_interval])") + ")",
					"appended {{stream}}",
				},
					Query{
						"sum by (stream) (rate(farlog_drain_records_total" + ofStream + "[$__rate_interval]))",
						"stored {{stream}}",
					}),
			}},
			{"Appends", []Panel{
				{
					Title: "Append", About: "From the call to its acknowledgement; the level and flush are in the " +
						"legend of the table below.", Unit: "s", Kind: kindGraph, Width: 12,
					Queries: quantiles(appends(ofStream)),
				},
				lines("binBps", "Payload", Query{
					"sum by (stream) (" +
						once("rate(farlog_writer_payload_bytes_total"+ofStream+"[$__rate_interval])") + ")",
					"{{stream}}",
				}).wide(6),
				lines("short", "Records a flush", Query{
					"sum by (stream) (" +
						once(
							"rate(farlog_writer_records_total"+ofStream+"[$__rate_interval])",
						) + ") / sum by (stream) (" +
						once("rate(farlog_writer_flushes_total"+ofStream+"[$__rate_interval])") + ")",
					"{{stream}}",
				}).wide(6),
				lines("short", "Not acknowledged", Query{once("increase(farlog_writer_full_total" + ofStream +
					"[$__rate_interval])"), "full {{stream}}"},
					Query{
						once("increase(farlog_writer_unknown_total" + ofStream + "[$__rate_interval])"),
						"unknown {{stream}}",
					},
					Query{
						once("increase(farlog_writer_fenced_total" + ofStream + "[$__rate_interval])"),
						"fenced {{stream}}",
					},
					Query{
						once("increase(farlog_writer_too_large_total" + ofStream + "[$__rate_interval])"),
						"too large {{stream}}",
					}),
				{
					Title: "Level and flush", Kind: kindTable, Width: 8, Unit: "short",
					Queries: []Query{{"max by (stream, level, flush, region) (farlog_writer_append_seconds_count" +
						ofStream + ")", ""}},
				},
				lines("s", "Error of the writer's clock",
					Query{once("farlog_writer_clock_error_seconds" + ofStream), "{{stream}}"}).marks(100e-6,
					1e-3).says("Nothing while it is not known."),
			}},
			{"Members", []Panel{
				lines("short", "State of each", Query{
					once("farlog_writer_member_state" + ofStream),
					"{{stream}} {{member}}",
				}).
					says("As the writer sees it: 1 up, 2 catching up, 3 lost, 4 late, 5 evicted until the next " +
						"opening. Only 1 counts. No data for a stream with one ring."),
				lines("bytes", "Bytes that each has not confirmed",
					Query{once("farlog_writer_member_lag_bytes" + ofStream), "{{stream}} {{member}}"}),
				lines("short", "Lost and back", Query{once("increase(farlog_writer_member_demotions_total" + ofStream +
					"[$__rate_interval])"), "late {{stream}} {{member}}"},
					Query{
						once("increase(farlog_writer_member_evictions_total" + ofStream + "[$__rate_interval])"),
						"evicted {{stream}} {{member}}",
					},
					Query{
						once("increase(farlog_writer_member_rejoins_total" + ofStream + "[$__rate_interval])"),
						"back {{stream}} {{member}}",
					}),
				lines("short", "Cursors of each", Query{
					once("farlog_writer_member_confirmed_lsn" + ofStream),
					"confirmed {{stream}} {{member}}",
				},
					Query{once("farlog_writer_member_head_lsn" + ofStream), "head {{stream}} {{member}}"}).wide(24),
			}},
			{"Writer and ring", []Panel{
				lines("short", "Epochs", Query{"farlog_ring_writer_epoch" + ofStream, "writer {{stream}}"},
					Query{"max by (stream) (farlog_stream_granted_epoch" + ofStream + ")", "granted {{stream}}"},
					Query{"farlog_ring_fence_epoch" + ofStream, "fence {{stream}}"}),
				lines("short", "Held", Query{"farlog_ring_writer_held" + ofStream, "writer {{stream}}"},
					Query{"farlog_ring_drain_held" + ofStream, "drain {{stream}}"},
					Query{"min by (stream) (farlog_stream_members_ready" + ofStream + ")", "rings {{stream}}"},
					Query{once("farlog_writer_clock_known" + ofStream), "clock known {{stream}}"}),
				lines("short", "Cursors", Query{"farlog_ring_appended_lsn" + ofStream, "appended {{stream}}"},
					Query{"farlog_ring_durable_lsn" + ofStream, "durable {{stream}}"},
					Query{"farlog_ring_credit_lsn" + ofStream, "credit {{stream}}"},
					Query{"farlog_ring_head_lsn" + ofStream, "head {{stream}}"}),
				lines("short", "Connections from other hosts",
					Query{"farlog_target_writers" + ofStream, "writers {{stream}} {{transport}}"},
					Query{"farlog_target_drains" + ofStream, "drains {{stream}} {{transport}}"}),
				lines("ops", "Listener", Query{"rate(farlog_target_admitted_total" + ofStream +
					"[$__rate_interval])", "admitted {{stream}}"},
					Query{"rate(farlog_target_refused_total" + ofStream + "[$__rate_interval])", "refused {{stream}}"},
					Query{"rate(farlog_target_lost_total" + ofStream + "[$__rate_interval])", "lost {{stream}}"},
					Query{"rate(farlog_target_fenced_total" + ofStream + "[$__rate_interval])", "fenced {{stream}}"}),
				lines("bytes", "Ring", Query{"farlog_ring_capacity_bytes" + ofStream, "{{stream}}"}),
			}},
		},
	}
}

func drain() Dashboard {
	return Dashboard{
		Name: "drain", Title: "farlog / drain",
		About:     "What drains move out of rings, and the stores that they write.",
		Variables: []Variable{{"instance", "farlog_store_free_bytes", "instance"}}, Rows: []Row{
			{"Log lag", []Panel{
				lines("s", "Age of the oldest record, as the drain sees it",
					Query{"topk(20, farlog_drain_lag_seconds" + ofInstance + ")", "{{stream}}"}).marks(5, 60).wide(12),
				lines("bytes", "Undrained bytes, as the drain sees it",
					Query{"topk(20, farlog_drain_lag_bytes" + ofInstance + ")", "{{stream}}"},
					Query{
						"topk(20, farlog_drain_unconfirmed_bytes" + ofInstance + ")",
						"unconfirmed {{stream}}",
					}).wide(12).
					says("Unconfirmed: fewer members have them than an acknowledgement needs. They are in flight, " +
						"or a writer that died left them and the next writer decides."),
			}},
			{"Draining", []Panel{
				lines("ops", "Records a second", Query{"sum by (stream) (rate(farlog_drain_records_total" + ofInstance +
					"[$__rate_interval]))", "{{stream}}"}),
				lines("binBps", "Bytes a second", Query{"sum by (stream) (rate(farlog_drain_stored_bytes_total" +
					ofInstance + "[$__rate_interval]))", "{{stream}}"}),
				lines("bytes", "Bytes a batch", Query{"sum by (stream) (rate(farlog_drain_stored_bytes_total" +
					ofInstance + "[$__rate_interval])) / sum by (stream) (rate(farlog_drain_batches_total" +
					ofInstance + "[$__rate_interval]) > 0)", "{{stream}}"}),
				{
					Title: "Sync of the store", Unit: "s", Kind: kindGraph,
					Queries: quantiles("rate(farlog_store_sync_seconds_bucket" + ofInstance + "[$__rate_interval])"),
				},
				lines("short", "Errors", Query{"farlog_drain_failing" + ofInstance, "failing {{stream}}"},
					Query{"farlog_drain_suspect" + ofInstance, "suspect {{stream}}"},
					Query{"farlog_drain_gap" + ofInstance, "gap {{stream}}"}).marks(1, 1),
				lines("short", "Restarts and duplicates",
					Query{
						"increase(farlog_drain_restarts_total" + ofInstance + "[$__rate_interval])",
						"restarts {{stream}}",
					},
					Query{
						"increase(farlog_drain_duplicates_total" + ofInstance + "[$__rate_interval])",
						"duplicates {{stream}}",
					}),
				lines("short", "Cursors", Query{"farlog_drain_stored_lsn" + ofInstance, "stored {{stream}}"},
					Query{"farlog_drain_head_lsn" + ofInstance, "head {{stream}}"}),
			}},
			{"Store", []Panel{
				lines("bytes", "Free space", Query{"farlog_store_free_bytes" + ofInstance, "{{instance}}"}),
				number("s", "Since the last verification",
					"time() - max(farlog_store_verify_timestamp_seconds"+ofInstance+")", 2*86400, 3*86400),
				number("s", "Verification took", "max(farlog_store_verify_seconds"+ofInstance+")", 0, 0),
				number("short", "Damaged streams", "sum(farlog_store_verify_failed"+ofInstance+")", 1, 1),
			}},
			{"Second site", []Panel{
				lines("s", "How long the second store has been behind",
					Query{"topk(20, farlog_replica_lag_seconds)", "{{stream}}"}).marks(5, 60),
				lines("bytes", "Bytes that only the first store has",
					Query{"topk(20, farlog_replica_lag_bytes)", "{{stream}}"}),
				lines("binBps", "Bytes copied a second",
					Query{"sum by (stream) (rate(farlog_replica_copied_bytes_total[$__rate_interval]))", "{{stream}}"}),
				lines("short", "Failing, and first store that does not answer",
					Query{"farlog_replica_failing", "failing {{stream}}"},
					Query{"1 - farlog_replica_source_up", "no answer to {{instance}}"}).marks(1, 1),
			}},
			{"Merged order", []Panel{
				lines("s", "Lag behind the clock",
					Query{"farlog_merge_lag_seconds" + ofInstance, "{{instance}}"}),
				lines("ops", "Records a second, and those that were late",
					Query{
						"rate(farlog_merge_records_total" + ofInstance + "[$__rate_interval])",
						"merged {{instance}}",
					},
					Query{"rate(farlog_merge_late_total" + ofInstance + "[$__rate_interval])", "late {{instance}}"},
					Query{
						"rate(farlog_merge_early_total" + ofInstance + "[$__rate_interval])",
						"early {{instance}}",
					}),
				lines("short", "Streams that are not waited for",
					Query{"farlog_merge_absent_streams" + ofInstance, "{{instance}}"}),
				lines("short", "Failing", Query{"farlog_merge_failing" + ofInstance, "{{instance}}"}).marks(1, 1),
			}},
		},
	}
}

func host() Dashboard {
	return Dashboard{
		Name: "host", Title: "farlog / host",
		About:     "The processes of farlog on a host, and the clients of its target.",
		Variables: []Variable{{"instance", "farlog_build_info", "instance"}}, Rows: []Row{
			{"Log lag", []Panel{
				lines("s", "Age of the oldest record of the rings here",
					Query{"topk(20, farlog_ring_lag_seconds" + ofInstance + ")", "{{stream}}"}).marks(5, 60).wide(12),
				lines("bytes", "Undrained bytes in the rings here",
					Query{"sum by (target) (farlog_ring_lag_bytes" + ofInstance + ")", "{{target}}"}).wide(12),
			}},
			{"Processes", []Panel{
				lines("short", "Up", Query{`up{job=~"farlog.*", instance=~"$instance"}`, "{{job}} {{instance}}"}),
				lines("short", "Connected to its control plane, or etcd",
					Query{"farlog_target_control_connected" + ofInstance, "target {{instance}}"},
					Query{"farlog_drain_control_connected" + ofInstance, "drain {{instance}}"},
					Query{"farlog_host_control_connected" + ofInstance, "host {{instance}}"},
					Query{"farlog_control_etcd_connected" + ofInstance, "control {{instance}}"}),
				lines(
					"s",
					"Certificates expire in",
					Query{
						`{__name__=~"farlog_(control|target|drain|host|replica)_certificate_expiry_timestamp_seconds", instance=~"$instance"} - time()`,
						"{{job}} {{instance}}",
					},
				).marks(14*86400, 2*86400),
				lines(
					"short",
					"An old list of revoked certificates is refused",
					Query{
						`{__name__=~"farlog_(control|target|drain|host|replica)_revocation_list_refused", instance=~"$instance"}`,
						"{{job}} {{instance}}",
					},
				).marks(1, 1),
				lines("short", "Processors",
					Query{
						`rate(process_cpu_seconds_total{job=~"farlog.*", instance=~"$instance"}[$__rate_interval])`,
						"{{job}} {{instance}}",
					}),
				lines("s", "Clock error",
					Query{"farlog_clock_error_seconds" + ofInstance, "at most {{instance}}"},
					Query{"farlog_clock_estimated_error_seconds" + ofInstance, "estimated {{instance}}"},
					Query{"abs(farlog_clock_offset_seconds" + ofInstance + ")", "being corrected {{instance}}"},
					Query{
						"farlog_clock_keeper_offset_seconds" + ofInstance,
						"off by {{keeper}} {{instance}}",
					}).marks(0.001, 0.1).says("No data while no time daemon runs."),
				lines("short", "Clock is synchronized", Query{
					"farlog_clock_synchronized" + ofInstance,
					"{{job}} {{instance}}",
				}),
				lines("bytes", "Memory", Query{
					`process_resident_memory_bytes{job=~"farlog.*", instance=~"$instance"}`,
					"{{job}} {{instance}}",
				}),
				lines("short", "Open files", Query{
					`process_open_fds{job=~"farlog.*", instance=~"$instance"}`,
					"{{job}} {{instance}}",
				}),
				{
					Title: "Versions", Kind: kindTable, Width: 8, Unit: "short",
					Queries: []Query{{"farlog_build_info" + ofInstance, ""}},
				},
			}},
			{"Host agent", []Panel{
				lines("ops", "Requests to the host agent",
					Query{"rate(farlog_host_grants_total" + ofInstance + "[$__rate_interval])", "granted {{instance}}"},
					Query{
						"rate(farlog_host_refused_total" + ofInstance + "[$__rate_interval])",
						"refused {{instance}}",
					},
					Query{"rate(farlog_host_failed_total" + ofInstance + "[$__rate_interval])", "failed {{instance}}"}),
				lines("s", "Round-trip time to targets on other hosts",
					Query{"farlog_host_rtt_min_seconds" + ofInstance, "min {{instance}} to {{target}} {{listener}}"},
					Query{
						"farlog_host_rtt_median_seconds" + ofInstance,
						"median {{instance}} to {{target}} {{listener}}",
					}).says("Of the last 32 TCP handshakes. Placement by writer_host uses the minimum."),
				lines("ops", "Handshakes with targets that failed",
					Query{
						"rate(farlog_host_rtt_failures_total" + ofInstance + "[$__rate_interval])",
						"{{instance}} to {{target}} {{listener}}",
					}),
			}},
			{"Target", []Panel{
				lines("short", "Connections", Query{
					"sum by (transport) (farlog_target_writers" + ofInstance + ")",
					"writers {{transport}}",
				}, Query{
					"sum by (transport) (farlog_target_drains" + ofInstance + ")",
					"drains {{transport}}",
				}),
				lines("ops", "Refused", Query{"sum by (transport) (rate(farlog_target_refused_total" + ofInstance +
					"[$__rate_interval]))", "refused {{transport}}"},
					Query{
						"sum by (transport) (rate(farlog_target_unauthenticated_total" + ofInstance +
							"[$__rate_interval]))",
						"unauthenticated {{transport}}",
					},
					Query{
						"sum by (transport) (rate(farlog_target_denied_total" + ofInstance + "[$__rate_interval]))",
						"denied {{transport}}",
					},
					Query{
						"sum by (transport) (rate(farlog_target_lost_total" + ofInstance + "[$__rate_interval]))",
						"lost {{transport}}",
					}),
				lines("ops", "Requests to the target's processor",
					Query{
						"sum by (transport) (rate(farlog_target_request_total" + ofInstance + "[$__rate_interval]))",
						"requests {{transport}}",
					},
					Query{
						"sum by (transport) (rate(farlog_target_flush_total" + ofInstance + "[$__rate_interval]))",
						"flushes {{transport}}",
					}),
				lines("percentunit", "Endurance used", Query{
					"farlog_target_wear_ratio" + ofInstance,
					"{{device}} {{target}}",
				},
					Query{
						"1 - farlog_target_spare_ratio" + ofInstance,
						"spare capacity used {{device}} {{target}}",
					}).marks(0.8,
					1).says("No data where no ring lies on an NVMe device that reports it."),
				lines("binBps", "Records written to regions",
					Query{
						"rate(farlog_target_region_written_bytes_total" + ofInstance + "[$__rate_interval])",
						"{{region}} {{target}}",
					}),
				lines("short", "Rings ready", Query{
					"sum by (target) (farlog_ring_ready" + ofInstance + ")",
					"{{target}}",
				}),
			}},
		},
	}
}

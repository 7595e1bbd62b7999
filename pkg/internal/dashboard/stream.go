package dashboard

func stream() Dashboard {
	return Dashboard{
		Name: "stream", Title: "farlog / stream",
		About:     "One stream: its lag, its ring, its appends, its writer.",
		Variables: []Variable{{"stream", "farlog_ring_lag_bytes", "stream"}}, Rows: []Row{
			streamLag(),
			streamAppends(),
			streamMembers(),
			streamRing(),
		},
	}
}

func streamLag() Row {
	return Row{"Log lag", []Panel{
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
	}}
}

func streamAppends() Row {
	return Row{"Appends", []Panel{
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
	}}
}

func streamMembers() Row {
	return Row{"Members", []Panel{
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
	}}
}

func streamRing() Row {
	return Row{"Writer and ring", []Panel{
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
	}}
}

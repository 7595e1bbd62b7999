package dashboard

// ofEach matches the beginning of a metric that every kind of daemon exports.
const ofEach = "farlog_(control|target|drain|host|replica)"

func host() Dashboard {
	return Dashboard{
		Name: "host", Title: "farlog / host",
		About:     "The processes of farlog on a host, and the clients of its target.",
		Variables: []Variable{{"instance", "farlog_build_info", "instance"}}, Rows: []Row{
			hostLag(),
			hostProcesses(),
			hostAgent(),
			hostTarget(),
		},
	}
}

func hostLag() Row {
	return Row{"Log lag", []Panel{
		lines("s", "Age of the oldest record of the rings here",
			Query{"topk(20, farlog_ring_lag_seconds" + ofInstance + ")", "{{stream}}"}).marks(5, 60).wide(12),
		lines("bytes", "Undrained bytes in the rings here",
			Query{"sum by (target) (farlog_ring_lag_bytes" + ofInstance + ")", "{{target}}"}).wide(12),
	}}
}

func hostProcesses() Row {
	return Row{"Processes", []Panel{
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
				`{__name__=~"` + ofEach + `_certificate_expiry_timestamp_seconds", instance=~"$instance"} - time()`,
				"{{job}} {{instance}}",
			},
		).marks(14*86400, 2*86400),
		lines(
			"short",
			"An old list of revoked certificates is refused",
			Query{
				`{__name__=~"` + ofEach + `_revocation_list_refused", instance=~"$instance"}`,
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
		lines("short", "Clock is synchronized, and was set", Query{
			"increase(farlog_clock_jumps_total" + ofInstance + "[$__rate_interval])", "set {{instance}}",
		}, Query{
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
	}}
}

func hostAgent() Row {
	return Row{"Host agent", []Panel{
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
	}}
}

func hostTarget() Row {
	return Row{"Target", []Panel{
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
				"sum by (transport) (rate(farlog_target_disconnected_total" + ofInstance + "[$__rate_interval]))",
				"disconnected {{transport}}",
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
		lines("short", "Namespaces exported and connected",
			Query{"farlog_target_namespace_up" + ofInstance, "{{namespace}} exported"},
			Query{"farlog_host_namespace_up" + ofInstance, "{{namespace}} of {{target_host}} connected"},
		).says("1 while it is; no data where the fabric declares none."),
		lines("binBps", "Records written to regions",
			Query{
				"rate(farlog_target_region_written_bytes_total" + ofInstance + "[$__rate_interval])",
				"{{region}} {{target}}",
			}),
		lines("short", "Rings ready", Query{
			"sum by (target) (farlog_ring_ready" + ofInstance + ")",
			"{{target}}",
		}),
	}}
}

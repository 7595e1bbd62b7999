package dashboard

func drain() Dashboard {
	return Dashboard{
		Name: "drain", Title: "farlog / drain",
		About:     "What drains move out of rings, and the stores that they write.",
		Variables: []Variable{{"instance", "farlog_store_free_bytes", "instance"}}, Rows: []Row{
			drainLag(),
			drainDraining(),
			drainStore(),
			drainReplica(),
			drainMerge(),
		},
	}
}

func drainLag() Row {
	return Row{"Log lag", []Panel{
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
	}}
}

func drainDraining() Row {
	return Row{"Draining", []Panel{
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
			Query{"farlog_drain_gap" + ofInstance, "gap {{stream}}"},
			Query{"increase(farlog_drain_forged_total" + ofInstance + "[$__rate_interval])", "forged {{stream}}"}).
			marks(1, 1),
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
	}}
}

func drainStore() Row {
	return Row{"Store", []Panel{
		lines("bytes", "Free space", Query{"farlog_store_free_bytes" + ofInstance, "{{instance}}"}),
		number("s", "Since the last verification",
			"time() - max(farlog_store_verify_timestamp_seconds"+ofInstance+")", 2*86400, 3*86400),
		number("s", "Verification took", "max(farlog_store_verify_seconds"+ofInstance+")", 0, 0),
		number("short", "Damaged streams", "sum(farlog_store_verify_failed"+ofInstance+")", 1, 1),
	}}
}

func drainReplica() Row {
	return Row{"Second site", []Panel{
		lines("s", "How long the second store has been behind",
			Query{"topk(20, farlog_replica_lag_seconds)", "{{stream}}"}).marks(5, 60),
		lines("bytes", "Bytes that only the first store has",
			Query{"topk(20, farlog_replica_lag_bytes)", "{{stream}}"}),
		lines("binBps", "Bytes copied a second",
			Query{"sum by (stream) (rate(farlog_replica_copied_bytes_total[$__rate_interval]))", "{{stream}}"}),
		lines("short", "Failing, and first store that does not answer",
			Query{"farlog_replica_failing", "failing {{stream}}"},
			Query{"1 - farlog_replica_source_up", "no answer to {{instance}}"}).marks(1, 1),
	}}
}

func drainMerge() Row {
	return Row{"Merged order", []Panel{
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
	}}
}

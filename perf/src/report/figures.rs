//! Which figures of a case are shown, and what they are called.

use crate::scenario::Work;

/// Figure names and labels, in the order of a table's rows.
pub(super) fn shown(work: &Work) -> &'static [(&'static str, &'static str)] {
    match work {
        Work::Fanout(_) => FANOUT,
        Work::Ladder(_) => LADDER,
        Work::Publish(_) => PUBLISH,
        Work::Replay(_) => REPLAY,
        Work::Idle(_) => IDLE,
        Work::Disturb(_) => DISTURB,
        Work::Floor(_) => FLOOR,
        Work::Fsync(_) => FSYNC,
        Work::Ingest(_) => INGEST,
        Work::Steady(_) => STEADY,
        Work::Moving(_) => MOVING,
        Work::Open(_) => OPEN,
    }
}

/// The label of a figure, or its name.
pub(super) fn label<'n>(work: &Work, figure: &'n str) -> &'n str {
    shown(work).iter().find(|(name, _)| *name == figure).map_or(figure, |(_, label)| label)
}

type Figures = &'static [(&'static str, &'static str)];

const FANOUT: Figures = &[
    ("p50_ms", "latency p50, ms"),
    ("p99_ms", "latency p99, ms"),
    ("p999_ms", "latency p99.9, ms"),
    ("max_ms", "latency max, ms"),
    ("ack_p50_ms", "acknowledged p50, ms"),
    ("ack_p99_ms", "acknowledged p99, ms"),
    ("deliveries_per_s", "deliveries/s"),
    ("cpu_us_per_frame", "server CPU per delivery, µs"),
    ("cores_us_per_frame", "server core busy per delivery, µs"),
    ("cpu_us_per_row", "server CPU per row, µs"),
    ("bytes_per_frame", "bytes a delivery"),
    ("server_busy_pct", "server CPU, %"),
    ("missing_frames", "missing"),
    ("peak_mib", "most resident, MiB"),
];

const LADDER: Figures = &[
    ("deliveries_per_s", "most deliveries/s"),
    ("cpu_ns_per_frame", "server CPU per delivery there, ns"),
    ("p50_ms", "latency p50 there, ms"),
    ("p99_ms", "latency p99 there, ms"),
    ("server_busy_pct", "server CPU there, %"),
    ("generator_busy_pct", "generator busy there, %"),
];

const PUBLISH: Figures = &[
    ("rows_per_s", "rows/s"),
    ("ack_p50_ms", "acknowledged p50, ms"),
    ("ack_p99_ms", "acknowledged p99, ms"),
    ("ack_p999_ms", "acknowledged p99.9, ms"),
    ("ack_max_ms", "acknowledged max, ms"),
    ("cpu_us_per_row", "server CPU per row, µs"),
    ("server_busy_pct", "server CPU, %"),
];

const REPLAY: Figures = &[
    ("rows_per_s", "rows/s in all"),
    ("cpu_ns_per_row", "server CPU per row, ns"),
    ("greeting_ms", "all connections greeted after, ms"),
    ("peak_mib", "most resident, MiB"),
];

const IDLE: Figures = &[
    ("greeting_ms", "from exec to first greeting, ms"),
    ("memory_mib", "resident after start, MiB"),
    ("memory_idle_mib", "resident with idle subscribers, MiB"),
    ("idle_subscriber_kib", "resident per idle subscriber, KiB"),
    ("memory_active_mib", "resident with active ones too, MiB"),
    ("p50_ms", "latency of active ones p50, ms"),
    ("p99_ms", "latency of active ones p99, ms"),
    ("connects_per_s", "connects/s"),
    ("cpu_us_per_connect", "server CPU per connect, µs"),
    ("memory_after_connects_mib", "resident after connects, MiB"),
];

const DISTURB: Figures = &[
    ("quiet_p50_ms", "quiet p50, ms"),
    ("disturbed_p50_ms", "disturbed p50, ms"),
    ("quiet_p99_ms", "quiet p99, ms"),
    ("disturbed_p99_ms", "disturbed p99, ms"),
    ("all_p99_ratio", "p99 disturbed / quiet, of all windows"),
    ("all_p99_ratio_low", "p99 disturbed / quiet, of all windows: at least"),
    ("all_p99_ratio_high", "p99 disturbed / quiet, of all windows: at most"),
    ("later_than_p99_pct", "disturbed messages later than the quiet p99, %"),
    ("p99_ratio", "p99 disturbed / quiet, median of the pairs"),
    ("p99_ratio_low", "… in the middle half of the pairs, from"),
    ("p99_ratio_high", "… to"),
    ("quiet_clear_pct", "quiet messages without strangers, %"),
    ("disturbed_clear_pct", "disturbed messages without strangers, %"),
    ("quiet_clear_p50_ms", "quiet p50 without strangers, ms"),
    ("disturbed_clear_p50_ms", "disturbed p50 without strangers, ms"),
    ("quiet_clear_p99_ms", "quiet p99 without strangers, ms"),
    ("disturbed_clear_p99_ms", "disturbed p99 without strangers, ms"),
    ("clear_p99_ratio", "p99 disturbed / quiet without strangers, median of the pairs"),
    ("clear_p99_ratio_low", "p99 disturbed / quiet without strangers, median of the pairs: at least"),
    ("clear_p99_ratio_high", "p99 disturbed / quiet without strangers, median of the pairs: at most"),
    ("clear_all_p99_ratio", "p99 disturbed / quiet without strangers, of all windows"),
    ("clear_all_p99_ratio_low", "p99 disturbed / quiet without strangers, of all windows: at least"),
    ("clear_all_p99_ratio_high", "p99 disturbed / quiet without strangers, of all windows: at most"),
    ("quiet_p999_ms", "quiet p99.9, ms"),
    ("disturbed_p999_ms", "disturbed p99.9, ms"),
    ("quiet_max_ms", "quiet max, ms"),
    ("disturbed_max_ms", "disturbed max, ms"),
    ("replay_s", "replay took, s"),
    ("http_pages_per_s", "pages/s over HTTP beside it"),
    ("http_events_per_s", "server-sent events/s beside it"),
    ("http_changes_per_s", "changes of streams/s beside it"),
    ("http_rounds_per_s", "streams declared, served, stopped and deleted a second"),
    ("http_mb_per_s", "MB/s over HTTP beside it"),
    ("memory_mib", "resident at the end, MiB"),
];

const FLOOR: Figures = &[
    ("cpu_us_per_send", "CPU per send, µs"),
    ("cpu_ns_per_frame", "CPU per frame, ns"),
    ("deliveries_per_s", "frames/s"),
    ("p50_ms", "latency p50, ms"),
    ("p99_ms", "latency p99, ms"),
    ("max_ms", "latency max, ms"),
    ("server_busy_pct", "sender CPU, %"),
    ("generator_busy_pct", "generator busy, %"),
];

const FSYNC: Figures = &[
    ("p50_ms", "p50, ms"),
    ("p99_ms", "p99, ms"),
    ("p999_ms", "p99.9, ms"),
    ("max_ms", "max, ms"),
    ("syncs_per_s", "syncs/s"),
];

const INGEST: Figures = &[
    ("rows_per_s", "rows/s"),
    ("seconds", "seconds"),
    ("cpu_ns_per_row", "CPU per row, ns"),
    ("peak_mib", "most resident, MiB"),
];

const STEADY: Figures = &[
    ("rows_per_s", "rows/s"),
    ("seconds", "seconds"),
    ("ack_p50_ms", "acknowledged p50, ms"),
    ("ack_p99_ms", "acknowledged p99, ms"),
    ("trail_max_s", "table trails by at most, s"),
    ("trail_p50_s", "table trails by, median, s"),
    ("journal_max_mib", "journal and catalog at most, MiB"),
    ("live_files_max", "data files of the table at most"),
    ("waiting_files_max", "data files that wait, to be published or to be deleted, at most"),
    ("data_files_max", "data files at most"),
    ("data_mib", "data at the end, MiB"),
    ("metadata_files_max", "metadata files at most"),
    ("metadata_max_mib", "metadata at most, MiB"),
    ("late_growth", "second half / first half, worst of journal and resident"),
    ("server_busy_pct", "server CPU, %"),
    ("peak_mib", "most resident, MiB"),
];

const MOVING: Figures = &[
    ("still_p50_ms", "p50 while rows stay, ms"),
    ("moved_p50_ms", "p50 while rows move, ms"),
    ("p50_ratio", "p50 moving / staying"),
    ("p50_ratio_low", "… in the middle half of the pairs, from"),
    ("p50_ratio_high", "… to"),
    ("still_p99_ms", "p99 while rows stay, ms"),
    ("moved_p99_ms", "p99 while rows move, ms"),
    ("p99_ratio", "p99 moving / staying"),
    ("p99_ratio_low", "… in the middle half of the pairs, from"),
    ("p99_ratio_high", "… to"),
    ("still_p999_ms", "p99.9 while rows stay, ms"),
    ("moved_p999_ms", "p99.9 while rows move, ms"),
    ("still_cpu_us_per_row", "server CPU per row that stays, µs"),
    ("moved_cpu_us_per_row", "server CPU per row that moves, µs"),
    ("sealed_pct", "rows sealed in the windows in which rows move, % of those taken"),
    ("published_snapshots", "snapshots with new rows in these windows"),
    ("merge_snapshots", "snapshots with a merged file in these windows"),
    ("merged_files", "files merged in these windows"),
    ("rest_s", "at rest after, median, s"),
    ("journal_mib", "journal and catalog at the end, MiB"),
    ("peak_mib", "most resident, MiB"),
];

const OPEN: Figures = &[
    ("files", "files"),
    ("greeting_ms", "from exec to first greeting, ms"),
    ("first_row_ms", "from connecting to the first row, ms"),
    ("rows_per_s", "rows/s of a whole replay"),
    ("memory_mib", "resident after start, MiB"),
    ("memory_grown_mib", "grown over the replays after the first, MiB"),
    ("restore_ms", "restore on an empty root, ms"),
    ("restore_peak_mib", "most resident of the restore, MiB"),
];

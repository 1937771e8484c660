//! `/metrics`: everything in the telemetry, and the process itself, in the Prometheus text format.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

use prometheus::TextEncoder;
use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};

use super::process;
use crate::telemetry::{self, CloseCause, ShardCounters, StreamCounters, Telemetry};

/// The media type of the answer.
pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All families as text, with `own` (those of the HTTP side itself) at the end.
///
/// # Errors
/// If a family is malformed, which is a mistake of ours.
pub fn render(telemetry: &Telemetry, ready: bool, own: Vec<MetricFamily>) -> prometheus::Result<String> {
    let mut families = Families::default();
    families.broker(ready);
    families.shards(telemetry);
    families.writer(&telemetry.writer);
    families.streams(telemetry);
    families.process();
    families.0.extend(own);
    families.0.retain(|family| !family.get_metric().is_empty());
    TextEncoder::new().encode_to_string(&families.0)
}

#[derive(Default)]
struct Families(Vec<MetricFamily>);

type Labels<'a> = &'a [(&'a str, &'a str)];

impl Families {
    fn add(&mut self, kind: MetricType, name: &str, help: &str, metrics: Vec<Metric>) {
        let mut family = MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        family.set_metric(metrics);
        self.0.push(family);
    }

    fn counter(&mut self, name: &str, help: &str, value: f64) {
        self.add(MetricType::COUNTER, name, help, vec![counter(&[], value)]);
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.add(MetricType::GAUGE, name, help, vec![gauge(&[], value)]);
    }

    fn broker(&mut self, ready: bool) {
        let labels = [("version", env!("CARGO_PKG_VERSION"))];
        let help = "Always 1; the labels tell what was built.";
        self.add(MetricType::GAUGE, "streamcast_build_info", help, vec![gauge(&labels, 1.0)]);
        self.gauge("streamcast_ready", "1 while connections are served, else 0.", f64::from(u8::from(ready)));
    }

    fn shards(&mut self, telemetry: &Telemetry) {
        for (name, help, read) in SHARD_COUNTERS {
            let metrics = each_shard(telemetry, |labels, shard| counter(labels, total(read(shard))));
            self.add(MetricType::COUNTER, name, help, metrics);
        }
        for (name, help, read) in SHARD_GAUGES {
            let metrics = each_shard(telemetry, |labels, shard| gauge(labels, level(read(shard))));
            self.add(MetricType::GAUGE, name, help, metrics);
        }
        let cores = each_shard(telemetry, |labels, shard| gauge(labels, total(&shard.core_plus_one) - 1.0));
        self.add(MetricType::GAUGE, "streamcast_shard_core", "Processor a shard is pinned to; -1 before.", cores);
        let longest = each_shard(telemetry, |labels, shard| gauge(labels, total(&shard.longest_turn_us) / 1e6));
        self.add(MetricType::GAUGE, "streamcast_longest_turn_seconds", "Longest turn of a shard's loop.", longest);
        let mut closed = Vec::new();
        for (index, shard) in telemetry.shards.iter().enumerate() {
            for (cause, label) in CloseCause::ALL {
                let labels = [("shard", &*index.to_string()), ("cause", label)];
                closed.push(counter(&labels, total(&shard.closed_total[cause as usize])));
            }
        }
        let help = "Connections ended, by cause; too_slow counts dropped subscribers.";
        self.add(MetricType::COUNTER, "streamcast_connections_closed_total", help, closed);
    }

    fn writer(&mut self, writer: &telemetry::WriterCounters) {
        for (name, help, value) in [
            ("streamcast_commits_total", "Transactions committed and synced.", &writer.commits_total),
            ("streamcast_failed_commits_total", "Transactions that failed.", &writer.failed_commits_total),
            ("streamcast_committed_rows_total", "Rows committed.", &writer.rows_total),
            ("streamcast_committed_frames_total", "Publish frames committed.", &writer.frames_total),
            ("streamcast_checkpoints_total", "Checkpoints of the write-ahead log.", &writer.checkpoints_total),
            ("streamcast_evicted_batches_total", "Batches deleted after sealing.", &writer.evicted_batches_total),
            ("streamcast_evicted_bytes_total", "Bytes of rows in them.", &writer.evicted_bytes_total),
            ("streamcast_replay_pages_total", "Pages read for replays.", &writer.replay_pages_total),
            ("streamcast_replay_rows_total", "Rows read for replays.", &writer.replay_rows_total),
        ] {
            self.counter(name, help, total(value));
        }
        self.gauge("streamcast_journal_bytes", "Size of the journal's file.", total(&writer.journal_bytes));
        self.gauge("streamcast_wal_bytes", "Size of the write-ahead log.", total(&writer.wal_bytes));
        self.gauge("streamcast_queued_bytes", "Bytes of rows waiting to be committed.", level(&writer.queued_bytes));
        let help = "Time of a transaction, from its begin to the end of its sync.";
        let commit = histogram(&writer.commit_us, |bits| (1u64 << bits) as f64 / 1e6, 1e6);
        self.add(MetricType::HISTOGRAM, "streamcast_commit_seconds", help, vec![commit]);
        let group = histogram(&writer.group_rows, |bits| ((1u64 << bits) - 1) as f64, 1.0);
        self.add(MetricType::HISTOGRAM, "streamcast_group_rows", "Rows in a transaction.", vec![group]);
    }

    fn streams(&mut self, telemetry: &Telemetry) {
        let mut streams = telemetry.streams();
        // A stream that came into service twice is told once, with the counters of its present life.
        streams.reverse();
        let mut seen = std::collections::HashSet::new();
        streams.retain(|stream| seen.insert(stream.name.clone()));
        streams.reverse();
        let each = |make: &dyn Fn(Labels, &StreamCounters) -> Option<Metric>| -> Vec<Metric> {
            streams.iter().filter_map(|stream| make(&[("stream", &stream.name)], stream)).collect()
        };
        for (name, help, read) in STREAM_COUNTERS {
            let metrics = each(&|labels, stream| Some(counter(labels, total(read(stream)))));
            self.add(MetricType::COUNTER, name, help, metrics);
        }
        for (name, help, read) in STREAM_GAUGES {
            let metrics = each(&|labels, stream| Some(gauge(labels, level(read(stream)))));
            self.add(MetricType::GAUGE, name, help, metrics);
        }
        let ends = each(&|labels, stream| stream.durable.then(|| gauge(labels, level(&stream.end_offset))));
        self.add(MetricType::GAUGE, "streamcast_stream_end_offset", "Offset the next row of a stream gets.", ends);
        self.tables(&each);
        let sent = each(&|labels, stream| {
            let last = level(&stream.last_send_us);
            (last > 0.0).then(|| gauge(labels, last / 1e6))
        });
        let help = "When a stream was last published to, in seconds since 1970.";
        self.add(MetricType::GAUGE, "streamcast_stream_last_send_timestamp_seconds", help, sent);
    }

    /// What is known of the files and tables behind the streams that have any.
    fn tables(&mut self, each: &EachStream<'_>) {
        let now = SystemTime::now();
        for (name, help, read) in STREAM_TABLES {
            let metrics = each(&|labels, stream| read(stream, now).map(|value| gauge(labels, value)));
            self.add(MetricType::GAUGE, name, help, metrics);
        }
    }

    fn process(&mut self) {
        let reading = process::read();
        if let Some(cpu_s) = reading.cpu_s {
            self.counter("process_cpu_seconds_total", "User and system time of the process.", cpu_s);
        }
        let as_f64 = |value: Option<u64>| value.map(|value| value as f64);
        for (name, help, value) in [
            ("process_resident_memory_bytes", "Resident memory.", as_f64(reading.resident_bytes)),
            ("process_virtual_memory_bytes", "Address space.", as_f64(reading.virtual_bytes)),
            ("process_threads", "Threads.", as_f64(reading.threads)),
            ("process_open_fds", "Open descriptors.", as_f64(reading.open_fds)),
            ("process_max_fds", "Soft limit on open descriptors.", as_f64(reading.max_fds)),
            ("process_start_time_seconds", "Start of the process, in seconds since 1970.", reading.started_s),
        ] {
            if let Some(value) = value {
                self.gauge(name, help, value);
            }
        }
    }
}

type ReadTable = fn(&StreamCounters, SystemTime) -> Option<f64>;

const STREAM_TABLES: [(&str, &str, ReadTable); 8] = [
    ("streamcast_stream_sealed_end_offset", "Everything before it is in files.", |stream, _| {
        stream.lake.sealed_end().map(|end| end as f64)
    }),
    ("streamcast_stream_published_end_offset", "Everything before it is in the table.", |stream, _| {
        stream.lake.published_end().map(|end| end as f64)
    }),
    ("streamcast_stream_evicted_end_offset", "Everything before it has left the journal.", |stream, _| {
        stream.lake.evicted_end().map(|end| end as f64)
    }),
    ("streamcast_stream_unpublished_rows", "Offsets that are not in the table yet.", |stream, _| {
        stream.lake.published_end().map(|end| (stream.end_offset.load(Relaxed) - end).max(0) as f64)
    }),
    ("streamcast_stream_unpublished_seconds", "Age of the first row that is not in the table.", |stream, now| {
        stream.lake.published_end().map(|_| stream.lake.lag_s(now))
    }),
    ("streamcast_stream_sealed_files", "Files of the current log.", |stream, _| {
        stream.lake.sealed_end().map(|_| total(&stream.lake.files))
    }),
    ("streamcast_stream_sealed_bytes", "Bytes of these files.", |stream, _| {
        stream.lake.sealed_end().map(|_| total(&stream.lake.file_bytes))
    }),
    ("streamcast_stream_table_failing", "1 while moving rows fails; the log says why.", |stream, _| {
        stream.lake.sealed_end().map(|_| f64::from(u8::from(stream.lake.last_error().is_some())))
    }),
];

/// Makes a metric for each stream that has one.
type EachStream<'a> = dyn Fn(&dyn Fn(Labels, &StreamCounters) -> Option<Metric>) -> Vec<Metric> + 'a;

type Read<T, C> = (&'static str, &'static str, fn(&T) -> &C);

const SHARD_COUNTERS: [Read<ShardCounters, AtomicU64>; 9] = [
    ("streamcast_connections_accepted_total", "Connections accepted.", |shard| &shard.accepted_total),
    ("streamcast_accept_errors_total", "Accepts that failed.", |shard| &shard.accept_errors_total),
    ("streamcast_delivered_frames_total", "Row frames handed to sockets.", |shard| &shard.delivered_frames_total),
    ("streamcast_sent_bytes_total", "Bytes handed to sockets.", |shard| &shard.sent_bytes_total),
    ("streamcast_sends_total", "Send operations.", |shard| &shard.sends_total),
    ("streamcast_received_bytes_total", "Bytes read from sockets.", |shard| &shard.received_bytes_total),
    ("streamcast_turns_total", "Turns of a shard's loop.", |shard| &shard.turns_total),
    ("streamcast_stalls_total", "Turns that took longer than 10 ms.", |shard| &shard.stalls_total),
    ("streamcast_demoted_subscribers_total", "Subscribers sent back to the log.", |shard| &shard.demoted_total),
];

const SHARD_GAUGES: [Read<ShardCounters, AtomicI64>; 6] = [
    ("streamcast_connections", "Connections open.", |shard| &shard.connections),
    ("streamcast_tls_shard_connections", "Connections whose TLS the shard does.", |shard| &shard.tls_shard_connections),
    ("streamcast_tls_kernel_connections", "Connections whose TLS the kernel does.", |shard| {
        &shard.tls_kernel_connections
    }),
    ("streamcast_feeds", "Feeds that exist.", |shard| &shard.feeds),
    ("streamcast_feed_bytes", "Bytes held for subscribers that have not taken them.", |shard| &shard.feed_bytes),
    ("streamcast_feed_max_lag_frames", "Frames the slowest subscriber is behind.", |shard| &shard.max_lag_frames),
];

const STREAM_COUNTERS: [Read<StreamCounters, AtomicU64>; 6] = [
    ("streamcast_stream_rows_total", "Rows a stream took.", |stream| &stream.rows_total),
    ("streamcast_stream_frame_bytes_total", "Bytes of row frames built.", |stream| &stream.frame_bytes_total),
    ("streamcast_stream_refused_frames_total", "Publish frames refused.", |stream| &stream.refused_frames_total),
    ("streamcast_stream_sealed_rows_total", "Rows sealed.", |stream| &stream.lake.sealed_rows_total),
    ("streamcast_stream_merged_files_total", "Files merged.", |stream| &stream.lake.merged_files_total),
    ("streamcast_stream_table_errors_total", "Passes that failed.", |stream| &stream.lake.errors_total),
];

const STREAM_GAUGES: [Read<StreamCounters, AtomicI64>; 3] = [
    ("streamcast_stream_subscribers", "Subscribers attached.", |stream| &stream.subscribers),
    ("streamcast_stream_publishers", "Publisher connections.", |stream| &stream.publishers),
    ("streamcast_stream_queued_rows", "Rows waiting to be committed.", |stream| &stream.queued_rows),
];

fn each_shard(telemetry: &Telemetry, make: impl Fn(Labels, &ShardCounters) -> Metric) -> Vec<Metric> {
    let with_index = |(index, shard): (usize, &ShardCounters)| make(&[("shard", &index.to_string())], shard);
    telemetry.shards.iter().enumerate().map(with_index).collect()
}

fn total(value: &AtomicU64) -> f64 {
    value.load(Relaxed) as f64
}

fn level(value: &AtomicI64) -> f64 {
    value.load(Relaxed) as f64
}

fn metric(labels: Labels) -> Metric {
    let pair = |&(name, value): &(&str, &str)| {
        let mut pair = LabelPair::default();
        pair.set_name(name.to_owned());
        // The text format escapes `\`, `"` and line feeds; the lone carriage return would still end a line.
        pair.set_value(value.replace('\r', "\u{fffd}"));
        pair
    };
    let mut metric = Metric::default();
    metric.set_label(labels.iter().map(pair).collect());
    metric
}

fn counter(labels: Labels, value: f64) -> Metric {
    let mut inner = Counter::default();
    inner.set_value(value);
    let mut metric = metric(labels);
    metric.set_counter(inner);
    metric
}

fn gauge(labels: Labels, value: f64) -> Metric {
    let mut inner = Gauge::default();
    inner.set_value(value);
    let mut metric = metric(labels);
    metric.set_gauge(inner);
    metric
}

/// `bound` gives the upper bound of the values with that many bits; sums are divided by `unit`.
fn histogram(counts: &telemetry::Histogram, bound: impl Fn(usize) -> f64, unit: f64) -> Metric {
    let mut below = 0;
    let mut buckets = Vec::with_capacity(counts.buckets.len());
    let last = counts.buckets.len() - 1;
    for (bits, count) in counts.buckets.iter().enumerate() {
        below += count.load(Relaxed);
        if bits < last {
            let mut bucket = Bucket::default();
            bucket.set_cumulative_count(below);
            bucket.set_upper_bound(bound(bits));
            buckets.push(bucket);
        }
    }
    let mut inner = Histogram::default();
    inner.set_bucket(buckets);
    inner.set_sample_count(below);
    inner.set_sample_sum(counts.sum.load(Relaxed) as f64 / unit);
    let mut metric = metric(&[]);
    metric.set_histogram(inner);
    metric
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn rendered(telemetry: &Telemetry) -> String {
        render(telemetry, true, Vec::new()).expect("text")
    }

    #[test]
    fn counters_carry_shard_and_cause() {
        let telemetry = Telemetry::new(2);
        telemetry.shards[1].connections.store(7, Relaxed);
        telemetry.shards[1].closed_total[CloseCause::TooSlow as usize].store(3, Relaxed);
        telemetry.shards[0].core_plus_one.store(5, Relaxed);
        let text = rendered(&telemetry);
        for line in [
            r#"streamcast_connections{shard="1"} 7"#,
            r#"streamcast_connections_closed_total{shard="1",cause="too_slow"} 3"#,
            r#"streamcast_connections_closed_total{shard="0",cause="peer"} 0"#,
            r#"streamcast_shard_core{shard="0"} 4"#,
            r#"streamcast_shard_core{shard="1"} -1"#,
            "streamcast_ready 1",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in {text}");
        }
        assert!(text.contains("# TYPE streamcast_connections_closed_total counter"));
    }

    #[test]
    fn histograms_are_cumulative_and_in_seconds() {
        let telemetry = Telemetry::new(1);
        for commit_us in [0, 300, 500, 3_000, u64::MAX >> 1] {
            telemetry.writer.commit_us.record(commit_us);
        }
        telemetry.writer.group_rows.record(1);
        telemetry.writer.group_rows.record(100);
        let text = rendered(&telemetry);
        for line in [
            r#"streamcast_commit_seconds_bucket{le="0.000256"} 1"#,
            r#"streamcast_commit_seconds_bucket{le="0.000512"} 3"#,
            r#"streamcast_commit_seconds_bucket{le="0.004096"} 4"#,
            r#"streamcast_commit_seconds_bucket{le="1073.741824"} 4"#,
            r#"streamcast_commit_seconds_bucket{le="+Inf"} 5"#,
            "streamcast_commit_seconds_count 5",
            r#"streamcast_group_rows_bucket{le="0"} 0"#,
            r#"streamcast_group_rows_bucket{le="1"} 1"#,
            r#"streamcast_group_rows_bucket{le="127"} 2"#,
            "streamcast_group_rows_sum 101",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in {text}");
        }
    }

    #[test]
    fn unusual_stream_names_stay_one_well_formed_line_each() {
        let telemetry = Telemetry::new(1);
        for name in ["", "a b/c", "quote\"s", "back\\slash", "two\nlines", "cr\rlf", "é😀", "twice", "twice"] {
            let stream = StreamCounters::new(name, false, None);
            stream.rows_total.store(1, Relaxed);
            telemetry.add_stream(Arc::new(stream));
        }
        let text = rendered(&telemetry);
        let mut rows: Vec<&str> =
            text.lines().filter(|line| line.starts_with("streamcast_stream_rows_total{")).collect();
        rows.sort_unstable();
        let expected = [
            r#"streamcast_stream_rows_total{stream=""} 1"#,
            r#"streamcast_stream_rows_total{stream="a b/c"} 1"#,
            r#"streamcast_stream_rows_total{stream="back\\slash"} 1"#,
            "streamcast_stream_rows_total{stream=\"cr\u{fffd}lf\"} 1",
            r#"streamcast_stream_rows_total{stream="quote\"s"} 1"#,
            r#"streamcast_stream_rows_total{stream="twice"} 1"#,
            r#"streamcast_stream_rows_total{stream="two\nlines"} 1"#,
            r#"streamcast_stream_rows_total{stream="é😀"} 1"#,
        ];
        assert_eq!(rows, expected);
        assert!(!text.contains("streamcast_stream_end_offset{"), "a stream without a log has no end");
        assert!(text.ends_with('\n') && text.lines().all(|line| !line.is_empty()));
    }
}

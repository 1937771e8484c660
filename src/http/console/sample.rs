//! One sample: levels as they are, totals as rates since the sample before.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Instant, SystemTime};

use serde_json::{Map, Value, json};

use super::is_internal;
use super::percentile::{Counts, between, counts, percentile};
use crate::http::process::{self, ProcessReading};
use crate::http::stats::unix_s;
use crate::telemetry::{CloseCause, ShardCounters, StreamCounters, Telemetry, WriterCounters};

/// Streams described in one sample; the busiest if there are more.
pub const MAX_LISTED_STREAMS: usize = 256;

/// The totals of the sample before.
#[derive(Default)]
pub struct PrevSample {
    at: Option<Instant>,
    streams: HashMap<String, [u64; 2]>,
    shards: Vec<[u64; 3]>,
    writer: [u64; 3],
    commit_us: Counts,
    cpu_s: Option<f64>,
}

/// A sample of everything, now. Rates are 0 in the first.
///
/// An object of `at` (seconds since 1970), `elapsed_s`, `streams`, `stream_count`, `shards`, `writer`, `closed` (totals by
/// cause) and `process`. Rates end in `_per_s`; what is not known is null.
pub fn sample(telemetry: &Telemetry, previous: &mut PrevSample) -> Value {
    sample_at(telemetry, previous, SystemTime::now(), Instant::now(), process::read())
}

fn sample_at(
    telemetry: &Telemetry,
    previous: &mut PrevSample,
    wall: SystemTime,
    now: Instant,
    own: ProcessReading,
) -> Value {
    let elapsed_s = previous.at.map(|before| now.saturating_duration_since(before).as_secs_f64());
    let clock = Clock { now, elapsed_s: elapsed_s.filter(|&elapsed_s| elapsed_s > 0.0) };
    let (listed, stream_count) = streams(telemetry, &mut previous.streams, clock);
    previous.shards.resize(telemetry.shards.len(), [0; 3]);
    let shards: Vec<Value> = telemetry
        .shards
        .iter()
        .zip(&mut previous.shards)
        .map(|(shard, before)| describe_shard(shard, before, clock))
        .collect();
    let writer = describe_writer(&telemetry.writer, &mut previous.writer, &mut previous.commit_us, clock);
    let cpu_cores = previous.at.and_then(|before| process::cpu_cores((before, previous.cpu_s), (now, own.cpu_s)));
    previous.at = Some(now);
    previous.cpu_s = own.cpu_s;
    json!({
        "at": unix_s(wall),
        "elapsed_s": clock.elapsed_s,
        "streams": listed,
        "stream_count": stream_count,
        "shards": shards,
        "writer": writer,
        "closed": closed(telemetry),
        "process": {
            "resident_bytes": own.resident_bytes,
            "cpu_cores": cpu_cores,
            "open_fds": own.open_fds,
            "max_fds": own.max_fds,
            "started": own.started_s,
        },
    })
}

#[derive(Clone, Copy)]
struct Clock {
    now: Instant,
    elapsed_s: Option<f64>,
}

impl Clock {
    /// The rate of a total since `before`, which becomes the total.
    fn rate(self, before: &mut u64, total: u64) -> f64 {
        let grown = total.saturating_sub(std::mem::replace(before, total));
        self.elapsed_s.map_or(0.0, |elapsed_s| (grown as f64 / elapsed_s * 10.0).round() / 10.0)
    }
}

fn streams(telemetry: &Telemetry, previous: &mut HashMap<String, [u64; 2]>, clock: Clock) -> (Vec<Value>, usize) {
    let mut present = telemetry.streams();
    present.retain(|stream| !is_internal(&stream.name));
    let mut before = std::mem::take(previous);
    let mut described: Vec<(f64, Value)> = Vec::with_capacity(present.len());
    for stream in &present {
        let totals = [stream.rows_total.load(Relaxed), stream.frame_bytes_total.load(Relaxed)];
        // A stream that was not there has no rate yet; one of a former life with larger totals has none either.
        let mut then = before.remove(&stream.name).unwrap_or(totals);
        let rates = [0, 1].map(|index| clock.rate(&mut then[index], totals[index]));
        previous.insert(stream.name.clone(), totals);
        described.push((rates[0], describe_stream(stream, totals[0], rates, clock.now)));
    }
    let stream_count = described.len();
    if stream_count > MAX_LISTED_STREAMS {
        described.sort_by(|one, other| other.0.total_cmp(&one.0));
        described.truncate(MAX_LISTED_STREAMS);
    }
    (described.into_iter().map(|(_, value)| value).collect(), stream_count)
}

fn describe_stream(stream: &StreamCounters, rows: u64, rates: [f64; 2], now: Instant) -> Value {
    let since_start_s = now.saturating_duration_since(stream.started.1).as_secs_f64();
    let sent = stream.last_send_us.load(Relaxed) > 0;
    let age_s = (since_start_s - stream.last_send_after_us.load(Relaxed) as f64 / 1e6).max(0.0);
    json!({
        "name": stream.name,
        "durable": stream.durable,
        "end_offset": stream.durable.then(|| stream.end_offset.load(Relaxed)),
        "rows": rows,
        "rows_per_s": rates[0],
        "bytes_per_s": rates[1],
        "subscribers": stream.subscribers.load(Relaxed),
        "publishers": stream.publishers.load(Relaxed),
        "queued_rows": stream.queued_rows.load(Relaxed),
        "lag_frames": stream.peak_lag_frames.swap(0, Relaxed),
        "refused_frames": stream.refused_frames_total.load(Relaxed),
        "last_send_age_s": sent.then(|| (age_s * 10.0).round() / 10.0),
        "sealed_end": stream.lake.sealed_end(),
        "published_end": stream.lake.published_end(),
        "evicted_end": stream.lake.evicted_end(),
        "unpublished_s": stream.lake.published_end().map(|_| stream.lake.lag_s(SystemTime::now()).round()),
        "unpublished_since_us": Some(stream.lake.unpublished_since_us.load(Relaxed)).filter(|since_us| *since_us > 0),
        "files": stream.lake.files.load(Relaxed),
        "file_bytes": stream.lake.file_bytes.load(Relaxed),
        "table_error": stream.lake.last_error().map(|(_, error)| error),
        "table_error_age_s": stream.lake.last_error().map(|(at, _)| at.elapsed().map_or(0.0, |age| age.as_secs_f64().round())),
    })
}

fn describe_shard(shard: &ShardCounters, before: &mut [u64; 3], clock: Clock) -> Value {
    let core = shard.core_plus_one.load(Relaxed).checked_sub(1);
    json!({
        "core": core,
        "connections": shard.connections.load(Relaxed),
        "deliveries_per_s": clock.rate(&mut before[0], shard.delivered_frames_total.load(Relaxed)),
        "sent_bytes_per_s": clock.rate(&mut before[1], shard.sent_bytes_total.load(Relaxed)),
        "received_bytes_per_s": clock.rate(&mut before[2], shard.received_bytes_total.load(Relaxed)),
        "feeds": shard.feeds.load(Relaxed),
        "feed_bytes": shard.feed_bytes.load(Relaxed),
        "lag_frames": shard.max_lag_frames.load(Relaxed),
        "stalls": shard.stalls_total.load(Relaxed),
        "longest_turn_us": shard.longest_turn_us.load(Relaxed),
    })
}

fn describe_writer(writer: &WriterCounters, before: &mut [u64; 3], commit_us: &mut Counts, clock: Clock) -> Value {
    let seen = counts(&writer.commit_us);
    let new = between(commit_us, &seen);
    *commit_us = seen;
    let at = |q: f64| percentile(&new, q).map(f64::round);
    json!({
        "commits_per_s": clock.rate(&mut before[0], writer.commits_total.load(Relaxed)),
        "rows_per_s": clock.rate(&mut before[1], writer.rows_total.load(Relaxed)),
        "frames_per_s": clock.rate(&mut before[2], writer.frames_total.load(Relaxed)),
        "commit_p50_us": at(0.5),
        "commit_p99_us": at(0.99),
        "failed_commits": writer.failed_commits_total.load(Relaxed),
        "queued_bytes": writer.queued_bytes.load(Relaxed),
        "wal_bytes": writer.wal_bytes.load(Relaxed),
        "journal_bytes": writer.journal_bytes.load(Relaxed),
    })
}

fn closed(telemetry: &Telemetry) -> Map<String, Value> {
    let total = |cause: CloseCause| -> u64 {
        telemetry.shards.iter().map(|shard| shard.closed_total[cause as usize].load(Relaxed)).sum()
    };
    CloseCause::ALL.into_iter().map(|(cause, label)| (label.to_owned(), total(cause).into())).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    fn take(telemetry: &Telemetry, previous: &mut PrevSample, now: Instant, cpu_s: f64) -> Value {
        let own = ProcessReading { cpu_s: Some(cpu_s), ..ProcessReading::default() };
        sample_at(telemetry, previous, SystemTime::now(), now, own)
    }

    #[test]
    fn totals_become_rates_over_the_time_that_passed() {
        let telemetry = Telemetry::new(1);
        let stream = Arc::new(StreamCounters::new("r", true, Some(1)));
        stream.rows_total.store(1_000, Relaxed);
        telemetry.add_stream(stream.clone());
        let (mut previous, began) = (PrevSample::default(), Instant::now());
        let first = take(&telemetry, &mut previous, began, 1.0);
        assert_eq!(first["streams"][0]["rows_per_s"], 0.0, "nothing is known of the time before");
        assert_eq!(first["elapsed_s"], Value::Null);

        stream.rows_total.store(1_500, Relaxed);
        stream.peak_lag_frames.store(7, Relaxed);
        telemetry.shards[0].delivered_frames_total.store(400, Relaxed);
        telemetry.writer.commit_us.record(300);
        let second = take(&telemetry, &mut previous, began + Duration::from_secs(2), 1.5);
        assert_eq!(second["streams"][0]["rows_per_s"], 250.0);
        assert_eq!(second["streams"][0]["lag_frames"], 7);
        assert_eq!(second["shards"][0]["deliveries_per_s"], 200.0);
        assert_eq!(second["process"]["cpu_cores"], 0.25);
        assert!(second["writer"]["commit_p99_us"].as_f64().is_some_and(|us| (256.0..=512.0).contains(&us)));

        let third = take(&telemetry, &mut previous, began + Duration::from_secs(3), 1.5);
        assert_eq!(third["streams"][0]["rows_per_s"], 0.0);
        assert_eq!(third["streams"][0]["lag_frames"], 0, "a peak is told once");
        assert_eq!(third["writer"]["commit_p99_us"], Value::Null);
    }

    #[test]
    fn only_the_busiest_of_very_many_streams_are_told_and_our_own_never() {
        let telemetry = Telemetry::new(1);
        telemetry.add_stream(Arc::new(StreamCounters::new(super::super::STREAM, false, None)));
        let busy = Arc::new(StreamCounters::new("busy", false, None));
        for number in 0..MAX_LISTED_STREAMS + 10 {
            telemetry.add_stream(Arc::new(StreamCounters::new(&format!("s{number}"), false, None)));
        }
        telemetry.add_stream(busy.clone());
        let (mut previous, began) = (PrevSample::default(), Instant::now());
        take(&telemetry, &mut previous, began, 0.0);
        busy.rows_total.store(10, Relaxed);
        let seen = take(&telemetry, &mut previous, began + Duration::from_secs(1), 0.0);
        assert_eq!(seen["streams"].as_array().map(Vec::len), Some(MAX_LISTED_STREAMS));
        assert_eq!(seen["streams"][0]["name"], "busy");
        assert_eq!(seen["stream_count"], MAX_LISTED_STREAMS + 11);
        assert!(!seen.to_string().contains("_console"));
    }
}

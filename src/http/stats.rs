//! The statistics document of wire.md section 10.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::console;
use crate::telemetry::{StreamCounters, Telemetry};

#[derive(Serialize)]
struct Document<'a> {
    served_at: f64,
    streams: Vec<Entry<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    name: &'a str,
    durable: bool,
    end_offset: Option<i64>,
    subscribers: i64,
    started_ts: f64,
    uptime_s: f64,
    last_send_ts: Option<f64>,
    last_send_age_s: Option<f64>,
}

/// The document as compact JSON, with the streams whose names are `visible`, for the given wall clock and monotonic clock.
///
/// # Errors
/// Never for these types; the signature is that of the encoder.
pub fn document(
    telemetry: &Telemetry,
    visible: impl Fn(&str) -> bool,
    wall: SystemTime,
    now: Instant,
) -> serde_json::Result<String> {
    let streams = telemetry.streams();
    let listed = streams.iter().filter(|stream| !console::is_internal(&stream.name) && visible(&stream.name));
    serde_json::to_string(&Document {
        served_at: unix_s(wall),
        streams: listed.map(|stream| entry(stream, now)).collect(),
    })
}

fn entry(stream: &StreamCounters, now: Instant) -> Entry<'_> {
    let (started_wall, started) = stream.started;
    let uptime_s = now.saturating_duration_since(started).as_secs_f64();
    let last_send_us = stream.last_send_us.load(Relaxed);
    let last_send_after_s = stream.last_send_after_us.load(Relaxed) as f64 / 1e6;
    let sent = last_send_us > 0;
    Entry {
        name: &stream.name,
        durable: stream.durable,
        end_offset: stream.durable.then(|| stream.end_offset.load(Relaxed)),
        subscribers: stream.subscribers.load(Relaxed).max(0),
        started_ts: unix_s(started_wall),
        uptime_s,
        last_send_ts: sent.then_some(last_send_us as f64 / 1e6),
        last_send_age_s: sent.then_some((uptime_s - last_send_after_s).max(0.0)),
    }
}

/// Seconds since 1970, 0 for a clock set before it.
pub fn unix_s(wall: SystemTime) -> f64 {
    wall.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_document_has_the_keys_order_and_types_of_the_wire() {
        let telemetry = Telemetry::new(1);
        let mut durable = StreamCounters::new("r \"1\"", true, Some(4));
        let began = Instant::now();
        durable.started = (UNIX_EPOCH + Duration::from_secs(100), began);
        durable.subscribers = 2.into();
        durable.last_send_us = 103_500_000.into();
        durable.last_send_after_us = 3_500_000.into();
        let mut live = StreamCounters::new("lv", false, None);
        live.started = (UNIX_EPOCH + Duration::from_millis(100_250), began);
        telemetry.add_stream(Arc::new(durable));
        telemetry.add_stream(Arc::new(StreamCounters::new(console::STREAM, false, None)));
        telemetry.add_stream(Arc::new(live));
        let wall = UNIX_EPOCH + Duration::from_secs(105);
        assert_eq!(
            document(&telemetry, |_| true, wall, began + Duration::from_secs(5)).expect("json"),
            concat!(
                r#"{"served_at":105.0,"streams":[{"name":"r \"1\"","durable":true,"end_offset":4,"subscribers":2,"#,
                r#""started_ts":100.0,"uptime_s":5.0,"last_send_ts":103.5,"last_send_age_s":1.5},"#,
                r#"{"name":"lv","durable":false,"end_offset":null,"subscribers":0,"#,
                r#""started_ts":100.25,"uptime_s":5.0,"last_send_ts":null,"last_send_age_s":null}]}"#
            )
        );
    }
}

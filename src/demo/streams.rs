//! The two streams of the demo as the broker is told of them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::options::DemoOptions;
use crate::config::{Config, Lake, Slow, StreamConfig};

/// The made-up market.
pub const TRADES: &str = "trades";
/// This machine.
pub const HOST: &str = "host";

/// How often everything is brought into the tables: who looks at a demo's table wants to see it grow.
const FLUSH_EVERY: Duration = Duration::from_secs(10);
/// How often files are looked for that are not in the tables yet.
const PUBLISH_EVERY: Duration = Duration::from_secs(1);

/// The table of a stream below a data root (docs/storage.md).
pub fn table(root: &Path, stream: &str) -> PathBuf {
    root.join(format!("{stream}/{stream}/published/{stream}"))
}

/// The broker's configuration for a demo in `root`.
pub fn config(options: &DemoOptions, root: PathBuf) -> Config {
    Config {
        listen: options.listen,
        root,
        cores: options.cores.clone(),
        insecure: options.insecure,
        log: options.log,
        lake: Lake { flush_every: Some(FLUSH_EVERY), publish_every: PUBLISH_EVERY, ..Lake::default() },
        streams: vec![stream(TRADES, trades_schema(), true), stream(HOST, host_schema(), false)],
        ..Config::default()
    }
}

/// A stream that can be replayed from its first row however long the demo runs, by readers of any speed.
fn stream(name: &str, schema: Value, exactly_once: bool) -> StreamConfig {
    StreamConfig {
        exactly_once,
        sort_by: vec!["event_ts".to_owned()],
        max_replay: None,
        slow: Slow::Replay,
        ..StreamConfig::new(name, Some(schema))
    }
}

fn trades_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "event_ts": {"type": "integer"},
            "symbol": {"type": "string"},
            "venue": {"type": "string"},
            "price": {"type": "number"},
            "amount": {"type": "number"},
            "side": {"type": "integer", "format": "int32"},
        },
        "required": ["event_ts", "symbol", "venue", "price", "amount", "side"],
    })
}

fn host_schema() -> Value {
    let share = json!({"type": "number"});
    let known = json!({"type": ["number", "null"]});
    let bytes = json!({"type": "integer"});
    json!({
        "type": "object",
        "properties": {
            "event_ts": {"type": "integer"},
            "busy": share,
            "busy_per_core": {"type": "array", "items": {"type": "number"}},
            "run_queue_us": known,
            "waiting_tasks": known,
            "switches_per_s": share,
            "rx_bytes_per_s": share,
            "tx_bytes_per_s": share,
            "rx_packets_per_s": share,
            "tx_packets_per_s": share,
            "loopback_bytes_per_s": share,
            "memory_used_bytes": bytes,
            "pressure_cpu": known,
            "pressure_io": known,
            "pressure_memory": known,
        },
        "required": [
            "event_ts", "busy", "busy_per_core", "switches_per_s", "rx_bytes_per_s", "tx_bytes_per_s",
            "rx_packets_per_s", "tx_packets_per_s", "loopback_bytes_per_s", "memory_used_bytes",
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_schemas_are_schemas_of_the_wire_and_both_streams_are_replayable_for_ever() {
        let config = config(&DemoOptions::default(), PathBuf::from("somewhere"));
        let names: Vec<&str> = config.streams.iter().map(|stream| &*stream.name).collect();
        assert_eq!(names, [TRADES, HOST]);
        for stream in &config.streams {
            assert!(stream.durable && stream.max_replay.is_none() && stream.slow == Slow::Replay);
            let schema = stream.schema.as_ref().expect("a schema");
            crate::schema::Schema::compile(schema, true).expect("a schema of the wire");
            assert!(schema["properties"].get(&*stream.sort_by[0]).is_some());
        }
    }
}

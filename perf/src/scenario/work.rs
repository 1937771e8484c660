//! The kinds of work a case can be.

use serde::{Deserialize, Serialize};

use super::lake::{Ingest, LakeOptions, Moving, Open, Steady};

/// One case of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Work {
    /// Rows at a fixed rate to many subscribers.
    Fanout(Fanout),
    /// Rising rates until latency gives way.
    Ladder(Ladder),
    /// Publishing as fast as acknowledgements allow.
    Publish(Publish),
    /// Reading a stored log from its start.
    Replay(Replay),
    /// Memory, start and connects.
    Idle(Idle),
    /// A fan-out, quiet and then disturbed.
    Disturb(Disturb),
    /// What plain sends to sockets cost on this machine.
    Floor(Floor),
    /// What fdatasync costs on the data root's filesystem.
    Fsync(Fsync),
    /// Loading a file into a stopped stream.
    Ingest(Ingest),
    /// Rows at a fixed rate for long, and what lies on the disk meanwhile.
    Steady(Steady),
    /// A fan-out whose rows move into files, and the same one whose rows do not.
    Moving(Moving),
    /// A table of very many files.
    Open(Open),
}

macro_rules! defaults {
    ($($name:ident: $kind:ty = $value:expr;)*) => { $(pub(super) fn $name() -> $kind { $value })* };
}

defaults! {
    one: usize = 1;
    one_row: u32 = 1;
    every: u64 = 1;
    warm: f64 = 2.0;
    measure: f64 = 10.0;
    drain: f64 = 5.0;
    short_warm: f64 = 0.7;
    short_measure: f64 = 2.5;
    short_drain: f64 = 2.0;
    p99_limit: f64 = 50.0;
    growth: f64 = 1.5;
    refinements: u32 = 2;
    thin: u64 = 101;
    five: u32 = 5;
    parallel: usize = 64;
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fanout {
    pub name: String,
    pub subscribers: usize,
    #[serde(default = "one")]
    pub publishers: usize,
    /// Publish frames a second, over all publishers.
    pub rate: f64,
    /// Rows a frame.
    #[serde(default = "one_row")]
    pub batch: u32,
    pub filter: Option<Filter>,
    /// How rows move into files meanwhile, instead of as the stream's options say.
    pub lake: Option<LakeOptions>,
    #[serde(default = "warm")]
    pub warm_s: f64,
    #[serde(default = "measure")]
    pub measure_s: f64,
    /// How long to wait after the window for what is still on its way.
    #[serde(default = "drain")]
    pub drain_s: f64,
    /// Every so many frames the latency is taken.
    #[serde(default = "every")]
    pub sample_every: u64,
}

/// Predicates over columns that go round: the k-th asks column `k / of` for `members` values from `k % of` on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    pub columns: Vec<String>,
    pub of: u64,
    #[serde(default = "every")]
    pub members: u64,
}

impl Filter {
    /// How many different predicates there are.
    #[must_use]
    pub fn distinct(&self) -> u64 {
        self.columns.len() as u64 * self.of
    }

    /// Column and first value of the `number`-th subscriber's predicate.
    #[must_use]
    pub fn of_subscriber(&self, number: u64) -> (&str, u64) {
        let predicate = number % self.distinct();
        (&self.columns[(predicate / self.of) as usize], predicate % self.of)
    }

    /// The predicate as JSON (wire.md section 6).
    #[must_use]
    pub fn json(&self, number: u64) -> String {
        let (column, base) = self.of_subscriber(number);
        let values: Vec<String> = (0..self.members).map(|at| ((base + at) % self.of).to_string()).collect();
        match &values[..] {
            [only] => format!("{{\"{column}\":{only}}}"),
            many => format!("{{\"{column}\":[{}]}}", many.join(",")),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ladder {
    pub name: String,
    pub subscribers: usize,
    #[serde(default = "one_row")]
    pub batch: u32,
    /// Deliveries a second of the first step.
    pub from: f64,
    /// Deliveries a second no step goes above.
    pub to: f64,
    /// Factor from step to step until the first that fails.
    #[serde(default = "growth")]
    pub growth: f64,
    /// Halvings of the gap between the last good and the first bad step.
    #[serde(default = "refinements")]
    pub refinements: u32,
    /// A step is sustained while p99 stays at or below this, in milliseconds.
    #[serde(default = "p99_limit")]
    pub p99_limit_ms: f64,
    #[serde(default = "short_warm")]
    pub warm_s: f64,
    #[serde(default = "short_measure")]
    pub measure_s: f64,
    #[serde(default = "short_drain")]
    pub drain_s: f64,
    #[serde(default = "thin")]
    pub sample_every: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Publish {
    pub name: String,
    /// Peers of this case alone; the scenario's when empty.
    #[serde(default)]
    pub peers: Vec<String>,
    #[serde(default = "one")]
    pub publishers: usize,
    /// Frames a publisher may have unanswered.
    pub window: usize,
    #[serde(default = "one_row")]
    pub batch: u32,
    #[serde(default = "warm")]
    pub warm_s: f64,
    #[serde(default = "measure")]
    pub measure_s: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    pub name: String,
    pub rows: u64,
    pub subscribers: usize,
    /// Whether all rows are moved into files first, so that none is read from the journal.
    #[serde(default)]
    pub sealed: bool,
    /// How often the rows are read.
    #[serde(default = "five")]
    pub rounds: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Idle {
    pub name: String,
    /// Starts whose time to the first greeting is taken.
    #[serde(default = "five")]
    pub starts: u32,
    /// Subscribers that only wait.
    pub idle: usize,
    /// Subscribers of the fan-out beside them.
    #[serde(default)]
    pub active: usize,
    /// Rows a second to the active ones; the idle ones are on another stream.
    #[serde(default = "hundred")]
    pub rate: f64,
    /// Seconds of connecting, greeting and closing as fast as possible.
    #[serde(default = "drain")]
    pub connect_s: f64,
    /// Connections in the air at once.
    #[serde(default = "parallel")]
    pub parallel: usize,
}

fn hundred() -> f64 {
    100.0
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disturb {
    pub name: String,
    /// Peers of this case alone; the scenario's when empty.
    #[serde(default)]
    pub peers: Vec<String>,
    pub subscribers: usize,
    pub rate: f64,
    /// Rows in the log before the start: what a replay reads.
    pub stored_rows: u64,
    /// Whether one subscriber stops reading.
    pub stall: bool,
    /// Whether another connection reads the stored rows.
    pub replay: bool,
    /// Readers over HTTP, one half by server-sent events and the other by pages that wait.
    #[serde(default)]
    pub http_readers: usize,
    /// Clients that declare streams, serve, stop and delete them as fast as answers come.
    #[serde(default)]
    pub storms: usize,
    /// Pairs of a quiet and a disturbed window.
    #[serde(default = "pairs")]
    pub pairs: u32,
    #[serde(default = "five_seconds")]
    pub window_s: f64,
}

fn pairs() -> u32 {
    3
}

fn five_seconds() -> f64 {
    5.0
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Floor {
    pub name: String,
    pub subscribers: usize,
    pub frames_per_send: u32,
    /// Bytes a frame, its header included.
    #[serde(default = "frame_bytes")]
    pub frame_bytes: u32,
    /// Rounds a second; each sends once to every subscriber.
    pub rate: f64,
    /// Congestion control of the sender's sockets; the machine's default when absent.
    pub congestion: Option<String>,
    #[serde(default = "warm")]
    pub warm_s: f64,
    #[serde(default = "measure")]
    pub measure_s: f64,
    #[serde(default = "every")]
    pub sample_every: u64,
}

fn frame_bytes() -> u32 {
    120
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fsync {
    pub name: String,
    /// Bytes a write.
    pub bytes: u32,
    /// Whether the writes go over bytes that are there rather than to the end of the file.
    #[serde(default)]
    pub overwrite: bool,
    #[serde(default = "five_seconds")]
    pub measure_s: f64,
}

impl Work {
    /// The case's name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Fanout(case) => &case.name,
            Self::Ladder(case) => &case.name,
            Self::Publish(case) => &case.name,
            Self::Replay(case) => &case.name,
            Self::Idle(case) => &case.name,
            Self::Disturb(case) => &case.name,
            Self::Floor(case) => &case.name,
            Self::Fsync(case) => &case.name,
            Self::Ingest(case) => &case.name,
            Self::Steady(case) => &case.name,
            Self::Moving(case) => &case.name,
            Self::Open(case) => &case.name,
        }
    }

    /// Peers of this case, of those of its scenario.
    #[must_use]
    pub fn peers<'s>(&'s self, scenario: &'s [String]) -> &'s [String] {
        match self {
            Self::Publish(Publish { peers, .. }) | Self::Disturb(Disturb { peers, .. }) if !peers.is_empty() => peers,
            _ => scenario,
        }
    }

    /// Whether a server is measured, rather than the machine itself.
    #[must_use]
    pub fn needs_peer(&self) -> bool {
        !matches!(self, Self::Floor(_) | Self::Fsync(_))
    }

    /// What makes the case impossible.
    pub(super) fn fault(&self) -> Option<String> {
        let rate = |rate: f64| (!(1e-3..=1e8).contains(&rate)).then(|| "`rate` must be from 0.001 to 1e8".to_owned());
        let count = |what: &str, count: u64, most: u64| {
            (!(1..=most).contains(&count)).then(|| format!("`{what}` must be from 1 to {most}"))
        };
        let seconds = |seconds: &[f64]| {
            let fits = seconds.iter().all(|seconds| (0.0..=3600.0).contains(seconds));
            (!fits).then(|| "times must be from 0 to 3600 seconds".to_owned())
        };
        match self {
            Self::Fanout(case) => rate(case.rate)
                .or(count("subscribers", case.subscribers as u64, 60_000))
                .or(count("publishers", case.publishers as u64, 1_000))
                .or(count("batch", case.batch.into(), 10_000))
                .or(count("sample_every", case.sample_every, 1_000_000))
                .or(seconds(&[case.warm_s, case.measure_s, case.drain_s]))
                .or_else(|| case.filter.as_ref().and_then(Filter::fault)),
            Self::Ladder(case) => count("subscribers", case.subscribers as u64, 60_000)
                .or(count("batch", case.batch.into(), 10_000))
                .or(count("sample_every", case.sample_every, 1_000_000))
                .or(seconds(&[case.warm_s, case.measure_s, case.drain_s]))
                .or((case.from < 1.0 || case.to < case.from || case.to > 1e10)
                    .then(|| "`from` and `to` must be rising deliveries a second".to_owned()))
                .or((!(1.01..=10.0).contains(&case.growth)).then(|| "`growth` must be from 1.01 to 10".to_owned())),
            Self::Publish(case) => count("publishers", case.publishers as u64, 1_000)
                .or(count("window", case.window as u64, 100_000))
                .or(count("batch", case.batch.into(), 100_000))
                .or(seconds(&[case.warm_s, case.measure_s])),
            Self::Replay(case) => count("rows", case.rows, 100_000_000)
                .or(count("subscribers", case.subscribers as u64, 1_000))
                .or(count("rounds", case.rounds.into(), 1_000)),
            Self::Idle(case) => rate(case.rate)
                .or(count("idle", case.idle as u64, 60_000))
                .or(count("starts", case.starts.into(), 100))
                .or(count("parallel", case.parallel as u64, 10_000))
                .or(seconds(&[case.connect_s])),
            Self::Disturb(case) => rate(case.rate)
                .or(count("subscribers", case.subscribers as u64, 60_000))
                .or((case.http_readers > 4_000 || case.storms > 100)
                    .then(|| "`http_readers` must be up to 4000, `storms` up to 100".to_owned()))
                .or(count("pairs", case.pairs.into(), 100))
                .or(seconds(&[case.window_s])),
            Self::Floor(case) => rate(case.rate)
                .or(count("subscribers", case.subscribers as u64, 60_000))
                .or(count("frames_per_send", case.frames_per_send.into(), 10_000))
                .or(count("sample_every", case.sample_every, 1_000_000))
                .or((!(64..=65_536).contains(&case.frame_bytes)).then(|| "`frame_bytes` must be 64 to 65536".into()))
                .or(seconds(&[case.warm_s, case.measure_s])),
            Self::Fsync(case) => count("bytes", case.bytes.into(), 1 << 24).or(seconds(&[case.measure_s])),
            Self::Ingest(case) => {
                count("rows", case.rows, 1_000_000_000).or(count("rounds", case.rounds.into(), 1_000))
            }
            Self::Steady(case) => rate(case.rate)
                .or(count("batch", case.batch.into(), 10_000))
                .or(seconds(&[case.measure_s]))
                .or((!(0.1..=60.0).contains(&case.look_every_s))
                    .then(|| "`look_every_s` must be from 0.1 to 60".to_owned())),
            Self::Moving(case) => rate(case.rate)
                .or(count("subscribers", case.subscribers as u64, 30_000))
                .or(count("batch", case.batch.into(), 10_000))
                .or(count("sample_every", case.sample_every, 1_000_000))
                .or(count("pairs", case.pairs.into(), 100))
                .or(seconds(&[case.lead_s, case.window_s, case.drain_s]))
                .or((!(0.1..=20.0).contains(&case.rest_s)).then(|| "`rest_s` must be from 0.1 to 20".to_owned())),
            Self::Open(case) => count("rows", case.rows, 100_000_000)
                .or(count("files", case.files, 1_000_000))
                .or(count("rounds", case.rounds.into(), 1_000)),
        }
    }
}

impl Filter {
    fn fault(&self) -> Option<String> {
        let fits = !self.columns.is_empty() && (1..=10_000).contains(&self.of) && (1..=self.of).contains(&self.members);
        (!fits).then(|| "a filter needs `columns`, `of` from 1 to 10000 and `members` from 1 to `of`".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predicates_go_round() {
        let members = Filter { columns: vec!["bucket".into()], of: 100, members: 3 };
        assert_eq!(members.distinct(), 100);
        assert_eq!(members.json(98), r#"{"bucket":[98,99,0]}"#);
        assert_eq!(members.json(198), members.json(98));
        let equal = Filter { columns: vec!["a".into(), "b".into()], of: 10, members: 1 };
        assert_eq!(equal.json(13), r#"{"b":3}"#);
        assert_eq!(equal.json(20), r#"{"a":0}"#);
    }
}

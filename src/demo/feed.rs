//! Publishes a source of rows for as long as the runtime lives: each row when it is due, a few frames in flight,
//! a new connection when one is lost.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::client::{Address, ClientError, Options, Publisher, Reply};

/// Frames that may wait for their reply.
const MAX_IN_FLIGHT_FRAMES: usize = 16;
/// Rows in one frame.
const MAX_FRAME_ROWS: usize = 1_000;
/// How late a row may be before those up to now are left out: the broker does not keep up with the rate.
const MAX_LATE_US: i64 = 1_000_000;
/// Between two looks at what is due; rows that fall due together share a frame.
const LOOK: Duration = Duration::from_millis(4);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(2);

/// Rows with the times they are due at.
pub trait Source: Send {
    /// When the next row is due, in microseconds since 1970.
    fn due_us(&self) -> i64;
    /// Appends the next row as a JSON object; the one after it becomes the next.
    fn write_row(&mut self, out: &mut String);
    /// Leaves out the rows that were due before `now_us`.
    fn skip_to(&mut self, now_us: i64);
}

/// Wall clock at its start, monotonic from there on.
#[derive(Clone, Copy)]
pub struct FeedClock {
    wall_us: i64,
    began: Instant,
}

impl FeedClock {
    /// A clock that begins now.
    pub fn start() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { wall_us: i64::try_from(since.as_micros()).unwrap_or(i64::MAX), began: Instant::now() }
    }

    /// Microseconds since 1970.
    pub fn now_us(self) -> i64 {
        self.wall_us.saturating_add(i64::try_from(self.began.elapsed().as_micros()).unwrap_or(i64::MAX))
    }
}

/// Publishes the source to a stream.
pub async fn publish(address: Address, mut source: impl Source, clock: FeedClock) {
    let mut pause = FIRST_PAUSE;
    loop {
        match Publisher::open(&address, &Options::default(), None).await {
            Ok(publisher) => {
                pause = FIRST_PAUSE;
                let error = feed(publisher, &mut source, clock).await;
                tracing::debug!(%error, stream = address.stream(), "the demo's feed was cut off");
            }
            Err(error) => tracing::debug!(%error, stream = address.stream(), "the demo's feed is not let in"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

/// Publishes over one connection until it ends, and tells why it did.
async fn feed(mut publisher: Publisher, source: &mut impl Source, clock: FeedClock) -> ClientError {
    let mut owed_frames = 0;
    loop {
        let now_us = clock.now_us();
        if now_us.saturating_sub(source.due_us()) > MAX_LATE_US {
            source.skip_to(now_us);
        }
        while owed_frames < MAX_IN_FLIGHT_FRAMES
            && let Some(frame) = next_frame(source, now_us)
        {
            publisher.send(frame);
            owed_frames += 1;
        }
        let due_in = Duration::from_micros(u64::try_from(source.due_us() - now_us).unwrap_or(0));
        tokio::select! {
            reply = publisher.reply() => match reply {
                Ok(reply) => {
                    owed_frames = owed_frames.saturating_sub(1);
                    if !matches!(reply, Reply::Ok { .. }) {
                        tracing::warn!(?reply, "the broker did not take rows of the demo");
                    }
                }
                Err(error) => return error,
            },
            () = tokio::time::sleep(due_in.max(LOOK)), if owed_frames < MAX_IN_FLIGHT_FRAMES => {}
        }
    }
}

/// A frame of the rows that are due: an array, or the bare object if it is one.
fn next_frame(source: &mut impl Source, now_us: i64) -> Option<String> {
    if source.due_us() > now_us {
        return None;
    }
    let mut frame = String::from("[");
    let mut rows = 0;
    while rows < MAX_FRAME_ROWS && source.due_us() <= now_us {
        if rows > 0 {
            frame.push(',');
        }
        source.write_row(&mut frame);
        rows += 1;
    }
    if rows == 1 {
        frame.remove(0);
    } else {
        frame.push(']');
    }
    Some(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row every 10 µs that tells its number.
    struct Numbers(i64);

    impl Source for Numbers {
        fn due_us(&self) -> i64 {
            self.0 * 10
        }

        fn write_row(&mut self, out: &mut String) {
            out.push_str(&format!("{{\"n\":{}}}", self.0));
            self.0 += 1;
        }

        fn skip_to(&mut self, now_us: i64) {
            self.0 = now_us / 10;
        }
    }

    #[test]
    fn what_is_due_goes_into_frames_of_bounded_size() {
        let mut source = Numbers(1);
        assert_eq!(next_frame(&mut source, 9), None);
        assert_eq!(next_frame(&mut source, 10).as_deref(), Some(r#"{"n":1}"#));
        assert_eq!(next_frame(&mut source, 39).as_deref(), Some(r#"[{"n":2},{"n":3}]"#));
        let large = next_frame(&mut source, 1_000_000).expect("rows");
        let rows: Vec<serde_json::Value> = serde_json::from_str(&large).expect("json");
        assert_eq!(rows.len(), MAX_FRAME_ROWS);
        assert_eq!(source.0, 4 + MAX_FRAME_ROWS as i64, "the next frame goes on where this one ended");
    }
}

//! The samples of the last minutes, so that a page that opens shows more than one point.

use std::collections::VecDeque;
use std::sync::Mutex;

/// Where the page asks for them.
pub const HISTORY_PATH: &str = "/console/history";

/// Samples kept: five minutes of one a second.
const MAX_SAMPLES: usize = 300;
/// Bytes of samples kept, whatever their number.
const MAX_BYTES: usize = 4 << 20;

/// Recent samples, oldest first.
#[derive(Default)]
pub struct History(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    samples: VecDeque<String>,
    size_bytes: usize,
}

impl History {
    /// Keeps one sample, a JSON value, and lets the oldest go.
    pub fn push(&self, sample: String) {
        let mut kept = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        kept.size_bytes += sample.len();
        kept.samples.push_back(sample);
        while kept.samples.len() > MAX_SAMPLES || kept.size_bytes > MAX_BYTES {
            match kept.samples.pop_front() {
                Some(oldest) => kept.size_bytes -= oldest.len(),
                None => break,
            }
        }
    }

    /// All of them as one JSON array.
    pub fn document(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut document = String::with_capacity(kept.size_bytes + kept.samples.len() + 2);
        document.push('[');
        for (index, sample) in kept.samples.iter().enumerate() {
            if index > 0 {
                document.push(',');
            }
            document.push_str(sample);
        }
        document.push(']');
        document
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_samples_are_kept() {
        let history = History::default();
        assert_eq!(history.document(), "[]");
        for number in 0..MAX_SAMPLES + 20 {
            history.push(number.to_string());
        }
        let kept: Vec<usize> = serde_json::from_str(&history.document()).expect("json");
        assert_eq!(kept, (20..MAX_SAMPLES + 20).collect::<Vec<_>>());
    }

    #[test]
    fn large_samples_are_bounded_by_their_bytes() {
        let history = History::default();
        let large = format!("\"{}\"", "x".repeat(MAX_BYTES / 3));
        for _ in 0..10 {
            history.push(large.clone());
        }
        assert!(history.document().len() <= MAX_BYTES);
        history.push("7".to_owned());
        assert!(history.document().ends_with(",7]"));
    }
}

//! Jobs for the writer that go together.

use crate::journal::Job;

/// Bytes of rows at which jobs go without those that are still to be read. A shard reads so much in about the time of a
/// sync, so that the writer waits for the disk while the rest is read, and not before and after.
const FULL_BYTES: usize = 32 << 10;

/// Whoever was readable at the same time shares the writer's next transaction.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    jobs: Vec<Job>,
    /// What their rows take.
    bytes: usize,
}

impl Outbox {
    /// Takes a job; returns whether the jobs should go now.
    pub(super) fn push(&mut self, job: Job) -> bool {
        if let Job::Append(append) = &job {
            self.bytes += append.rows.body.len();
        }
        self.jobs.push(job);
        self.bytes >= FULL_BYTES
    }

    /// The jobs, in order.
    pub(super) fn take(&mut self) -> Vec<Job> {
        self.bytes = 0;
        std::mem::take(&mut self.jobs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Append;
    use crate::wire::batch::RowBatch;

    fn append(token: u64, bytes: usize) -> Job {
        let rows = RowBatch { body: vec![b'x'; bytes], ends: vec![bytes as u32] };
        Job::Append(Append { stream: 1, token, claim: None, first_seq: None, rows, ts_us: 0, insert: None })
    }

    #[test]
    fn small_frames_go_together_and_many_bytes_at_once() {
        let mut outbox = Outbox::default();
        for token in 0..200 {
            assert!(!outbox.push(append(token, 100)));
        }
        assert!(!outbox.push(Job::Note(0, 0, 0)));
        assert_eq!(outbox.take().len(), 201);
        assert!(outbox.take().is_empty());
        assert!(!outbox.push(append(1, FULL_BYTES / 2)), "what went counts no more");
        assert!(outbox.push(append(2, FULL_BYTES / 2)));
        let tokens = outbox.take().into_iter().map(|job| match job {
            Job::Append(append) => append.token,
            _ => 0,
        });
        assert_eq!(tokens.collect::<Vec<_>>(), [1, 2]);
        assert!(outbox.push(append(3, FULL_BYTES)));
    }
}

//! Every bound of the batch API (docs/batches.md, "Limits").

use std::time::Duration;

/// Bytes of a request body.
pub const MAX_BODY_BYTES: usize = 8 << 20;

/// Entries of one batch.
pub const MAX_ENTRIES: usize = 100_000;

/// Bytes of one entry as sent.
pub const MAX_ENTRY_BYTES: usize = 1 << 20;

/// Arrays and objects inside each other in one entry, itself included.
pub const MAX_ENTRY_LEVELS: usize = 32;

/// Bytes of a batch as it is stored: declared columns that an entry leaves out are written out.
pub const MAX_STORED_BYTES: usize = 64 << 20;

/// Characters of an idempotency key.
pub const MAX_KEY_CHARS: usize = 256;

/// Entries of one erasure.
pub const MAX_ERASED: usize = 100_000;

/// Failing entries that an answer names.
pub const MAX_FAILURES: usize = 100;

/// Rows of one page of a read.
pub const MAX_PAGE_ROWS: usize = 10_000;

/// Rows of a page that does not say how many.
pub const DEFAULT_PAGE_ROWS: usize = 1_000;

/// Bytes of one page of a read.
pub const MAX_PAGE_BYTES: usize = 8 << 20;

/// The longest wait of a long poll.
pub const MAX_WAIT: Duration = Duration::from_secs(30);

/// How long a read with a filter may look for rows before it answers with how far it came.
pub const MAX_SCAN: Duration = Duration::from_secs(2);

/// How long an insert waits for room in the writer's queue.
pub const MAX_QUEUE_WAIT: Duration = Duration::from_secs(5);

/// Requests that wait for rows, or follow a stream, at the same time: three quarters of the HTTP connections there may
/// be, so that waiting readers never keep everybody else out.
pub const MAX_WAITERS: usize = 768;

/// Bytes of bodies that are read or under way at the same time, over all requests.
pub const MAX_BODIES_BYTES: usize = 256 << 20;

/// Bodies above this size are parsed on a thread of their own.
pub const INLINE_BODY_BYTES: usize = 32 << 10;

/// Such threads at the same time.
pub const MAX_PARSING: usize = 4;

/// Streams that are created, deleted or cleared at once; the others wait.
pub const MAX_CHANGING: usize = 4;

/// Streams on one page of the list.
pub const MAX_LISTED: usize = 1_000;

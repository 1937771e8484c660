//! Publish frames (wire.md sections 4.1 to 4.4, 5.2 and 13): from a message's bytes to canonical rows.
//!
//! The fast parser reads a frame once into a tape in reused buffers. What it does not read - broken JSON, integers
//! beyond 64 bits, deep nesting - is read again by the exact parser, whose word is final. Both feed the same encoder.

use simd_json::{Buffers, INPUT_PADDING, Tape};

use super::batch::RowBatch;
use crate::schema::json::{self, Json, MAX_DEPTH};
use crate::schema::{Node, Schema, TapeNode, View, Wide, explain, push_any, push_row, to_members};

/// Omitted columns are written out, so a frame's rows can take much more room than the frame: up to this many bytes
/// and four times the frame.
pub const BODY_ALLOWANCE_BYTES: usize = 16 * 1024 * 1024;

/// The fast parser counts depth in its own way; below this it agrees with the exact one.
const FAST_DEPTH: usize = MAX_DEPTH - 2;

/// What an average frame needs; buffers grow beyond it when they must.
const USUAL_FRAME_BYTES: usize = 16 * 1024;

/// After a frame over this size the buffers, several times its size, are given back.
const KEPT_FRAME_BYTES: usize = 256 * 1024;

/// Whether a connection numbers its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbering {
    /// Frames are a row or an array of rows.
    Plain,
    /// Frames are `[seq, row]` or `[seq, [row, …]]`.
    ExactlyOnce,
}

/// The number of an exactly-once frame's first row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seq {
    /// A number, at least 1.
    Small(u64),
    /// A legal number beyond 64 bits, which can only be a gap: its digits.
    Huge(String),
}

/// An accepted frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishFrame {
    /// The number of the first row; `None` on a plain connection.
    pub first_seq: Option<Seq>,
    /// The rows, at least one.
    pub rows: RowBatch,
}

/// Why a frame is refused; the text is the reply's `detail`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Not JSON, or not a row or batch.
    #[error("{0}")]
    BadFrame(String),
    /// A row does not fit the schema.
    #[error("{0}")]
    Rejected(String),
}

/// Parses publish frames. It holds the buffers of the fast parser: have one per shard and use it for every frame.
pub struct FrameParser {
    input: Vec<u8>,
    buffers: Buffers,
    tape: Tape<'static>,
}

impl std::fmt::Debug for FrameParser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrameParser").field("capacity_bytes", &self.input.capacity()).finish_non_exhaustive()
    }
}

impl Default for FrameParser {
    fn default() -> Self {
        FrameParser::new()
    }
}

impl FrameParser {
    /// A parser with buffers for a usual frame.
    #[must_use]
    pub fn new() -> Self {
        FrameParser {
            input: Vec::with_capacity(USUAL_FRAME_BYTES + INPUT_PADDING),
            buffers: Buffers::with_max_depth(USUAL_FRAME_BYTES, FAST_DEPTH),
            tape: Tape(Vec::new()),
        }
    }

    /// Parses, validates and encodes one frame.
    ///
    /// # Errors
    /// [`Refusal::BadFrame`] before [`Refusal::Rejected`]; all rows of a frame are accepted or none is.
    pub fn parse(
        &mut self,
        schema: Option<&Schema>,
        numbering: Numbering,
        payload: &[u8],
    ) -> Result<PublishFrame, Refusal> {
        self.fast(schema, numbering, payload).unwrap_or_else(|| exact(schema, numbering, payload))
    }

    /// The fast path. `None` says nothing about the frame: the exact parser decides.
    fn fast(
        &mut self,
        schema: Option<&Schema>,
        numbering: Numbering,
        payload: &[u8],
    ) -> Option<Result<PublishFrame, Refusal>> {
        self.input.clear();
        self.input.extend_from_slice(payload);
        self.input.resize(payload.len() + INPUT_PADDING, b' ');
        // Strings without a backslash in their source hold nothing that needs an escape.
        let plain = memchr::memchr(b'\\', payload).is_none();
        let mut tape = std::mem::replace(&mut self.tape, Tape(Vec::new())).reset();
        let parsed = simd_json::fill_tape_padded(&mut self.input, payload.len(), &mut self.buffers, &mut tape);
        let verdict = match (parsed, TapeNode::root(&tape)) {
            (Ok(()), Some(root)) => Some(judge(root, schema, numbering, plain, payload.len())),
            _ => None,
        };
        self.tape = tape.reset();
        if payload.len() > KEPT_FRAME_BYTES {
            *self = FrameParser::new();
        }
        verdict
    }
}

fn exact(schema: Option<&Schema>, numbering: Numbering, payload: &[u8]) -> Result<PublishFrame, Refusal> {
    let value = json::parse(payload).map_err(|error| Refusal::BadFrame(error.to_string()))?;
    judge(&value, schema, numbering, false, payload.len())
}

/// Accepts a parsed frame or finds the words for why not.
fn judge<'a, N: Node<'a>>(
    root: N,
    schema: Option<&Schema>,
    numbering: Numbering,
    plain: bool,
    payload_bytes: usize,
) -> Result<PublishFrame, Refusal> {
    frame(root, schema, numbering, plain, payload_bytes).map_err(|failure| match failure {
        Failure::Shape(detail) => Refusal::BadFrame(detail.to_owned()),
        Failure::TooMuch => Refusal::Rejected(format!(
            "the frame's rows take over {} bytes when written out; publish fewer rows at once",
            body_limit(payload_bytes)
        )),
        Failure::Row => Refusal::Rejected(
            schema
                .and_then(|schema| explain(schema, &objects(root, numbering)))
                .unwrap_or_else(|| "a row does not fit the schema".to_owned()),
        ),
    })
}

/// The most bytes that the rows of a frame may take. Rows are addressed with 32 bits.
fn body_limit(payload_bytes: usize) -> usize {
    payload_bytes.saturating_mul(4).saturating_add(BODY_ALLOWANCE_BYTES).min(u32::MAX as usize)
}

/// The rows of a frame whose shape is right.
fn objects<'a, N: Node<'a>>(root: N, numbering: Numbering) -> Vec<Vec<(String, Json)>> {
    let rows = match (numbering, root.view()) {
        (Numbering::ExactlyOnce, View::Array(mut pair)) => pair.nth(1).unwrap_or(root),
        _ => root,
    };
    match rows.view() {
        View::Object(entries) => vec![to_members::<N>(entries)],
        View::Array(items) => items
            .filter_map(|item| match item.view() {
                View::Object(entries) => Some(to_members::<N>(entries)),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    }
}

enum Failure {
    Shape(&'static str),
    Row,
    TooMuch,
}

const ROW_SHAPE: Failure = Failure::Shape("a frame must be an object or a non-empty array of objects");
const NUMBERED_SHAPE: Failure = Failure::Shape(
    "a frame of an exactly-once connection must be [seq, row] or [seq, [row, ...]] with an integer seq from 1 on",
);

fn frame<'a, N: Node<'a>>(
    root: N,
    schema: Option<&Schema>,
    numbering: Numbering,
    plain: bool,
    payload_bytes: usize,
) -> Result<PublishFrame, Failure> {
    let (first_seq, rows) = match (numbering, root.view()) {
        (Numbering::Plain, _) => (None, root),
        (Numbering::ExactlyOnce, View::Array(mut pair)) => match (pair.next(), pair.next(), pair.next()) {
            (Some(number), Some(rows), None) => (Some(seq(number).ok_or(NUMBERED_SHAPE)?), rows),
            _ => return Err(NUMBERED_SHAPE),
        },
        (Numbering::ExactlyOnce, _) => return Err(NUMBERED_SHAPE),
    };
    let wrong = || if numbering == Numbering::Plain { ROW_SHAPE } else { NUMBERED_SHAPE };
    let mut encoder = Rows { batch: RowBatch::default(), schema, plain, limit_bytes: body_limit(payload_bytes) };
    match rows.view() {
        View::Object(entries) => {
            encoder.batch.body.reserve(payload_bytes + payload_bytes / 4 + 32);
            encoder.push(rows, entries)?;
        }
        View::Array(items) => {
            // The whole frame's shape comes before the first row's validity.
            let mut count = 0;
            for item in items.clone() {
                if !matches!(item.view(), View::Object(_)) {
                    return Err(wrong());
                }
                count += 1;
            }
            if count == 0 {
                return Err(wrong());
            }
            encoder.batch.body.reserve(payload_bytes + payload_bytes / 8 + 32);
            encoder.batch.ends.reserve(count);
            for item in items {
                if let View::Object(entries) = item.view() {
                    encoder.push(item, entries)?;
                }
            }
        }
        _ => return Err(wrong()),
    }
    Ok(PublishFrame { first_seq, rows: encoder.batch })
}

/// The number of an exactly-once frame: an integer from 1 on.
fn seq<'a, N: Node<'a>>(number: N) -> Option<Seq> {
    match number.view() {
        View::Int(value) if value >= 1 => Some(Seq::Small(value.unsigned_abs())),
        View::Wide(Wide::Unsigned(value)) => Some(Seq::Small(value)),
        View::Wide(Wide::Digits(digits)) if !digits.starts_with('-') => {
            Some(digits.parse().map_or_else(|_| Seq::Huge(digits.to_owned()), Seq::Small))
        }
        _ => None,
    }
}

struct Rows<'s> {
    batch: RowBatch,
    schema: Option<&'s Schema>,
    plain: bool,
    limit_bytes: usize,
}

impl Rows<'_> {
    #[inline]
    fn push<'a, N: Node<'a>>(&mut self, row: N, entries: N::Entries) -> Result<(), Failure> {
        let body = &mut self.batch.body;
        match self.schema {
            Some(schema) => push_row::<N>(body, schema, entries, self.plain).map_err(|_| Failure::Row)?,
            None => push_any(body, row, self.plain),
        }
        body.push(b'\n');
        if body.len() > self.limit_bytes {
            return Err(Failure::TooMuch);
        }
        self.batch.ends.push(body.len() as u32);
        Ok(())
    }
}

#[cfg(test)]
mod tests;

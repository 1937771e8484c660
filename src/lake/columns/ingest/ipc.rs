//! Arrow IPC a piece of a batch at a time: writers put whole tables into one batch, which need not fit into memory.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{ArrayData, RecordBatch, make_array};
use arrow::buffer::{BooleanBuffer, Buffer, MutableBuffer, NullBuffer};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::ipc::{CompressionType, MessageHeader, convert, root_as_footer, root_as_message};

use super::packed::Packed;
use super::source::{CHUNK_BYTES, CHUNK_ROWS, Counted};

/// In front of every message.
const CONTINUATION: [u8; 4] = [0xff; 4];
/// At both ends of a file.
const MAGIC: &[u8; 6] = b"ARROW1";
/// The longest description of a batch or schema, in bytes.
const MAX_MESSAGE_BYTES: u64 = 64 << 20;
/// In front of a compressed buffer: how long it is unpacked.
const LENGTH_BYTES: u64 = 8;

/// Reads pieces of the batches of a file or stream, one after the other.
pub(super) struct Pieces {
    bytes: Bytes,
    schema: SchemaRef,
    messages: Messages,
    batch: Option<Batch>,
    failed: bool,
}

/// Where the next batches are.
enum Messages {
    /// At these places, as a file's footer says.
    At(VecDeque<u64>),
    /// Behind each other from this place on.
    From(u64),
}

/// A batch that is being read.
struct Batch {
    rows: usize,
    next: usize,
    step: usize,
    /// For each array, in the order of a walk: how long it is, and how many nulls it has.
    nodes: Vec<(usize, usize)>,
    /// The buffers, in that order.
    buffers: Vec<Held>,
}

/// A buffer of a batch.
enum Held {
    /// Where it is in the file, and how long.
    Plain(u64, u64),
    Packed(Packed),
}

/// The file by place.
struct Bytes {
    file: Arc<File>,
    bytes_read: Arc<AtomicU64>,
    length: u64,
}

/// A message's description, and where its body is and how long.
struct Message {
    head: Vec<u8>,
    body: u64,
    body_length: u64,
}

impl Pieces {
    /// Opens a file, or a stream; none if it has types or an age for which pieces are not worth the trouble.
    pub fn open(file: &Counted, is_file: bool) -> Result<Option<Self>, String> {
        let handle = file.file.try_clone().map_err(|error| error.to_string())?;
        let length = handle.metadata().map_err(|error| error.to_string())?.len();
        let bytes = Bytes { file: Arc::new(handle), bytes_read: Arc::clone(&file.bytes_read), length };
        let opened = if is_file { open_file(&bytes)? } else { open_stream(&bytes)? };
        let Some((schema, messages)) = opened else { return Ok(None) };
        if !schema.fields().iter().all(|field| is_sliced(field.data_type())) {
            return Ok(None);
        }
        Ok(Some(Self { bytes, schema, messages, batch: None, failed: false }))
    }

    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn piece(&mut self) -> Result<Option<RecordBatch>, String> {
        loop {
            if let Some(batch) = self.batch.as_mut().filter(|batch| batch.next < batch.rows) {
                let range = batch.next..batch.rows.min(batch.next + batch.step);
                batch.next = range.end;
                let mut walk = Walk { bytes: &self.bytes, batch, node: 0, buffer: 0 };
                let columns = self
                    .schema
                    .fields()
                    .iter()
                    .map(|field| Ok(make_array(walk.array(field.data_type(), range.clone())?)));
                let columns = columns.collect::<Result<_, String>>()?;
                return RecordBatch::try_new(self.schema.clone(), columns).map(Some).map_err(|error| error.to_string());
            }
            let at = match &mut self.messages {
                Messages::At(places) => match places.pop_front() {
                    Some(at) => at,
                    None => return Ok(None),
                },
                Messages::From(at) => *at,
            };
            let Some(message) = self.bytes.message(at)? else { return Ok(None) };
            if let Messages::From(next) = &mut self.messages {
                *next = message.body + message.body_length;
            }
            self.batch = Some(Batch::of(&self.bytes, &message)?);
        }
    }
}

impl Iterator for Pieces {
    type Item = Result<RecordBatch, arrow::error::ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let piece = self.piece().transpose()?;
        self.failed = piece.is_err();
        Some(piece.map_err(arrow::error::ArrowError::IpcError))
    }
}

type Opened = Result<Option<(SchemaRef, Messages)>, String>;

fn open_file(bytes: &Bytes) -> Opened {
    let damaged = || "its footer is damaged".to_owned();
    let tail_at = bytes.length.checked_sub(10).ok_or_else(damaged)?;
    let tail = bytes.read(tail_at, 10)?;
    if tail[4..] != MAGIC[..] {
        return Err("it does not end like an Arrow file".to_owned());
    }
    let length = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
    let start = tail_at.checked_sub(length).ok_or_else(damaged)?;
    let footer = bytes.read(start, length)?;
    let footer = root_as_footer(&footer).map_err(|error| error.to_string())?;
    if footer.dictionaries().is_some_and(|dictionaries| !dictionaries.is_empty()) {
        return Ok(None);
    }
    let schema = convert::fb_to_schema(footer.schema().ok_or_else(damaged)?);
    let blocks = footer.recordBatches().into_iter().flatten();
    let places = blocks.map(|block| u64::try_from(block.offset()).map_err(|_| damaged())).collect::<Result<_, _>>()?;
    Ok(Some((SchemaRef::new(schema), Messages::At(places))))
}

fn open_stream(bytes: &Bytes) -> Opened {
    let Some(message) = bytes.message(0)? else { return Err("it has no schema".to_owned()) };
    let root = root_as_message(&message.head).map_err(|error| error.to_string())?;
    let schema = root.header_as_schema().ok_or_else(|| "it does not start with a schema".to_owned())?;
    let schema = convert::fb_to_schema(schema);
    Ok(Some((SchemaRef::new(schema), Messages::From(message.body + message.body_length))))
}

/// Whether a part of such an array can be read.
fn is_sliced(data_type: &DataType) -> bool {
    match data_type {
        DataType::Boolean
        | DataType::Utf8
        | DataType::Binary
        | DataType::LargeUtf8
        | DataType::LargeBinary
        | DataType::FixedSizeBinary(_) => true,
        DataType::List(item) | DataType::LargeList(item) | DataType::Map(item, _) => is_sliced(item.data_type()),
        DataType::Struct(fields) => fields.iter().all(|field| is_sliced(field.data_type())),
        other => other.primitive_width().is_some(),
    }
}

impl Bytes {
    /// Bytes of the file, all of them.
    fn read(&self, start: u64, length: u64) -> Result<Buffer, String> {
        if start.checked_add(length).is_none_or(|end| end > self.length) {
            return Err(format!("it ends before byte {start} and {length} more"));
        }
        let mut buffer = MutableBuffer::from_len_zeroed(length as usize);
        self.file.read_exact_at(buffer.as_slice_mut(), start).map_err(|error| error.to_string())?;
        self.bytes_read.fetch_add(length, Ordering::Relaxed);
        Ok(buffer.into())
    }

    /// The message at a place; none at the end.
    fn message(&self, at: u64) -> Result<Option<Message>, String> {
        if at == self.length {
            return Ok(None);
        }
        let start = self.read(at, 8)?;
        if start[..4] != CONTINUATION {
            return Err(format!("there is no message at byte {at}"));
        }
        let length = u64::from(u32::from_le_bytes([start[4], start[5], start[6], start[7]]));
        if length == 0 {
            return Ok(None);
        }
        if length > MAX_MESSAGE_BYTES {
            return Err(format!("the message at byte {at} is too long"));
        }
        let head = self.read(at + 8, length)?.to_vec();
        let root = root_as_message(&head).map_err(|error| error.to_string())?;
        let body_length = u64::try_from(root.bodyLength()).map_err(|error| error.to_string())?;
        let body = at + 8 + length;
        if body.checked_add(body_length).is_none_or(|end| end > self.length) {
            return Err(format!("it ends inside of the message at byte {at}"));
        }
        Ok(Some(Message { head, body, body_length }))
    }
}

impl Batch {
    fn of(bytes: &Bytes, message: &Message) -> Result<Self, String> {
        let root = root_as_message(&message.head).map_err(|error| error.to_string())?;
        if root.header_type() != MessageHeader::RecordBatch {
            return Err("it has a message that is no batch".to_owned());
        }
        let batch = root.header_as_record_batch().ok_or_else(|| "it has a batch without a description".to_owned())?;
        let codec = batch.compression().map(|compression| compression.codec());
        let count = |value: i64| usize::try_from(value).map_err(|_| "it has a negative length".to_owned());
        let rows = count(batch.length())?;
        let nodes = batch.nodes().into_iter().flatten();
        let nodes = nodes.map(|node| Ok((count(node.length())?, count(node.null_count())?)));
        let buffers = batch.buffers().into_iter().flatten().map(|buffer| {
            let (offset, length) = (count(buffer.offset())? as u64, count(buffer.length())? as u64);
            if offset.checked_add(length).is_none_or(|end| end > message.body_length) {
                return Err("it has a buffer outside of its batch".to_owned());
            }
            Held::of(bytes, codec, message.body + offset, length)
        });
        let buffers = buffers.collect::<Result<Vec<_>, String>>()?;
        let total = buffers.iter().map(Held::length).fold(0, u64::saturating_add);
        let row_bytes = (total / rows.max(1) as u64).max(1);
        Ok(Self {
            rows,
            next: 0,
            step: (CHUNK_BYTES / row_bytes).clamp(1, CHUNK_ROWS as u64) as usize,
            nodes: nodes.collect::<Result<_, String>>()?,
            buffers,
        })
    }
}

impl Held {
    fn of(bytes: &Bytes, codec: Option<CompressionType>, start: u64, length: u64) -> Result<Self, String> {
        let Some(codec) = codec.filter(|_| length > 0) else { return Ok(Self::Plain(start, length)) };
        let packed = length.checked_sub(LENGTH_BYTES).ok_or("it has a compressed buffer that is too short")?;
        let told = bytes.read(start, LENGTH_BYTES)?;
        let told = i64::from_le_bytes(told[..].try_into().map_err(|_| "it ends too early".to_owned())?);
        match u64::try_from(told) {
            Ok(unpacked) => {
                let section = (start + LENGTH_BYTES, start + length);
                Ok(Self::Packed(Packed::new(codec, (&bytes.file, &bytes.bytes_read), section, unpacked)?))
            }
            // It did not become shorter by compressing.
            Err(_) if told == -1 => Ok(Self::Plain(start + LENGTH_BYTES, packed)),
            Err(_) => Err("it has a negative length".to_owned()),
        }
    }

    fn length(&self) -> u64 {
        match self {
            Self::Plain(_, length) => *length,
            Self::Packed(packed) => packed.length(),
        }
    }
}

/// Goes over the arrays of a batch in the order in which they are described.
struct Walk<'a> {
    bytes: &'a Bytes,
    batch: &'a mut Batch,
    node: usize,
    buffer: usize,
}

impl Walk<'_> {
    /// Some values of the next array.
    fn array(&mut self, data_type: &DataType, range: Range<usize>) -> Result<ArrayData, String> {
        let node = self.batch.nodes.get(self.node).copied();
        self.node += 1;
        let (length, null_count) = node.ok_or("it has too few arrays")?;
        if range.end > length {
            return Err("it has an array that is too short".to_owned());
        }
        let validity = self.buffer()?;
        let nulls = if null_count == 0 { None } else { Some(NullBuffer::new(self.bits(validity, &range)?)) };
        let mut builder = ArrayData::builder(data_type.clone()).len(range.len()).nulls(nulls);
        match data_type {
            DataType::Boolean => {
                let values = self.buffer()?;
                builder = builder.add_buffer(self.bits(values, &range)?.into_inner());
            }
            DataType::Utf8 | DataType::Binary => {
                let (offsets, inside) = self.offsets::<4>(&range)?;
                let values = self.buffer()?;
                builder = builder.add_buffer(offsets).add_buffer(self.part(values, inside.start, inside.len())?);
            }
            DataType::LargeUtf8 | DataType::LargeBinary => {
                let (offsets, inside) = self.offsets::<8>(&range)?;
                let values = self.buffer()?;
                builder = builder.add_buffer(offsets).add_buffer(self.part(values, inside.start, inside.len())?);
            }
            DataType::List(item) | DataType::Map(item, _) => {
                let (offsets, inside) = self.offsets::<4>(&range)?;
                builder = builder.add_buffer(offsets).add_child_data(self.array(item.data_type(), inside)?);
            }
            DataType::LargeList(item) => {
                let (offsets, inside) = self.offsets::<8>(&range)?;
                builder = builder.add_buffer(offsets).add_child_data(self.array(item.data_type(), inside)?);
            }
            DataType::Struct(fields) => {
                for field in fields {
                    builder = builder.add_child_data(self.array(field.data_type(), range.clone())?);
                }
            }
            other => {
                let width = match other {
                    DataType::FixedSizeBinary(width) => usize::try_from(*width).ok(),
                    other => other.primitive_width(),
                };
                let width = width.ok_or_else(|| format!("it has a column of type {other}"))?;
                let values = self.buffer()?;
                builder = builder.add_buffer(self.part(values, range.start * width, range.len() * width)?);
            }
        }
        builder.build().map_err(|error| error.to_string())
    }

    /// The place of the next buffer.
    fn buffer(&mut self) -> Result<usize, String> {
        let place = self.buffer;
        self.buffer += 1;
        if place < self.batch.buffers.len() { Ok(place) } else { Err("it has too few buffers".to_owned()) }
    }

    fn part(&mut self, buffer: usize, start: usize, length: usize) -> Result<Buffer, String> {
        let (start, length) = (start as u64, length as u64);
        if length == 0 {
            return Ok(MutableBuffer::new(0).into());
        }
        let held = &mut self.batch.buffers[buffer];
        if start.checked_add(length).is_none_or(|end| end > held.length()) {
            return Err("it has a buffer that is too short".to_owned());
        }
        match held {
            Held::Plain(first, _) => self.bytes.read(*first + start, length),
            Held::Packed(packed) => packed.part(start, length),
        }
    }

    /// Bits, from the first bit of the result on.
    fn bits(&mut self, buffer: usize, range: &Range<usize>) -> Result<BooleanBuffer, String> {
        let (first, last) = (range.start / 8, range.end.div_ceil(8));
        let bytes = self.part(buffer, first, last.saturating_sub(first))?;
        let bits = BooleanBuffer::new(bytes, range.start % 8, range.len());
        Ok(BooleanBuffer::new(bits.sliced(), 0, range.len()))
    }

    /// Offsets of `W` bytes, moved so that they start at 0, and what they enclose.
    fn offsets<const W: usize>(&mut self, range: &Range<usize>) -> Result<(Buffer, Range<usize>), String> {
        let buffer = self.buffer()?;
        if range.is_empty() {
            return Ok((MutableBuffer::from_len_zeroed(W).into(), 0..0));
        }
        let bytes = self.part(buffer, range.start * W, (range.len() + 1) * W)?;
        let value = |bytes: &[u8]| {
            let mut wide = [0; 8];
            wide[..W].copy_from_slice(bytes);
            u64::from_le_bytes(wide)
        };
        let (first, last) = (value(&bytes[..W]), value(&bytes[bytes.len() - W..]));
        let inside = usize::try_from(first).ok().zip(usize::try_from(last).ok()).filter(|(a, b)| a <= b);
        let (start, end) = inside.ok_or("it has offsets that fall")?;
        let mut moved = MutableBuffer::with_capacity(bytes.len());
        for offset in bytes.chunks_exact(W) {
            // What falls below the first becomes huge, and is refused when the array is made.
            moved.extend_from_slice(&value(offset).wrapping_sub(first).to_le_bytes()[..W]);
        }
        Ok((moved.into(), start..end))
    }
}

//! Comma-separated values with a header.

use std::io::BufReader;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray as _, BinaryArray, RecordBatch, StringArray};
use arrow::csv::ReaderBuilder;
use arrow::csv::reader::Decoder;
use arrow::datatypes::{DataType, Field, Schema as ArrowSchema};

use super::super::conform;
use super::super::layout::{ENCODING_KEY, Layout};
use super::check::Checker;
use super::lines::append_until_newline;
use super::source::{CHUNK_BYTES, Counted, OpenError, ReadRows, Refused, Rows};
use crate::schema::Encoding;

/// Bytes and records that are parsed at a time.
const BATCH_BYTES: usize = 4 << 20;
const BATCH_RECORDS: usize = 16 << 10;

const _: () = assert!((BATCH_BYTES as u64) < CHUNK_BYTES, "a batch is a chunk");

pub(super) fn open(file: Counted, layout: &Layout) -> Result<Box<dyn ReadRows>, OpenError> {
    let mut input = BufReader::with_capacity(1 << 20, file);
    let mut header = Vec::new();
    read_record(&mut input, &mut header).map_err(OpenError::Damaged)?;
    let names = header_names(&header)?;
    let checker = Checker::new(layout, &names)?;
    let nested =
        |name: &&String| layout.place(name).is_some_and(|place| layout.arrow().field(place).data_type().is_nested());
    if let Some(name) = names.iter().find(nested) {
        let why = format!("the column {name:?} is nested, which csv cannot be; use ndjson, parquet or arrow");
        return Err(OpenError::Columns(why));
    }
    let fields: Vec<Field> =
        names.iter().filter_map(|name| Some(layout.arrow().field(layout.place(name)?).clone())).collect();
    let text =
        ArrowSchema::new(fields.iter().map(|field| Field::new(field.name(), DataType::Utf8, true)).collect::<Vec<_>>());
    // One more, so that it never stops inside of what it is given.
    let decoder = ReaderBuilder::new(Arc::new(text)).with_batch_size(BATCH_RECORDS + 1).build_decoder();
    Ok(Box::new(Csv { input, decoder, fields, checker, records: Vec::new() }))
}

struct Csv {
    input: BufReader<Counted>,
    decoder: Decoder,
    /// The columns of the source, as the layout has them.
    fields: Vec<Field>,
    checker: Checker,
    records: Vec<u8>,
}

impl ReadRows for Csv {
    fn next(&mut self) -> Rows {
        self.records.clear();
        let mut count = 0;
        while self.records.len() < BATCH_BYTES && count < BATCH_RECORDS {
            let before = self.records.len();
            let more =
                read_record(&mut self.input, &mut self.records).map_err(|why| Refused::Row(count as u64, why))?;
            if !more {
                break;
            }
            // An empty line is no record.
            if self.records[before..].trim_ascii().is_empty() {
                self.records.truncate(before);
                continue;
            }
            count += 1;
        }
        if count == 0 {
            return Ok(None);
        }
        if self.records.last() != Some(&b'\n') {
            self.records.push(b'\n');
        }
        let batch = self.decode().map_err(Refused::Damaged)?;
        let typed = self.typed(&batch)?;
        Ok(Some((self.checker.columns(&typed)?, typed.num_rows())))
    }
}

impl Csv {
    fn decode(&mut self) -> Result<RecordBatch, String> {
        let mut rest = &self.records[..];
        while !rest.is_empty() {
            match self.decoder.decode(rest).map_err(|error| error.to_string())? {
                0 => return Err("its records cannot be told apart".to_owned()),
                length => rest = &rest[length..],
            }
        }
        match self.decoder.flush() {
            Ok(Some(batch)) => Ok(batch),
            Ok(None) => Err("it has records without cells".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Texts become values, except where the type is found by the checker.
    fn typed(&self, batch: &RecordBatch) -> Result<RecordBatch, Refused> {
        let mut fields = Vec::with_capacity(self.fields.len());
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.fields.len());
        for (field, column) in self.fields.iter().zip(batch.columns()) {
            let texts = column.as_string::<i32>();
            let column = match field.data_type() {
                DataType::Utf8 if !field.is_nullable() => required_texts(texts),
                DataType::Binary | DataType::FixedSizeBinary(_) => decoded(texts, field)?,
                _ => column.clone(),
            };
            fields.push(Field::new(field.name(), column.data_type().clone(), true));
            columns.push(column);
        }
        RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), columns)
            .map_err(|error| Refused::Damaged(error.to_string()))
    }
}

/// An empty cell is an empty text where null may not be.
fn required_texts(texts: &StringArray) -> ArrayRef {
    Arc::new(StringArray::new(texts.offsets().clone(), texts.values().clone(), None))
}

/// Bytes, which are written as they are published.
fn decoded(texts: &StringArray, field: &Field) -> Result<ArrayRef, Refused> {
    let encoding = match field.metadata().get(ENCODING_KEY).map(String::as_str) {
        Some("base16") => Encoding::Base16,
        _ => Encoding::Base64,
    };
    let refuse = |row: usize, why: String| Refused::Row(row as u64, format!("the column {:?} {why}", field.name()));
    let mut values = Vec::with_capacity(texts.len());
    for (row, text) in texts.iter().enumerate() {
        let Some(text) = text.or_else(|| (!field.is_nullable()).then_some("")) else {
            values.push(None);
            continue;
        };
        let mut bytes = Vec::new();
        if encoding.decode(text, &mut bytes).is_none() {
            return Err(refuse(row, format!("is not {}", encoding.name())));
        }
        if let DataType::FixedSizeBinary(width) = field.data_type()
            && bytes.len() != *width as usize
        {
            return Err(refuse(row, format!("has {} instead of {width} bytes", bytes.len())));
        }
        values.push(Some(bytes));
    }
    let values: ArrayRef = Arc::new(BinaryArray::from_iter(values));
    conform::array(&values, field).map_err(Refused::Damaged)
}

/// Appends one record with its line feed, which may have line feeds between quotes; false at the end.
fn read_record(input: &mut BufReader<Counted>, record: &mut Vec<u8>) -> Result<bool, String> {
    let start = record.len();
    let mut quotes = 0;
    loop {
        let before = record.len();
        if !append_until_newline(input, record)? {
            return if quotes % 2 == 0 { Ok(record.len() > start) } else { Err("a quote is never closed".to_owned()) };
        }
        quotes += memchr::memchr_iter(b'"', &record[before..]).count();
        if quotes % 2 == 0 {
            return Ok(true);
        }
        if record.len() - start > super::lines::MAX_LINE_BYTES {
            return Err("a quote is not closed for many lines".to_owned());
        }
    }
}

/// The names in the header.
fn header_names(header: &[u8]) -> Result<Vec<String>, OpenError> {
    let header = header.strip_prefix(b"\xef\xbb\xbf").unwrap_or(header);
    if header.trim_ascii().is_empty() {
        return Err(OpenError::Damaged("it has no header".to_owned()));
    }
    // The parser would take what follows for rows, but they are in what is read as the header, and would be lost.
    if ends_inside(header) {
        let why = "its lines end in a carriage return alone; end them in a line feed, with or without one".to_owned();
        return Err(OpenError::Damaged(why));
    }
    let (schema, _) = arrow::csv::reader::Format::default()
        .with_header(true)
        .infer_schema(header, Some(0))
        .map_err(OpenError::damaged)?;
    Ok(schema.fields().iter().map(|field| field.name().clone()).collect())
}

/// Whether a carriage return outside of quotes has anything behind it but the line feed of its line.
fn ends_inside(header: &[u8]) -> bool {
    let mut quoted = false;
    header.trim_ascii_end().iter().any(|byte| {
        quoted ^= *byte == b'"';
        *byte == b'\r' && !quoted
    })
}

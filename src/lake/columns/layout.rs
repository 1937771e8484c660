//! The columns of a log's files and table (docs/storage.md): which there are, their types, their field ids.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, SchemaRef};

use super::error::ColumnsError;
use crate::schema::{Column, ColumnKind, Schema};

/// The first column of every file: the row's offset.
pub const OFFSET_COLUMN: &str = "litelink_offset";

/// The last column of every file: when the row was taken, in microseconds.
pub const STAMP_COLUMN: &str = "streamcast_ts";

/// The field id of [`OFFSET_COLUMN`].
pub const OFFSET_ID: i32 = 1;

/// The key under which a field's metadata keeps how its bytes are written in JSON.
pub const ENCODING_KEY: &str = "streamcast.encoding";

/// The deepest nesting of a column. A level takes three in the JSON of a table, and its readers stop at 128.
pub const MAX_TABLE_NESTING: usize = 36;

/// The widest values of a fixed width, in bytes: nulls take as much.
const MAX_WIDTH_BYTES: u32 = 1 << 20;

const FIELD_ID_KEY: &str = parquet::arrow::PARQUET_FIELD_ID_META_KEY;

/// The columns of a log: offset, declared columns, stamp, each node with its field id.
///
/// Field ids count all fields of one struct before they go into any of them: the top level has 1 to n.
#[derive(Debug, Clone)]
pub struct Layout {
    schema: Arc<Schema>,
    arrow: SchemaRef,
}

impl Layout {
    /// The layout of rows with `schema`.
    ///
    /// # Errors
    /// [`ColumnsError::Layout`] if a column is nested deeper than [`MAX_TABLE_NESTING`], has a reserved name, has bytes of
    /// a width that no file has, or has a name that is another's path, such as `a.b` beside a struct `a` with a field `b`.
    pub fn new(schema: &Schema) -> Result<Self, ColumnsError> {
        for column in schema.columns() {
            if [OFFSET_COLUMN, STAMP_COLUMN].contains(&column.name.as_str()) {
                return Err(ColumnsError::Layout(format!("the column name {:?} is taken by the log", column.name)));
            }
            if depth(&column.kind) > MAX_TABLE_NESTING {
                return Err(ColumnsError::Layout(format!(
                    "the column {:?} is nested more than {MAX_TABLE_NESTING} levels deep",
                    column.name
                )));
            }
            if let Some(width) = odd_width(&column.kind) {
                return Err(ColumnsError::Layout(format!(
                    "the column {:?} has values of {width} bytes; up to {MAX_WIDTH_BYTES} are possible",
                    column.name
                )));
            }
        }
        let mut fields = vec![Field::new(OFFSET_COLUMN, DataType::Int64, false)];
        fields.extend(schema.columns().iter().map(plain_field));
        fields.push(Field::new(STAMP_COLUMN, DataType::Int64, false));
        let mut last = 0;
        let fields = number(&fields.into_iter().map(Arc::new).collect(), &mut last);
        let arrow = Arc::new(arrow::datatypes::Schema::new(fields));
        let layout = Self { schema: Arc::new(schema.clone()), arrow };
        // What no table can have is told now, and not when there are rows.
        layout.iceberg_schema()?;
        Ok(layout)
    }

    /// The declared columns.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// All columns as Arrow has them, with a `PARQUET:field_id` on every node.
    #[must_use]
    pub fn arrow(&self) -> &SchemaRef {
        &self.arrow
    }

    /// The column called `name`: its place among all columns, 0 being the offset.
    #[must_use]
    pub fn place(&self, name: &str) -> Option<usize> {
        self.arrow.index_of(name).ok()
    }

    /// The place of the stamp among all columns.
    #[must_use]
    pub fn stamp_place(&self) -> usize {
        self.arrow.fields().len() - 1
    }

    /// The field id of the column at `place`; top-level ids count from 1.
    #[must_use]
    pub fn field_id(place: usize) -> i32 {
        place as i32 + 1
    }

    /// The places of `sort_by` among all columns.
    ///
    /// # Errors
    /// [`ColumnsError::Layout`] for a name that is no column, and for a nested column.
    pub fn sort_places(&self, sort_by: &[String]) -> Result<Vec<usize>, ColumnsError> {
        sort_by
            .iter()
            .map(|name| match self.place(name) {
                Some(place) if !self.arrow.field(place).data_type().is_nested() => Ok(place),
                Some(_) => Err(ColumnsError::Layout(format!("it cannot be sorted by {name:?}, which is nested"))),
                None => Err(ColumnsError::Layout(format!("it cannot be sorted by {name:?}, which is no column"))),
            })
            .collect()
    }

    /// The columns that are described outside of the files: without offset, and without field ids.
    #[must_use]
    pub fn application_fields(&self) -> Vec<Field> {
        let mut fields: Vec<Field> = self.schema.columns().iter().map(plain_field).collect();
        fields.push(Field::new(STAMP_COLUMN, DataType::Int64, false));
        fields
    }

    /// A column that both layouts have with different types, and how: a name keeps its type for the life of a stream,
    /// only whether it may be null can change.
    #[must_use]
    pub fn conflict(&self, other: &Layout) -> Option<String> {
        let types: HashMap<&str, DataType> = self.arrow.fields().iter().map(|f| (f.name().as_str(), bare(f))).collect();
        other.arrow.fields().iter().find_map(|field| {
            let (before, after) = (types.get(field.name().as_str())?, bare(field));
            (*before != after).then(|| {
                format!(
                    "the column {:?} is {before} and cannot become {after}; give the new one another name",
                    field.name()
                )
            })
        })
    }
}

/// Layouts are the same if their columns are: names, order, types, nullability and encodings.
impl PartialEq for Layout {
    fn eq(&self, other: &Self) -> bool {
        self.arrow == other.arrow
    }
}

/// A field's type without metadata.
fn bare(field: &Field) -> DataType {
    fn strip(field: &FieldRef) -> FieldRef {
        Arc::new(Field::new(field.name(), bare(field), field.is_nullable()))
    }
    match field.data_type() {
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(strip).collect()),
        DataType::List(item) => DataType::List(strip(item)),
        DataType::Map(entries, sorted) => DataType::Map(strip(entries), *sorted),
        other => other.clone(),
    }
}

fn depth(kind: &ColumnKind) -> usize {
    match kind {
        ColumnKind::Struct(fields) => 1 + fields.as_slice().iter().map(|column| depth(&column.kind)).max().unwrap_or(0),
        ColumnKind::Map(element) | ColumnKind::List(element) => 1 + depth(&element.kind),
        _ => 0,
    }
}

/// The width of bytes in a column that is none for a file.
fn odd_width(kind: &ColumnKind) -> Option<u32> {
    match kind {
        ColumnKind::Binary { width_bytes, .. } => width_bytes.filter(|width| *width > MAX_WIDTH_BYTES),
        ColumnKind::Struct(fields) => fields.as_slice().iter().find_map(|column| odd_width(&column.kind)),
        ColumnKind::Map(element) | ColumnKind::List(element) => odd_width(&element.kind),
        _ => None,
    }
}

/// A column without field ids.
fn plain_field(column: &Column) -> Field {
    element_field(&column.name, &column.kind, column.nullable)
}

fn element_field(name: &str, kind: &ColumnKind, nullable: bool) -> Field {
    let field = Field::new(name, data_type(kind), nullable);
    match kind {
        ColumnKind::Binary { encoding, .. } => {
            field.with_metadata(HashMap::from([(ENCODING_KEY.to_owned(), encoding.name().to_owned())]))
        }
        _ => field,
    }
}

fn data_type(kind: &ColumnKind) -> DataType {
    match kind {
        ColumnKind::Bool => DataType::Boolean,
        ColumnKind::Int32 => DataType::Int32,
        ColumnKind::Int64 => DataType::Int64,
        ColumnKind::Float32 => DataType::Float32,
        ColumnKind::Float64 => DataType::Float64,
        ColumnKind::String => DataType::Utf8,
        // No file has values of a fixed width of 0 bytes; they are bytes of any width there that happen to be empty.
        ColumnKind::Binary { width_bytes: None | Some(0), .. } => DataType::Binary,
        // The schema's widths are those of an `i32`.
        ColumnKind::Binary { width_bytes: Some(width), .. } => DataType::FixedSizeBinary(*width as i32),
        ColumnKind::Struct(fields) => DataType::Struct(fields.as_slice().iter().map(plain_field).collect()),
        ColumnKind::Map(values) => {
            let key = Field::new("key", DataType::Utf8, false);
            let value = element_field("value", &values.kind, values.nullable);
            let entries = DataType::Struct(Fields::from(vec![key, value]));
            DataType::Map(Arc::new(Field::new("entries", entries, false)), false)
        }
        ColumnKind::List(items) => DataType::List(Arc::new(element_field("item", &items.kind, items.nullable))),
    }
}

/// Gives field ids to all `fields`, then to what is inside of them.
fn number(fields: &Fields, last: &mut i32) -> Fields {
    let first = *last + 1;
    *last += fields.len() as i32;
    fields
        .iter()
        .zip(first..)
        .map(|(field, id)| identified(field, number_inside(field.data_type(), last), id))
        .collect()
}

fn number_inside(inside: &DataType, last: &mut i32) -> DataType {
    match inside {
        DataType::Struct(fields) => DataType::Struct(number(fields, last)),
        DataType::List(item) => {
            *last += 1;
            let id = *last;
            DataType::List(identified(item, number_inside(item.data_type(), last), id))
        }
        DataType::Map(entries, sorted) => match entries.data_type() {
            DataType::Struct(fields) => {
                let entries = entries.as_ref().clone().with_data_type(DataType::Struct(number(fields, last)));
                DataType::Map(Arc::new(entries), *sorted)
            }
            _ => inside.clone(),
        },
        other => other.clone(),
    }
}

fn identified(field: &FieldRef, data_type: DataType, id: i32) -> FieldRef {
    let mut metadata = field.metadata().clone();
    metadata.insert(FIELD_ID_KEY.to_owned(), id.to_string());
    Arc::new(field.as_ref().clone().with_data_type(data_type).with_metadata(metadata))
}

/// The field id of a node of a layout.
#[must_use]
pub fn field_id(field: &Field) -> Option<i32> {
    field.metadata().get(FIELD_ID_KEY)?.parse().ok()
}

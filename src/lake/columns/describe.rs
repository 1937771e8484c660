//! A layout as the table's metadata has it (docs/storage.md): Iceberg's schema, its name mapping, and the exact Arrow
//! schema in a property of its own, for restoring.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema as ArrowSchema};
use arrow::ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions, write_message};
use arrow::ipc::{MetadataVersion, convert};
use iceberg::spec::{ListType, MapType, NestedField, NestedFieldRef, PrimitiveType, StructType, Type};
use serde_json::{Map, Value, json};

use super::error::ColumnsError;
use super::layout::{ENCODING_KEY, Layout, OFFSET_COLUMN, STAMP_COLUMN, field_id};
use crate::schema::Schema;

impl Layout {
    /// The table's schema, with id 0.
    ///
    /// # Errors
    /// [`ColumnsError::Layout`] if the library refuses it.
    pub fn iceberg_schema(&self) -> Result<iceberg::spec::Schema, ColumnsError> {
        let fields = self.arrow().fields().iter().map(|field| iceberg_field(field)).collect::<Result<Vec<_>, _>>()?;
        iceberg::spec::Schema::builder()
            .with_schema_id(0)
            .with_fields(fields)
            .build()
            .map_err(|error| ColumnsError::Layout(error.to_string()))
    }

    /// The property `schema.name-mapping.default`: JSON.
    #[must_use]
    pub fn name_mapping(&self) -> String {
        Value::from(self.arrow().fields().iter().map(|field| mapped(field, field.name())).collect::<Vec<_>>())
            .to_string()
    }

    /// The property `litelink.arrow_schema`: an Arrow IPC schema message, with its length in front, in hexadecimal
    /// digits. It has the declared columns and the stamp, and the encodings of binary columns.
    ///
    /// # Errors
    /// [`ColumnsError::Layout`] if the library refuses it.
    pub fn arrow_schema_hex(&self) -> Result<String, ColumnsError> {
        let refused = |error: arrow::error::ArrowError| ColumnsError::Layout(error.to_string());
        let schema = ArrowSchema::new(self.application_fields());
        let options = IpcWriteOptions::try_new(8, false, MetadataVersion::V5).map_err(refused)?;
        let mut tracker = DictionaryTracker::new(true);
        let message =
            IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(&schema, &mut tracker, &options);
        let mut out = Vec::new();
        write_message(&mut out, message, &options).map_err(refused)?;
        Ok(data_encoding::HEXLOWER.encode(&out))
    }

    /// The layout that the property `litelink.arrow_schema` describes.
    ///
    /// # Errors
    /// [`ColumnsError::Recorded`] if it is damaged, or describes what no stream has.
    pub fn from_arrow_schema_hex(hex: &str) -> Result<Self, ColumnsError> {
        let bytes = data_encoding::HEXLOWER_PERMISSIVE
            .decode(hex.trim().as_bytes())
            .map_err(|error| recorded(format!("the property litelink.arrow_schema is not hexadecimal: {error}")))?;
        let schema = super::guard::guarded(|| convert::try_schema_from_ipc_buffer(&bytes))
            .map_err(|why| recorded(format!("the property litelink.arrow_schema is damaged: {why}")))?;
        Self::from_arrow(schema.fields().iter().map(AsRef::as_ref))
    }

    /// The layout of a table that some other program has written: binary columns are taken for base64.
    ///
    /// # Errors
    /// [`ColumnsError::Recorded`] if it has columns that no stream has, or no offset.
    pub fn from_iceberg_schema(schema: &iceberg::spec::Schema) -> Result<Self, ColumnsError> {
        let arrow = iceberg::arrow::schema_to_arrow_schema(schema).map_err(|error| recorded(error.to_string()))?;
        if arrow.index_of(OFFSET_COLUMN).is_err() {
            return Err(recorded(format!("the table has no column {OFFSET_COLUMN:?}")));
        }
        Self::from_arrow(arrow.fields().iter().map(AsRef::as_ref))
    }

    /// The layout of a log as its stream's metadata document has it: its `schema` and `system_schema`.
    ///
    /// # Errors
    /// [`ColumnsError::Recorded`] if they describe no log of ours; one without stamps is none.
    pub fn from_document(schema: &Value, system_schema: &Value) -> Result<Self, ColumnsError> {
        if system_schema["properties"].get(STAMP_COLUMN).is_none() {
            return Err(recorded(format!("the log has no column {STAMP_COLUMN:?}; its rows were never stamped")));
        }
        let schema = Schema::compile(schema, true).map_err(|error| recorded(error.to_string()))?;
        Layout::new(&schema)
    }

    /// The layout of these columns; offset and stamp are left out if they are there.
    fn from_arrow<'a>(fields: impl Iterator<Item = &'a Field>) -> Result<Self, ColumnsError> {
        let declared = fields.filter(|field| ![OFFSET_COLUMN, STAMP_COLUMN].contains(&field.name().as_str()));
        let document = described_object(declared)?;
        let schema = Schema::compile(&document, true).map_err(|error| recorded(error.to_string()))?;
        Layout::new(&schema)
    }
}

fn recorded(why: String) -> ColumnsError {
    ColumnsError::Recorded(why)
}

fn iceberg_field(field: &Field) -> Result<NestedFieldRef, ColumnsError> {
    let id = field_id(field).unwrap_or_default();
    Ok(Arc::new(NestedField::new(id, field.name(), iceberg_type(field)?, !field.is_nullable())))
}

fn iceberg_type(field: &Field) -> Result<Type, ColumnsError> {
    let unknown = || ColumnsError::Layout(format!("{} is no type of a table", field.data_type()));
    Ok(match field.data_type() {
        DataType::Boolean => Type::Primitive(PrimitiveType::Boolean),
        DataType::Int32 => Type::Primitive(PrimitiveType::Int),
        DataType::Int64 => Type::Primitive(PrimitiveType::Long),
        DataType::Float32 => Type::Primitive(PrimitiveType::Float),
        DataType::Float64 => Type::Primitive(PrimitiveType::Double),
        DataType::Utf8 => Type::Primitive(PrimitiveType::String),
        DataType::Binary => Type::Primitive(PrimitiveType::Binary),
        DataType::FixedSizeBinary(width) => {
            Type::Primitive(PrimitiveType::Fixed(u64::try_from(*width).map_err(|_| unknown())?))
        }
        DataType::Struct(fields) => {
            Type::Struct(StructType::new(fields.iter().map(|field| iceberg_field(field)).collect::<Result<_, _>>()?))
        }
        DataType::List(item) => {
            let id = field_id(item).unwrap_or_default();
            let element = NestedField::list_element(id, iceberg_type(item)?, !item.is_nullable());
            Type::List(ListType::new(Arc::new(element)))
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(parts) if parts.len() == 2 => {
                let id = |part: &Field| field_id(part).unwrap_or_default();
                let key = NestedField::map_key_element(id(&parts[0]), iceberg_type(&parts[0])?);
                let (value, required) = (iceberg_type(&parts[1])?, !parts[1].is_nullable());
                let value = NestedField::map_value_element(id(&parts[1]), value, required);
                Type::Map(MapType::new(Arc::new(key), Arc::new(value)))
            }
            _ => return Err(unknown()),
        },
        _ => return Err(unknown()),
    })
}

/// One entry of the name mapping. A list's child is called `element` there, whatever Arrow calls it.
fn mapped(field: &Field, name: &str) -> Value {
    let mut entry = json!({"names": [name], "field-id": field_id(field).unwrap_or_default()});
    let inside: Vec<Value> = match field.data_type() {
        DataType::Struct(fields) => fields.iter().map(|field| mapped(field, field.name())).collect(),
        DataType::List(item) => vec![mapped(item, "element")],
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(parts) => {
                parts.iter().zip(["key", "value"]).map(|(part, name)| mapped(part, name)).collect()
            }
            _ => Vec::new(),
        },
        _ => Vec::new(),
    };
    if !inside.is_empty() {
        entry["fields"] = inside.into();
    }
    entry
}

/// The JSON Schema of columns or of a struct's fields.
fn described_object<'a>(fields: impl Iterator<Item = &'a Field>) -> Result<Value, ColumnsError> {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for field in fields {
        properties.insert(field.name().clone(), described(field)?);
        if !field.is_nullable() {
            required.push(Value::from(field.name().as_str()));
        }
    }
    Ok(json!({"type": "object", "properties": properties, "required": required}))
}

fn described(field: &Field) -> Result<Value, ColumnsError> {
    let bytes = || json!({"type": "string", "contentEncoding": field.metadata().get(ENCODING_KEY).map_or("base64", |word| word)});
    let mut spec = match field.data_type() {
        DataType::Boolean => json!({"type": "boolean"}),
        DataType::Int32 => json!({"type": "integer", "format": "int32"}),
        DataType::Int64 => json!({"type": "integer", "format": "int64"}),
        DataType::Float32 => json!({"type": "number", "format": "float"}),
        DataType::Float64 => json!({"type": "number", "format": "double"}),
        DataType::Utf8 | DataType::LargeUtf8 => json!({"type": "string"}),
        DataType::Binary | DataType::LargeBinary => bytes(),
        DataType::FixedSizeBinary(width) => {
            let mut spec = bytes();
            spec["format"] = format!("bytes{width}").into();
            spec
        }
        DataType::Struct(fields) => described_object(fields.iter().map(AsRef::as_ref))?,
        DataType::List(item) | DataType::LargeList(item) => json!({"type": "array", "items": described(item)?}),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(parts) if parts.len() == 2 && parts[0].data_type() == &DataType::Utf8 => {
                json!({"type": "object", "additionalProperties": described(&parts[1])?})
            }
            _ => return Err(recorded(format!("the column {:?} is a map whose keys are not strings", field.name()))),
        },
        other => {
            return Err(recorded(format!("the column {:?} has the type {other}, which no stream has", field.name())));
        }
    };
    if field.is_nullable() {
        let word = spec["type"].take();
        spec["type"] = json!([word, "null"]);
    }
    Ok(spec)
}

//! What a new table is made of.

use std::collections::{BTreeMap, HashMap};

use iceberg::spec::{
    FormatVersion, NestedField, NullOrder, PartitionSpec, Schema, SortDirection, SortField, SortOrder, TableMetadata,
    TableMetadataBuilder, Transform, Type,
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::error::TableError;

/// The name of the offsets' column, the first of every table.
pub(super) const OFFSET_COLUMN: &str = "litelink_offset";
/// The name of the stamps' column, the last of every table.
pub(super) const STAMP_COLUMN: &str = "streamcast_ts";

pub(super) const NAME_MAPPING: &str = "schema.name-mapping.default";
pub(super) const SORT_BY: &str = "litelink.sort_by";
pub(super) const ARROW_SCHEMA: &str = "litelink.arrow_schema";
/// The newest versions and snapshots that a version names. Older ones, as long as they are kept, are found by way of the
/// oldest version that it names: so versions do not grow with how many there are.
pub(super) const RECENT: usize = 64;

/// Old versions are deleted by age, by [`super::Table::expire`], and never by another program's count.
pub(super) const KEEP_VERSIONS: &[(&str, &str)] =
    &[("write.metadata.delete-after-commit.enabled", "false"), ("write.metadata.previous-versions-max", "64")];

/// A table that is to be created.
#[derive(Debug, Clone)]
pub struct TableSpec {
    /// The absolute URI of its directory, raw: `<published>/<log>`.
    pub location: String,
    /// Its columns, numbered: all fields of a level in order before those below them, from 1. The first is
    /// `litelink_offset`, the last `streamcast_ts`, both required longs.
    pub schema: Schema,
    /// The columns that rows are sorted by within a file.
    pub sort_by: Vec<String>,
    /// The Arrow schema of the columns without the offset, as an IPC message in hexadecimal digits.
    pub arrow_schema: Option<String>,
    /// Further properties.
    pub properties: BTreeMap<String, String>,
}

impl TableSpec {
    /// The first version of the table's metadata.
    pub(super) fn metadata(&self) -> Result<TableMetadata, TableError> {
        let fail = |why: String| TableError::Spec { location: self.location.clone(), why };
        let format = |error: iceberg::Error| fail(error.to_string());
        self.check_ends().map_err(|why| fail(why.to_owned()))?;
        let mut order = SortOrder::builder();
        for column in &self.sort_by {
            let field = self.schema.field_by_name(column);
            let field = field.ok_or_else(|| fail(format!("it has no column {column:?} to sort by")))?;
            order.with_sort_field(SortField {
                source_id: field.id,
                transform: Transform::Identity,
                direction: SortDirection::Ascending,
                null_order: NullOrder::Last,
            });
        }
        let order = order.build(&self.schema).map_err(format)?;
        let builder = TableMetadataBuilder::new(
            self.schema.clone(),
            PartitionSpec::unpartition_spec(),
            SortOrder::unsorted_order(),
            self.location.clone(),
            FormatVersion::V2,
            self.all_properties(),
        );
        let mut builder = builder.map_err(format)?.assign_uuid(Uuid::new_v4());
        if !self.sort_by.is_empty() {
            builder =
                builder.add_sort_order(order).and_then(|builder| builder.set_default_sort_order(-1)).map_err(format)?;
        }
        let metadata = builder.build().map_err(format)?.metadata;
        // The builder numbers fields itself. Files have the numbers of the description, and both must be the same.
        if metadata.current_schema().as_struct() != self.schema.as_struct() {
            return Err(fail("its fields are not numbered level by level from 1".to_owned()));
        }
        Ok(metadata)
    }

    fn check_ends(&self) -> Result<(), &'static str> {
        let long = Type::Primitive(iceberg::spec::PrimitiveType::Long);
        let is = |field: Option<&std::sync::Arc<NestedField>>, name: &str| {
            field.is_some_and(|field| field.name == name && field.required && *field.field_type == long)
        };
        let fields = self.schema.as_struct().fields();
        if !is(fields.first(), OFFSET_COLUMN) {
            return Err("its first column is not litelink_offset, a required long");
        }
        if !is(fields.last(), STAMP_COLUMN) {
            return Err("its last column is not streamcast_ts, a required long");
        }
        Ok(())
    }

    fn all_properties(&self) -> HashMap<String, String> {
        let mut all: HashMap<_, _> = self.properties.clone().into_iter().collect();
        all.extend(KEEP_VERSIONS.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        all.insert(NAME_MAPPING.to_owned(), name_mapping(&self.schema).to_string());
        all.insert(SORT_BY.to_owned(), json!(self.sort_by).to_string());
        all.extend(self.arrow_schema.clone().map(|schema| (ARROW_SCHEMA.to_owned(), schema)));
        all
    }
}

/// Iceberg's mapping of names to field ids, for readers of files that have none.
pub(super) fn name_mapping(schema: &Schema) -> Value {
    Value::Array(schema.as_struct().fields().iter().map(|field| mapped(&field.name, field)).collect())
}

fn mapped(name: &str, field: &NestedField) -> Value {
    let below: Vec<Value> = match &*field.field_type {
        Type::Primitive(_) => Vec::new(),
        Type::Struct(inner) => inner.fields().iter().map(|field| mapped(&field.name, field)).collect(),
        Type::List(list) => vec![mapped("element", &list.element_field)],
        Type::Map(map) => vec![mapped("key", &map.key_field), mapped("value", &map.value_field)],
    };
    let mut this = json!({"names": [name], "field-id": field.id});
    if !below.is_empty() {
        this["fields"] = Value::Array(below);
    }
    this
}

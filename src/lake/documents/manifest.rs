//! What a manifest says: for each finished log, how many rows it has and between which values its columns lie, so that
//! readers can tell a table that is short and skip logs that a filter excludes (docs/storage.md).

use serde_json::Value as Json;

use crate::lake::DataFile;

/// A value of a column that readers can exclude logs by.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub enum Bound {
    /// Of a column `integer` with `format` `int32`.
    Int32(i32),
    /// Of a column `integer`.
    Int64(i64),
    /// Of a column `number` with `format` `float`; finite.
    Float32(f32),
    /// Of a column `number`; finite.
    Float64(f64),
    /// Of a column `boolean`.
    Bool(bool),
}

/// Which of them a column has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoundKind {
    /// 32-bit integers.
    Int32,
    /// 64-bit integers.
    Int64,
    /// 32-bit floats.
    Float32,
    /// Doubles.
    Float64,
    /// Booleans.
    Bool,
}

/// What is known of one column of one log. A column of which nothing certain is known is left out.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnStatistics {
    /// The column's name.
    pub name: String,
    /// What its values are.
    pub kind: BoundKind,
    /// The lowest and the highest value; `None` if there are nulls only, or no rows.
    pub range: Option<(Bound, Bound)>,
    /// How many nulls it has.
    pub nulls: i64,
    /// How many values it has, nulls included.
    pub values: i64,
}

/// One row of a manifest.
#[derive(Debug, Clone, PartialEq)]
pub struct LogStatistics {
    /// The log's name.
    pub log: String,
    /// Its first offset.
    pub start_offset: i64,
    /// The offset after its last row; `None` if it is open.
    pub end_offset: Option<i64>,
    /// Its rows, exactly; `None` if unknown, and then readers do not check.
    pub record_count: Option<i64>,
    /// Its columns.
    pub columns: Vec<ColumnStatistics>,
}

/// A column as a table has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableColumn {
    /// Its name.
    pub name: String,
    /// Its field id in the table.
    pub field_id: i32,
    /// What its values are.
    pub kind: BoundKind,
}

impl BoundKind {
    /// The kind of a column of a canonical schema (wire.md section 12.4); `None` if readers cannot exclude by it.
    #[must_use]
    pub fn of(property: &Json) -> Option<Self> {
        let name = match &property["type"] {
            Json::String(name) => name.as_str(),
            Json::Array(names) => names.iter().filter_map(Json::as_str).find(|name| *name != "null")?,
            _ => return None,
        };
        match (name, property["format"].as_str()) {
            ("integer", Some("int32")) => Some(Self::Int32),
            ("integer", _) => Some(Self::Int64),
            ("number", Some("float")) => Some(Self::Float32),
            ("number", _) => Some(Self::Float64),
            ("boolean", _) => Some(Self::Bool),
            _ => None,
        }
    }

    /// Reads Iceberg's single-value form.
    fn bound(self, bytes: &[u8]) -> Option<Bound> {
        Some(match self {
            Self::Int32 => Bound::Int32(i32::from_le_bytes(bytes.try_into().ok()?)),
            // A table may have been widened after the file was written.
            Self::Int64 => Bound::Int64(match bytes.len() {
                4 => i64::from(i32::from_le_bytes(bytes.try_into().ok()?)),
                _ => i64::from_le_bytes(bytes.try_into().ok()?),
            }),
            Self::Float32 => Bound::Float32(f32::from_le_bytes(bytes.try_into().ok()?)),
            Self::Float64 => Bound::Float64(f64::from_le_bytes(bytes.try_into().ok()?)),
            Self::Bool => Bound::Bool(*bytes.first()? != 0),
        })
        .filter(|bound| !matches!(bound, Bound::Float32(value) if value.is_nan()))
        .filter(|bound| !matches!(bound, Bound::Float64(value) if value.is_nan()))
    }
}

impl LogStatistics {
    /// The statistics of a log whose files are `files`, all of them.
    #[must_use]
    pub fn of_files(log: &str, offsets: (i64, i64), columns: &[TableColumn], files: &[DataFile]) -> Self {
        let rows: u64 = files.iter().map(|file| file.rows).sum();
        Self {
            log: log.to_owned(),
            start_offset: offsets.0,
            end_offset: Some(offsets.1),
            record_count: i64::try_from(rows).ok(),
            columns: columns.iter().filter_map(|column| column_statistics(column, files)).collect(),
        }
    }
}

fn column_statistics(column: &TableColumn, files: &[DataFile]) -> Option<ColumnStatistics> {
    let mut range: Option<(Bound, Bound)> = None;
    let (mut nulls, mut values) = (0_u64, 0_u64);
    for file in files {
        let found = file.columns.iter().find(|found| found.field_id == column.field_id)?;
        nulls += found.nulls;
        values += found.values;
        if found.nulls == found.values {
            continue;
        }
        let low = column.kind.bound(found.lower.as_deref()?)?;
        let high = column.kind.bound(found.upper.as_deref()?)?;
        range = Some(match range {
            None => (low, high),
            Some((lowest, highest)) => {
                (if low < lowest { low } else { lowest }, if high > highest { high } else { highest })
            }
        });
    }
    let (nulls, values) = (i64::try_from(nulls).ok()?, i64::try_from(values).ok()?);
    Some(ColumnStatistics { name: column.name.clone(), kind: column.kind, range, nulls, values })
}

/// Puts a log's row in place of the one it had.
pub fn replace(rows: &mut Vec<LogStatistics>, row: LogStatistics) {
    rows.retain(|other| other.log != row.log);
    rows.push(row);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::lake::ColumnStats;

    fn file(rows: u64, columns: Vec<ColumnStats>) -> DataFile {
        DataFile {
            uri: "file:///x".to_owned(),
            start: 1,
            end: 1 + rows as i64,
            rows,
            size_bytes: 1,
            ts_us: (1, 1),
            split_offsets: vec![4],
            columns,
        }
    }

    fn stats(values: u64, nulls: u64, range: Option<(i64, i64)>) -> ColumnStats {
        ColumnStats {
            field_id: 2,
            size_bytes: 1,
            values,
            nulls,
            lower: range.map(|range| range.0.to_le_bytes().to_vec()),
            upper: range.map(|range| range.1.to_le_bytes().to_vec()),
        }
    }

    #[test]
    fn ranges_of_files_are_joined_or_left_out() {
        let column = TableColumn { name: "id".to_owned(), field_id: 2, kind: BoundKind::Int64 };
        let columns = std::slice::from_ref(&column);
        let files = [
            file(5, vec![stats(5, 1, Some((3, 9)))]),
            file(2, vec![stats(2, 2, None)]),
            file(5, vec![stats(5, 0, Some((-7, 4)))]),
        ];
        let found = LogStatistics::of_files("t", (1, 13), columns, &files);
        assert_eq!((found.record_count, found.end_offset), (Some(12), Some(13)));
        let range = Some((Bound::Int64(-7), Bound::Int64(9)));
        let id = ColumnStatistics { name: "id".to_owned(), kind: BoundKind::Int64, range, nulls: 3, values: 12 };
        assert_eq!(found.columns, [id]);
        // One file without bounds: nothing is certain.
        let unsure = [file(5, vec![stats(5, 1, Some((3, 9)))]), file(5, vec![stats(5, 0, None)])];
        assert_eq!(LogStatistics::of_files("t", (1, 11), columns, &unsure).columns, []);
        let empty = LogStatistics::of_files("t", (1, 1), columns, &[]);
        assert_eq!((empty.record_count, empty.columns[0].range), (Some(0), None));
    }

    #[test]
    fn only_numbers_and_booleans_exclude() {
        for (property, kind) in [
            (json!({"type": "integer", "format": "int64"}), Some(BoundKind::Int64)),
            (json!({"type": ["integer", "null"], "format": "int32"}), Some(BoundKind::Int32)),
            (json!({"type": ["number", "null"], "format": "float"}), Some(BoundKind::Float32)),
            (json!({"type": "number", "format": "double"}), Some(BoundKind::Float64)),
            (json!({"type": ["boolean", "null"]}), Some(BoundKind::Bool)),
            (json!({"type": "string"}), None),
            (json!({"type": "array", "items": {"type": "boolean"}}), None),
        ] {
            assert_eq!(BoundKind::of(&property), kind, "{property}");
        }
        assert_eq!(BoundKind::Float64.bound(&f64::NAN.to_le_bytes()), None);
        assert_eq!(BoundKind::Int64.bound(&7_i32.to_le_bytes()), Some(Bound::Int64(7)));
        assert_eq!(BoundKind::Int64.bound(&[1]), None);
    }
}

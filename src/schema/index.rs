//! Where the top-level values of a canonical row are, found once and used by every predicate.

use super::columns::Schema;

/// A span of bytes in a row.
type Span = (u32, u32);

/// The spans of the top-level values of one canonical row.
///
/// With declared columns every value is found by its column's place; otherwise by its key's canonical text.
#[derive(Debug, Default)]
pub struct RowIndex {
    values: Vec<Span>,
    /// The keys' spans with their quotes; empty if the row has exactly the declared columns.
    keys: Vec<Span>,
}

impl RowIndex {
    /// An empty index; reuse it for many rows.
    #[must_use]
    pub fn new() -> Self {
        RowIndex::default()
    }

    /// Finds the values of `row`, which this server's encoder wrote.
    ///
    /// A row that has other columns than `schema`, such as one stored before a migration, is found by its keys.
    pub fn scan(&mut self, schema: Option<&Schema>, row: &[u8]) {
        if !schema.is_some_and(|schema| self.scan_declared(schema, row)) {
            self.scan_keys(row);
        }
    }

    /// Whether the row consisted of exactly the declared columns.
    fn scan_declared(&mut self, schema: &Schema, row: &[u8]) -> bool {
        self.keys.clear();
        self.values.clear();
        let mut at = 0;
        for column in schema.columns() {
            match row.get(at..).and_then(|rest| rest.strip_prefix(&*column.lead)) {
                Some(_) => at += column.lead.len(),
                None => return false,
            }
            let end = value_end(row, at);
            self.values.push((at as u32, end as u32));
            at = end;
        }
        row.get(at..) == Some(b"}")
    }

    fn scan_keys(&mut self, row: &[u8]) {
        self.keys.clear();
        self.values.clear();
        let mut at = 1;
        while row.get(at) == Some(&b'"') {
            let key_end = string_end(row, at);
            let value_start = (key_end + 1).min(row.len());
            let end = value_end(row, value_start);
            self.keys.push((at as u32, key_end as u32));
            self.values.push((value_start as u32, end as u32));
            at = end + 1;
        }
    }

    /// The text of the value of a column: `place` is its place in the schema the row was scanned with, `key` its
    /// name as canonical JSON. `None` if the row does not have it.
    #[inline]
    #[must_use]
    pub(super) fn value<'r>(&self, row: &'r [u8], place: Option<usize>, key: &[u8]) -> Option<&'r [u8]> {
        let place = match place {
            Some(place) if self.keys.is_empty() => place,
            _ => self.keys.iter().position(|&span| slice(row, span) == key)?,
        };
        self.values.get(place).map(|&span| slice(row, span))
    }
}

#[inline]
fn slice(row: &[u8], (start, end): Span) -> &[u8] {
    row.get(start as usize..end as usize).unwrap_or_default()
}

/// The index behind the string that starts at `at`.
#[inline]
pub(super) fn string_end(row: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while let Some(found) = row.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += found;
        if row[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    row.len()
}

/// The index behind the canonical value that starts at `at`.
#[inline]
pub(super) fn value_end(row: &[u8], at: usize) -> usize {
    match row.get(at) {
        Some(b'"') => string_end(row, at),
        Some(b'[' | b'{') => nested_end(row, at),
        _ => {
            let rest = row.get(at..).unwrap_or_default();
            at + rest.iter().position(|byte| matches!(byte, b',' | b'}' | b']')).unwrap_or(rest.len())
        }
    }
}

fn nested_end(row: &[u8], at: usize) -> usize {
    let mut depth = 0usize;
    let mut at = at;
    while let Some(byte) = row.get(at) {
        match byte {
            b'"' => {
                at = string_end(row, at);
                continue;
            }
            b'[' | b'{' => depth += 1,
            b']' | b'}' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
        at += 1;
    }
    row.len()
}

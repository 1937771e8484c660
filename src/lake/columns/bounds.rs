//! Lower and upper bounds of columns in Iceberg's single-value form (docs/storage.md).

use std::cmp::Ordering;

use arrow::datatypes::DataType;
use parquet::file::statistics::Statistics;

/// Strings and bytes keep this many characters or bytes of a bound.
const TRUNCATED: usize = 16;

/// A value that bounds a column.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Bound {
    Bool(bool),
    Int(i32),
    Long(i64),
    Float(f32),
    Double(f64),
    Bytes(Vec<u8>),
}

impl Bound {
    /// The single-value form.
    pub fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Bool(value) => vec![u8::from(value)],
            Self::Int(value) => value.to_le_bytes().to_vec(),
            Self::Long(value) => value.to_le_bytes().to_vec(),
            Self::Float(value) => value.to_le_bytes().to_vec(),
            Self::Double(value) => value.to_le_bytes().to_vec(),
            Self::Bytes(value) => value,
        }
    }

    fn order(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::Int(a), Self::Int(b)) => a.cmp(b),
            (Self::Long(a), Self::Long(b)) => a.cmp(b),
            (Self::Float(a), Self::Float(b)) => a.total_cmp(b),
            (Self::Double(a), Self::Double(b)) => a.total_cmp(b),
            (Self::Bytes(a), Self::Bytes(b)) => a.cmp(b),
            _ => Ordering::Equal,
        }
    }
}

/// What kind of bounds a column has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bool,
    Int,
    Long,
    Float,
    Double,
    Text,
    Bytes,
    Fixed,
    None,
}

/// The bounds of a column over row groups.
#[derive(Debug)]
pub(super) struct Bounds {
    kind: Kind,
    both: Option<(Bound, Bound)>,
    /// Some row group did not say.
    unknown: bool,
}

impl Bounds {
    pub fn of(data_type: &DataType) -> Self {
        let kind = match data_type {
            DataType::Boolean => Kind::Bool,
            DataType::Int32 => Kind::Int,
            DataType::Int64 => Kind::Long,
            DataType::Float32 => Kind::Float,
            DataType::Float64 => Kind::Double,
            DataType::Utf8 => Kind::Text,
            DataType::Binary => Kind::Bytes,
            DataType::FixedSizeBinary(_) => Kind::Fixed,
            _ => Kind::None,
        };
        Self { kind, both: None, unknown: kind == Kind::None }
    }

    /// Takes in the statistics of a row group that has values.
    pub fn widen(&mut self, statistics: Option<&Statistics>) {
        match statistics.and_then(|statistics| pair(self.kind, statistics)) {
            None => self.unknown = true,
            Some((lower, upper)) => {
                self.both = Some(match self.both.take() {
                    None => (lower, upper),
                    Some((before_lower, before_upper)) => (
                        if lower.order(&before_lower).is_lt() { lower } else { before_lower },
                        if upper.order(&before_upper).is_gt() { upper } else { before_upper },
                    ),
                });
            }
        }
    }

    pub fn lower(&self) -> Option<Bound> {
        let (lower, _) = self.both.as_ref().filter(|_| !self.unknown)?;
        Some(match (self.kind, lower) {
            (Kind::Text, Bound::Bytes(text)) => Bound::Bytes(text_prefix(text)?.to_vec()),
            (Kind::Bytes, Bound::Bytes(bytes)) => Bound::Bytes(bytes[..bytes.len().min(TRUNCATED)].to_vec()),
            // Statistics of zeros have this sign whatever the zeros had.
            (_, Bound::Float(0.0)) => Bound::Float(-0.0),
            (_, Bound::Double(0.0)) => Bound::Double(-0.0),
            _ => lower.clone(),
        })
    }

    pub fn upper(&self) -> Option<Bound> {
        let (_, upper) = self.both.as_ref().filter(|_| !self.unknown)?;
        match (self.kind, upper) {
            (Kind::Text, Bound::Bytes(text)) => {
                let prefix = text_prefix(text)?;
                let above = if prefix.len() == text.len() { prefix.to_vec() } else { text_above(prefix)? };
                Some(Bound::Bytes(above))
            }
            (Kind::Bytes, Bound::Bytes(bytes)) if bytes.len() > TRUNCATED => {
                bytes_above(&bytes[..TRUNCATED]).map(Bound::Bytes)
            }
            _ => Some(upper.clone()),
        }
    }
}

fn pair(kind: Kind, statistics: &Statistics) -> Option<(Bound, Bound)> {
    match (kind, statistics) {
        (Kind::Bool, Statistics::Boolean(values)) => {
            Some((Bound::Bool(*values.min_opt()?), Bound::Bool(*values.max_opt()?)))
        }
        (Kind::Int, Statistics::Int32(values)) => {
            Some((Bound::Int(*values.min_opt()?), Bound::Int(*values.max_opt()?)))
        }
        (Kind::Long, Statistics::Int64(values)) => {
            Some((Bound::Long(*values.min_opt()?), Bound::Long(*values.max_opt()?)))
        }
        (Kind::Long, Statistics::Int32(values)) => {
            Some((Bound::Long(i64::from(*values.min_opt()?)), Bound::Long(i64::from(*values.max_opt()?))))
        }
        (Kind::Float, Statistics::Float(values)) => {
            Some((Bound::Float(*values.min_opt()?), Bound::Float(*values.max_opt()?)))
        }
        (Kind::Double, Statistics::Double(values)) => {
            Some((Bound::Double(*values.min_opt()?), Bound::Double(*values.max_opt()?)))
        }
        (Kind::Text | Kind::Bytes, Statistics::ByteArray(values)) => {
            // Old writers compared bytes as signed numbers.
            (!statistics.is_min_max_deprecated()).then_some(())?;
            Some((bytes(values.min_opt()?.data()), bytes(values.max_opt()?.data())))
        }
        (Kind::Fixed, Statistics::FixedLenByteArray(values)) => {
            // A bound of a fixed width cannot be a prefix.
            (values.min_is_exact() && values.max_is_exact() && !statistics.is_min_max_deprecated()).then_some(())?;
            Some((bytes(values.min_opt()?.data()), bytes(values.max_opt()?.data())))
        }
        _ => None,
    }
}

fn bytes(value: &[u8]) -> Bound {
    Bound::Bytes(value.to_vec())
}

/// The first characters of a text; of one that was cut inside of a character, those before.
fn text_prefix(text: &[u8]) -> Option<&[u8]> {
    let text = match std::str::from_utf8(text) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&text[..error.valid_up_to()]).ok()?,
    };
    let end = text.char_indices().nth(TRUNCATED).map_or(text.len(), |(at, _)| at);
    Some(&text.as_bytes()[..end])
}

/// The least text above everything that starts with `prefix`, as short as the prefix: its last character that can be
/// raised is. None if none can.
fn text_above(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut chars: Vec<char> = std::str::from_utf8(prefix).ok()?.chars().collect();
    while let Some(last) = chars.pop() {
        let raised = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32);
        if let Some(raised) = raised {
            chars.push(raised);
            return Some(chars.into_iter().collect::<String>().into_bytes());
        }
    }
    None
}

/// The same for bytes.
fn bytes_above(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut above = prefix[..=last].to_vec();
    above[last] += 1;
    Some(above)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upper_bounds_of_long_texts_are_raised() {
        let table = [
            ("abcdefghijklmnop", Some("abcdefghijklmnop")),
            ("abcdefghijklmnopq", Some("abcdefghijklmnoq")),
            ("aaaaaaaaaaaaaaa\u{10ffff}z", Some("aaaaaaaaaaaaaab")),
            ("aaaaaaaaaaaaaaa\u{d7ff}z", Some("aaaaaaaaaaaaaaa\u{e000}")),
        ];
        for (text, expected) in table {
            let both = Some((Bound::Bytes(Vec::new()), Bound::Bytes(text.as_bytes().to_vec())));
            let bounds = Bounds { kind: Kind::Text, both, unknown: false };
            assert_eq!(bounds.upper(), expected.map(|text| Bound::Bytes(text.as_bytes().to_vec())), "{text}");
        }
        assert_eq!(text_above("\u{10ffff}".repeat(16).as_bytes()), None);
        assert_eq!(bytes_above(&[1, 0xff, 0xff]), Some(vec![2]));
        assert_eq!(bytes_above(&[0xff; 16]), None);
    }
}

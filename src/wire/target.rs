//! Request targets: `/<name>?offset=…&where=…&publish&publisher=…` (wire.md section 1.3).

use crate::schema::Filter;

/// The longest managed name.
const MAX_MANAGED_NAME: usize = 128;

/// The longest exactly-once id, in bytes of UTF-8.
pub const MAX_PUBLISHER_BYTES: usize = 128;

/// The longest integer that is read, in digits.
const MAX_OFFSET_DIGITS: usize = 4300;

/// An `offset=` parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OffsetParam {
    /// An offset; 0 stands for the earliest row.
    At(i64),
    /// A legal offset that no stream will reach: its digits.
    BeyondI64(String),
}

/// What a request asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// The stream's name, whatever it is: checking it against the streams comes after everything here.
    pub name: String,
    /// Where a replay starts, if one is wanted.
    pub offset: Option<OffsetParam>,
    /// The filter, not yet checked against a schema.
    pub filter: Option<Filter>,
    /// Whether the connection publishes.
    pub publish: bool,
    /// The exactly-once id.
    pub publisher: Option<String>,
}

/// A target that is refused with 4400. Authorization needs its name and action all the same.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct BadTarget {
    /// What is wrong, for a person.
    pub detail: String,
    /// The decoded name.
    pub name: String,
    /// Whether the query has the key `publish`.
    pub publish: bool,
}

/// Parses the target of an upgrade request as it stands in the request line.
///
/// # Errors
/// [`BadTarget`] for the first of the checks 1 to 8 that fails. Check 9, the name, needs the set of streams.
pub fn parse(raw_target: &[u8]) -> Result<Target, BadTarget> {
    let (path, query) = match memchr::memchr(b'?', raw_target) {
        Some(at) => (&raw_target[..at], &raw_target[at + 1..]),
        None => (raw_target, &b""[..]),
    };
    let path = decode(path, false);
    let name = path.trim_start_matches('/').to_owned();
    let parameters = Parameters::split(query);
    let publish = parameters.publish.is_some();
    match parameters.check() {
        Ok((offset, filter)) => Ok(Target { name, offset, filter, publish, publisher: parameters.publisher }),
        Err(detail) => Err(BadTarget { detail, name, publish }),
    }
}

/// What a target is about, however wrong it is: the stream's name, and whether the connection would publish. This is
/// what a caller must be allowed before anything else is looked at (wire.md section 1.2).
#[must_use]
pub fn wanted(raw_target: &[u8]) -> (String, bool) {
    match parse(raw_target) {
        Ok(target) => (target.name, target.publish),
        Err(bad) => (bad.name, bad.publish),
    }
}

/// Whether a name may be given to a managed stream.
#[must_use]
pub fn is_managed_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    bytes.len() <= MAX_MANAGED_NAME
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
}

/// The query's parameters by key; the last of equal keys counts.
#[derive(Default)]
struct Parameters {
    offset: Option<String>,
    filter: Option<String>,
    publish: Option<String>,
    publisher: Option<String>,
    unknown: Vec<String>,
}

impl Parameters {
    fn split(query: &[u8]) -> Self {
        let mut parameters = Parameters::default();
        for segment in query.split(|&byte| byte == b'&').filter(|segment| !segment.is_empty()) {
            let (key, value) = match memchr::memchr(b'=', segment) {
                Some(at) => (&segment[..at], &segment[at + 1..]),
                None => (segment, &b""[..]),
            };
            let key = decode(key, true);
            let value = Some(decode(value, true));
            match key.as_str() {
                "offset" => parameters.offset = value,
                "where" => parameters.filter = value,
                "publish" => parameters.publish = value,
                "publisher" => parameters.publisher = value,
                _ => parameters.unknown.push(key),
            }
        }
        parameters.unknown.sort();
        parameters.unknown.dedup();
        parameters
    }

    /// The checks in their order. The details must not hold the word that section 9.3 reserves.
    fn check(&self) -> Result<(Option<OffsetParam>, Option<Filter>), String> {
        if !self.unknown.is_empty() {
            let names = self.unknown.join(",");
            return Err(if names.contains("publisher") {
                "unknown query parameter".to_owned()
            } else {
                format!("unknown query parameter: {names}")
            });
        }
        let filter = match &self.filter {
            Some(text) => Some(Filter::parse(text).map_err(|error| error.to_string())?),
            None => None,
        };
        if self.publish.is_some() {
            if self.offset.is_some() {
                return Err("publish does not go with offset".to_owned());
            }
            if filter.is_some() {
                return Err("publish does not go with where".to_owned());
            }
            if self.publisher.as_ref().is_some_and(|id| id.is_empty() || id.len() > MAX_PUBLISHER_BYTES) {
                return Err(format!("the exactly-once id must have 1 to {MAX_PUBLISHER_BYTES} bytes"));
            }
        } else if self.publisher.is_some() {
            return Err("an exactly-once id needs publish".to_owned());
        }
        let offset = match &self.offset {
            Some(text) => Some(offset(text)?),
            None => None,
        };
        Ok((offset, filter))
    }
}

/// Percent-decodes to UTF-8; what is not UTF-8 becomes U+FFFD.
fn decode(text: &[u8], plus_is_space: bool) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match byte {
            b'%' => match tail {
                [high, low, tail @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or(0) as u8;
                    out.push(digit(*high) << 4 | digit(*low));
                    rest = tail;
                }
                _ => out.push(b'%'),
            },
            b'+' if plus_is_space => out.push(b' '),
            _ => out.push(byte),
        }
    }
    String::from_utf8(out).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn offset(text: &str) -> Result<OffsetParam, String> {
    let text = text.trim();
    let (negative, digits) = match text.as_bytes() {
        [b'-', ..] => (true, &text[1..]),
        [b'+', ..] => (false, &text[1..]),
        _ => (false, text),
    };
    // Single underscores between digits are legal, so every piece between them is a run of digits.
    if !digits.split('_').all(|run| !run.is_empty() && run.bytes().all(|byte| byte.is_ascii_digit())) {
        return Err("offset must be an integer; 0 is the earliest row".to_owned());
    }
    let digits = digits.replace('_', "");
    if digits.len() > MAX_OFFSET_DIGITS {
        return Err(format!("offset must be an integer of at most {MAX_OFFSET_DIGITS} digits"));
    }
    let digits = match digits.trim_start_matches('0') {
        "" => return Ok(OffsetParam::At(0)),
        digits => digits,
    };
    if negative {
        return Err("offset must not be negative; 0 is the earliest row".to_owned());
    }
    Ok(digits.parse().map_or_else(|_| OffsetParam::BeyondI64(digits.to_owned()), OffsetParam::At))
}

#[cfg(test)]
mod tests;

//! Query parameters of the batch API.

use crate::batches::ApiError;

/// The decoded parameters of a request, each of which may be given once.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Decodes a query; only `known` keys may be in it.
    ///
    /// # Errors
    /// 400 for an unknown or repeated key, and for text that is not UTF-8.
    pub fn read(query: Option<&str>, known: &[&str]) -> Result<Self, ApiError> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let key = decode(key)?;
            if !known.contains(&key.as_str()) {
                let known = known.join(", ");
                return Err(ApiError::invalid(format!("unknown parameter {key:?}; known here: {known}")));
            }
            if pairs.iter().any(|(other, _)| *other == key) {
                return Err(ApiError::invalid(format!("the parameter {key:?} is given twice")));
            }
            pairs.push((key, decode(value)?));
        }
        Ok(Self(pairs))
    }

    /// The value of a parameter.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == key).map(|(_, value)| value.as_str())
    }

    /// A whole number from 1 to `max`, or `default`.
    ///
    /// # Errors
    /// 400 for anything else.
    pub fn count(&self, key: &str, default: usize, max: usize) -> Result<usize, ApiError> {
        match self.get(key) {
            None => Ok(default),
            Some(text) => text
                .parse()
                .ok()
                .filter(|count| (1..=max).contains(count) && text.bytes().all(|byte| byte.is_ascii_digit()))
                .ok_or_else(|| ApiError::invalid(format!("{key} has to be a whole number from 1 to {max}"))),
        }
    }

    /// A number of seconds from 0 to `max`, with a fraction or without; 0 if it is not given.
    ///
    /// # Errors
    /// 400 for anything else.
    pub fn seconds(&self, key: &str, max: f64) -> Result<f64, ApiError> {
        match self.get(key) {
            None => Ok(0.0),
            Some(text) => text
                .parse()
                .ok()
                .filter(|seconds| (0.0..=max).contains(seconds))
                .ok_or_else(|| ApiError::invalid(format!("{key} has to be a number of seconds from 0 to {max}"))),
        }
    }
}

fn decode(text: &str) -> Result<String, ApiError> {
    let refuse = || ApiError::invalid("the query is not percent-encoded UTF-8");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16)).ok_or_else(refuse);
                let (high, low) = (digit(rest.next())?, digit(rest.next())?);
                (high * 16 + low) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| refuse())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_and_checked() {
        let known = ["after", "limit", "wait"];
        let query = Query::read(Some("after=a%20b%C3%A9+c&limit=7&wait=1.5"), &known).expect("valid");
        assert_eq!(query.get("after"), Some("a bé c"));
        assert_eq!((query.count("limit", 5, 10), query.seconds("wait", 30.0)), (Ok(7), Ok(1.5)));
        assert_eq!((Query::default().count("limit", 5, 10), Query::default().seconds("wait", 30.0)), (Ok(5), Ok(0.0)));
        for bad in ["x=1", "after=1&after=2", "after=%", "after=%4", "after=%zz", "after=%ff"] {
            assert_eq!(Query::read(Some(bad), &known).map_err(|error| error.status), Err(400), "{bad}");
        }
        for bad in
            ["limit=0", "limit=11", "limit=", "limit=-1", "limit=%2B1", "limit=x", "wait=-1", "wait=31", "wait=NaN"]
        {
            let query = Query::read(Some(bad), &known).expect("readable");
            assert!(query.count("limit", 5, 10).is_err() || query.seconds("wait", 30.0).is_err(), "{bad}");
        }
    }
}

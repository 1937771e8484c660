//! Reading one TOML table key by key, with the place of every value kept for errors.

use std::fmt::Display;
use std::ops::{Range, RangeInclusive};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{ConfigError, Source};

/// A table whose keys are taken one at a time; what is left at the end is unknown.
pub(super) struct Table<'s> {
    pub source: Source<'s>,
    /// What the table is called in messages, such as "a [[stream]]".
    what: &'static str,
    span: Range<usize>,
    entries: DeTable<'s>,
    known: Vec<&'static str>,
}

/// A value and the bytes it was written in.
pub(super) struct At<T> {
    pub value: T,
    pub span: Range<usize>,
}

impl<'s> Table<'s> {
    pub fn new(source: Source<'s>, what: &'static str, span: Range<usize>, entries: DeTable<'s>) -> Self {
        Self { source, what, span, entries, known: Vec::new() }
    }

    /// An error about the table as a whole.
    pub fn error(&self, message: impl Into<String>) -> ConfigError {
        self.source.error(self.span.clone(), message)
    }

    /// The value of `key`, which becomes a known key whether it is there or not.
    pub fn take(&mut self, key: &'static str) -> Option<Spanned<DeValue<'s>>> {
        self.known.push(key);
        self.entries.remove(key)
    }

    pub fn text(&mut self, key: &'static str) -> Result<Option<At<String>>, ConfigError> {
        self.scalar(key, "a string in quotes", |value| match value {
            DeValue::String(text) => Some(text.clone().into_owned()),
            _ => None,
        })
    }

    pub fn boolean(&mut self, key: &'static str) -> Result<Option<bool>, ConfigError> {
        let found = self.scalar(key, "true or false", |value| match value {
            DeValue::Boolean(value) => Some(*value),
            _ => None,
        })?;
        Ok(found.map(|at| at.value))
    }

    /// A whole number of `unit` (which may be empty) in `range`.
    pub fn whole<N>(
        &mut self,
        key: &'static str,
        range: RangeInclusive<N>,
        unit: &str,
    ) -> Result<Option<N>, ConfigError>
    where
        N: TryFrom<u64> + Copy + Display + PartialOrd,
    {
        Ok(self.whole_at(key, range, unit)?.map(|at| at.value))
    }

    /// As [`Table::whole`], with the place.
    pub fn whole_at<N>(
        &mut self,
        key: &'static str,
        range: RangeInclusive<N>,
        unit: &str,
    ) -> Result<Option<At<N>>, ConfigError>
    where
        N: TryFrom<u64> + Copy + Display + PartialOrd,
    {
        let of = if unit.is_empty() { "" } else { " of " };
        let wanted = format!("a whole number{of}{unit} from {} to {}", range.start(), range.end());
        self.scalar(key, &wanted, |value| whole(value)?.try_into().ok().filter(|value| range.contains(value)))
    }

    /// The first error if a key was never asked for: the way to find spelling mistakes.
    pub fn finish(&mut self) -> Result<(), ConfigError> {
        let Some((key, _)) = self.entries.iter().min_by_key(|(key, _)| key.span().start) else { return Ok(()) };
        let name = key.get_ref();
        let hint = match nearest(name, &self.known) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("known keys are {}", self.known.join(", ")),
        };
        Err(self.source.error(key.span(), format!("unknown key `{}` in {}; {hint}", short(name), self.what)))
    }

    fn scalar<T>(
        &mut self,
        key: &'static str,
        wanted: &str,
        read: impl FnOnce(&DeValue<'s>) -> Option<T>,
    ) -> Result<Option<At<T>>, ConfigError> {
        let Some(entry) = self.take(key) else { return Ok(None) };
        match read(entry.get_ref()) {
            Some(value) => Ok(Some(At { value, span: entry.span() })),
            None => Err(self.mismatch(key, wanted, &entry)),
        }
    }

    /// "`key` must be …, not …".
    pub fn mismatch(&self, key: &str, wanted: &str, found: &Spanned<DeValue<'_>>) -> ConfigError {
        self.source.error(found.span(), format!("`{key}` must be {wanted}, not {}", describe(found.get_ref())))
    }
}

/// A non-negative whole number, in any of TOML's notations.
pub(super) fn whole(value: &DeValue<'_>) -> Option<u64> {
    let DeValue::Integer(number) = value else { return None };
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// A value as it is named in messages.
pub(super) fn describe(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("the string \"{}\"", short(text)),
        DeValue::Integer(number) => short(&number.to_string()),
        DeValue::Float(number) => short(number.as_str()),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(_) => "a date or time".to_owned(),
        DeValue::Array(_) => "an array".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// Text from outside in a message: escaped and cut to 60 characters.
pub(super) fn short(text: &str) -> String {
    let mut shown: String = text.chars().take(60).flat_map(char::escape_debug).collect();
    if text.chars().nth(60).is_some() {
        shown.push('…');
    }
    shown
}

/// The known word a misspelling most likely stands for.
pub(super) fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let score = |candidate: &str| strsim::normalized_damerau_levenshtein(word, candidate);
    let best = known.iter().copied().max_by(|a, b| score(a).total_cmp(&score(b)))?;
    (word.len() <= 64 && score(best) >= 0.6).then_some(best)
}

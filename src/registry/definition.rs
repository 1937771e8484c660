//! A declaration of a stream (wire.md section 11.6): read from a request, checked, and written back as it was.

use std::collections::BTreeMap;

use super::fault::Fault;
use super::profile::Profile;
use crate::schema::Schema;
use crate::schema::json::Json;

/// What `max_replay` is when nobody says.
const MAX_REPLAY_ROWS: u64 = 100_000;

/// Whether a stream may be created by serving it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Initialization {
    /// No: its log has to be there.
    OpenExisting,
    /// Yes, once.
    CreateIfAbsent,
}

impl Initialization {
    fn word(self) -> &'static str {
        match self {
            Self::OpenExisting => "open_existing",
            Self::CreateIfAbsent => "create_if_absent",
        }
    }
}

/// The bounds of a managed stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefinitionLimits {
    /// Frames a subscriber may be behind.
    pub max_backlog: u32,
    /// Rows of all publishers that may wait for the writer.
    pub max_inbound: u32,
    /// Replies one publisher may be owed.
    pub max_in_flight: u32,
    /// The largest publish frame, in bytes.
    pub max_message_bytes: u32,
}

/// A checked declaration with its defaults filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// The schema exactly as it was submitted.
    pub schema: Json,
    /// Columns the tables are sorted by.
    pub sort_by: Vec<String>,
    /// A profile of the host.
    pub storage_profile: String,
    /// Whether serving may create the stream.
    pub initialization: Initialization,
    /// Whether publishers may name themselves (wire.md section 5).
    pub exactly_once: bool,
    /// Whether a replay may read published tables (wire.md section 7.1).
    pub replay_published: bool,
    /// Whether frames may share a transaction.
    pub group_commit: bool,
    /// The most rows a replay may reach back; `None` for any number.
    pub max_replay: Option<u64>,
    /// Bounds.
    pub limits: DefinitionLimits,
}

/// What a declaration is checked against: the host's side of it.
#[derive(Debug, Clone)]
pub struct Rules {
    /// The storage profiles by name.
    pub profiles: BTreeMap<String, Profile>,
    /// The largest message of any connection, in bytes.
    pub transport_max_bytes: u32,
}

impl Definition {
    /// Reads and checks a declaration.
    ///
    /// # Errors
    /// [`Fault::InvalidDeclaration`] for anything that section 11.6 does not name.
    pub fn read(body: &Json, rules: &Rules) -> Result<Self, Fault> {
        Reader { body, rules: Some(rules) }.read().ok_or(Fault::InvalidDeclaration)
    }

    /// Reads a definition that was checked when it was kept, whatever the host's rules are by now.
    #[must_use]
    pub fn read_kept(body: &Json) -> Option<Self> {
        Reader { body, rules: None }.read()
    }

    /// The compiled schema.
    ///
    /// # Errors
    /// [`Fault::InvalidDeclaration`]; never for a definition that was read.
    pub fn compile(&self) -> Result<Schema, Fault> {
        Schema::compile_strict(&to_value(&self.schema), true).map_err(|_| Fault::InvalidDeclaration)
    }

    /// The schema as a plain JSON value, key order kept.
    #[must_use]
    pub fn schema_value(&self) -> serde_json::Value {
        to_value(&self.schema)
    }

    /// The definition as it is shown and stored, in the order of section 11.3.
    #[must_use]
    pub fn to_json(&self) -> Json {
        let limits = [
            ("max_backlog", self.limits.max_backlog),
            ("max_inbound", self.limits.max_inbound),
            ("max_in_flight", self.limits.max_in_flight),
            ("max_message_bytes", self.limits.max_message_bytes),
        ];
        let limits = limits.map(|(key, value)| (key.to_owned(), Json::Int(i64::from(value))));
        object([
            ("schema", self.schema.clone()),
            ("sort_by", names(&self.sort_by)),
            ("storage_profile", text(&self.storage_profile)),
            ("initialization", text(self.initialization.word())),
            ("exactly_once", Json::Bool(self.exactly_once)),
            ("replay_published", Json::Bool(self.replay_published)),
            ("group_commit", Json::Bool(self.group_commit)),
            ("max_replay", self.max_replay.map_or(Json::Null, |rows| Json::Int(rows.try_into().unwrap_or(i64::MAX)))),
            ("limits", Json::Object(limits.into())),
        ])
    }

    /// The definition with another schema and order, checked again.
    ///
    /// # Errors
    /// [`Fault::InvalidDeclaration`] if it is not one.
    pub fn migrated(&self, schema: &Json, sort_by: &Json, rules: &Rules) -> Result<Self, Fault> {
        let Json::Object(mut members) = self.to_json() else { return Err(Fault::InternalError) };
        for (key, value) in &mut members {
            match key.as_str() {
                "schema" => *value = schema.clone(),
                "sort_by" => *value = sort_by.clone(),
                _ => {}
            }
        }
        Self::read(&Json::Object(members), rules)
    }
}

/// The keys of a declaration.
const KEYS: [&str; 9] = [
    "schema",
    "sort_by",
    "storage_profile",
    "initialization",
    "exactly_once",
    "replay_published",
    "group_commit",
    "max_replay",
    "limits",
];

struct Reader<'a> {
    body: &'a Json,
    /// `None` for what was checked before.
    rules: Option<&'a Rules>,
}

impl Reader<'_> {
    fn read(&self) -> Option<Definition> {
        let Json::Object(members) = self.body else { return None };
        if members.iter().any(|(key, _)| !KEYS.contains(&key.as_str())) {
            return None;
        }
        let schema = self.get("schema")?.clone();
        let Json::String(storage_profile) = self.get("storage_profile")? else { return None };
        let compiled = match self.rules {
            Some(rules) => {
                rules.profiles.get(storage_profile)?;
                Some(Schema::compile_strict(&to_value(&schema), true).ok()?)
            }
            None => None,
        };
        Some(Definition {
            sort_by: self.sort_by(compiled.as_ref())?,
            storage_profile: storage_profile.clone(),
            initialization: self.initialization()?,
            exactly_once: self.flag("exactly_once", false)?,
            replay_published: self.flag("replay_published", false)?,
            group_commit: self.flag("group_commit", true)?,
            max_replay: self.max_replay()?,
            limits: self.limits()?,
            schema,
        })
    }

    fn get(&self, key: &str) -> Option<&Json> {
        member(self.body, key)
    }

    fn sort_by(&self, schema: Option<&Schema>) -> Option<Vec<String>> {
        let Some(found) = self.get("sort_by") else { return Some(Vec::new()) };
        let Json::Array(items) = found else { return None };
        let mut columns = Vec::new();
        for item in items {
            let Json::String(column) = item else { return None };
            if schema.is_some_and(|schema| schema.find(column).is_none()) || columns.contains(column) {
                return None;
            }
            columns.push(column.clone());
        }
        Some(columns)
    }

    fn initialization(&self) -> Option<Initialization> {
        match self.get("initialization") {
            None => Some(Initialization::OpenExisting),
            Some(Json::String(word)) => [Initialization::OpenExisting, Initialization::CreateIfAbsent]
                .into_iter()
                .find(|candidate| candidate.word() == word),
            Some(_) => None,
        }
    }

    fn flag(&self, key: &str, default: bool) -> Option<bool> {
        match self.get(key) {
            None => Some(default),
            Some(Json::Bool(flag)) => Some(*flag),
            Some(_) => None,
        }
    }

    fn max_replay(&self) -> Option<Option<u64>> {
        match self.get("max_replay") {
            None => Some(Some(MAX_REPLAY_ROWS)),
            Some(Json::Null) => Some(None),
            Some(Json::Int(rows)) => u64::try_from(*rows).ok().map(Some),
            Some(_) => None,
        }
    }

    fn limits(&self) -> Option<DefinitionLimits> {
        let ceiling = self.rules.map_or(u32::MAX, |rules| rules.transport_max_bytes);
        let mut limits =
            DefinitionLimits { max_backlog: 8_192, max_inbound: 65_536, max_in_flight: 64, max_message_bytes: ceiling };
        let Some(found) = self.get("limits") else { return Some(limits) };
        let Json::Object(members) = found else { return None };
        for (key, value) in members {
            let Json::Int(value) = value else { return None };
            let value = u32::try_from(*value).ok().filter(|value| *value >= 1)?;
            match key.as_str() {
                "max_backlog" => limits.max_backlog = value,
                "max_inbound" => limits.max_inbound = value,
                "max_in_flight" => limits.max_in_flight = value,
                "max_message_bytes" if value <= ceiling => limits.max_message_bytes = value,
                _ => return None,
            }
        }
        Some(limits)
    }
}

/// The value of a member of an object; `None` for everything else.
#[must_use]
pub fn member<'a>(json: &'a Json, key: &str) -> Option<&'a Json> {
    let Json::Object(members) = json else { return None };
    members.iter().find(|(known, _)| known == key).map(|(_, value)| value)
}

/// An object of the given members.
pub(super) fn object<const N: usize>(members: [(&str, Json); N]) -> Json {
    Json::Object(members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

/// A string.
pub(super) fn text(text: &str) -> Json {
    Json::String(text.to_owned())
}

fn names(names: &[String]) -> Json {
    Json::Array(names.iter().map(|name| text(name)).collect())
}

/// The same value for those who know no other form. Integers beyond 64 bits become doubles.
fn to_value(json: &Json) -> serde_json::Value {
    use serde_json::Value;
    match json {
        Json::Null => Value::Null,
        Json::Bool(flag) => Value::Bool(*flag),
        Json::Int(number) => Value::from(*number),
        Json::Wide(digits) => Value::from(digits.parse::<f64>().unwrap_or(f64::MAX)),
        Json::Float(number) => Value::from(*number),
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => Value::Array(items.iter().map(to_value).collect()),
        Json::Object(members) => {
            Value::Object(members.iter().map(|(key, value)| (key.clone(), to_value(value))).collect())
        }
    }
}

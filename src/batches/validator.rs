//! Validators (docs/batches.md, "Validators"): a CEL expression that every inserted entry has to make true.
//!
//! The interpreter has no bounds of its own, so an expression is measured when it is compiled: how many steps it has,
//! how deep it iterates, whether it builds strings. With the size of an entry that gives a cost before anything is
//! evaluated, and an entry that would cost too much fails. A deadline bounds all entries of a batch together.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use cel::common::ast::{EntryExpr, Expr};
use cel::objects::{Key, Map};
use cel::{Context, Env, IdedExpr, Program, Value};

use super::error::ApiError;
use super::limits::MAX_FAILURES;
use crate::schema::json::{self, Json};
use crate::wire::RowBatch;

/// Bytes of an expression.
pub const MAX_EXPRESSION_BYTES: usize = 4096;

/// Steps of an expression.
const MAX_STEPS: u64 = 512;

/// Iterations inside each other.
const MAX_ITERATIONS: u32 = 2;

/// What one entry may cost, in steps.
const MAX_COST: u64 = 20_000_000;

/// The one variable.
const VARIABLE: &str = "entry";

/// Functions there are, beside operators.
const FUNCTIONS: [&str; 37] = [
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "int",
    "uint",
    "double",
    "string",
    "bytes",
    "bool",
    "dyn",
    "type",
    "timestamp",
    "duration",
    "getFullYear",
    "getMonth",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getHours",
    "getMinutes",
    "getSeconds",
    "getMilliseconds",
    "optional.of",
    "optional.none",
    "optional.ofNonZeroValue",
    "of",
    "none",
    "ofNonZeroValue",
    "hasValue",
    "value",
    "or",
    "orValue",
    "optMap",
    "optFlatMap",
];

/// Names of types, which expressions compare with what `type` gives.
const TYPES: [&str; 11] =
    ["bool", "bytes", "double", "int", "list", "map", "null_type", "optional_type", "string", "type", "uint"];

/// Types whose names have dots in them.
const QUALIFIED_TYPES: [&str; 2] = ["google.protobuf.Duration", "google.protobuf.Timestamp"];

static STANDARD: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// A compiled validator.
#[derive(Debug)]
pub struct Validator {
    program: Program,
    measure: Measure,
}

/// What an expression costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Measure {
    steps: u64,
    /// The deepest iteration.
    iterations: u32,
    /// Additions, which join strings and lists as well.
    additions: u64,
    /// Whether a regular expression is matched.
    matches: bool,
}

impl Validator {
    /// Compiles an expression over `entry`.
    ///
    /// # Errors
    /// 400 `invalid_validator` with what is wrong.
    pub fn compile(source: &str) -> Result<Self, ApiError> {
        let refuse = |why: String| ApiError::new(400, "invalid_validator", why);
        if source.len() > MAX_EXPRESSION_BYTES {
            return Err(refuse(format!("the validator has over {MAX_EXPRESSION_BYTES} bytes")));
        }
        let program =
            STANDARD.compile(source).map_err(|error| refuse(format!("the validator does not compile: {error}")))?;
        let mut measuring = Measuring { measure: Measure::default(), bound: vec![VARIABLE.to_owned()], wrong: None };
        measuring.visit(program.expression(), 0);
        if let Some(wrong) = measuring.wrong {
            return Err(refuse(format!("the validator {wrong}")));
        }
        let measure = measuring.measure;
        if measure.steps > MAX_STEPS {
            return Err(refuse(format!("the validator has over {MAX_STEPS} steps")));
        }
        if measure.iterations > MAX_ITERATIONS {
            return Err(refuse(format!("the validator iterates over {MAX_ITERATIONS} levels deep")));
        }
        Ok(Self { program, measure })
    }

    /// Checks stored rows. Nothing is said about rows after the hundredth that fails.
    ///
    /// # Errors
    /// 422 with the entries that fail, 503 when `deadline` passes first.
    pub fn check(&self, rows: &RowBatch, deadline: Instant) -> Result<(), ApiError> {
        let context = Context::with_env(Arc::clone(&STANDARD));
        let mut failures = Vec::new();
        for (index, row) in rows.iter().enumerate() {
            if index % 64 == 0 && Instant::now() > deadline {
                return Err(ApiError::unavailable(
                    "the validator takes too long for so many entries; send fewer at once",
                ));
            }
            if let Err(reason) = self.check_row(&context, row) {
                failures.push((index, reason));
                if failures.len() == MAX_FAILURES {
                    let more = index + 1 < rows.count();
                    return Err(ApiError::failures(&failures, more));
                }
            }
        }
        if failures.is_empty() { Ok(()) } else { Err(ApiError::failures(&failures, false)) }
    }

    fn check_row(&self, context: &Context<'_, '_>, row: &[u8]) -> Result<(), String> {
        let entry = json::parse(row).map_err(|error| error.to_string())?;
        let cost = self.measure.cost(count(&entry), row.len() as u64);
        if cost > MAX_COST {
            return Err(format!("the validator would take {cost} steps for it; at most {MAX_COST} are allowed"));
        }
        let mut scope = context.new_inner_scope();
        scope.add_variable_from_value(VARIABLE, value(entry));
        match self.program.execute(&scope) {
            Ok(Value::Bool(true)) => Ok(()),
            Ok(Value::Bool(false)) => Err("the validator is false".to_owned()),
            Ok(_) => Err("the validator gives no boolean".to_owned()),
            Err(error) => Err(format!("the validator fails: {}", shortened(error.to_string()))),
        }
    }
}

/// Errors of the interpreter may quote whole entries.
fn shortened(mut text: String) -> String {
    const MAX_CHARS: usize = 200;
    if let Some((end, _)) = text.char_indices().nth(MAX_CHARS) {
        text.truncate(end);
        text.push('…');
    }
    text
}

impl Measure {
    /// The steps for an entry of so many values and bytes.
    fn cost(self, values: u64, bytes: u64) -> u64 {
        let rounds = values.max(1).saturating_pow(self.iterations);
        // A step may look at every byte once; an addition may copy what all additions before it have built.
        let texts = 1 + bytes / 512;
        let building = self.additions.saturating_mul(self.additions).saturating_mul(bytes / 64);
        let matching = if self.matches { 64 } else { 1 };
        self.steps.saturating_mul(matching).saturating_mul(texts).saturating_add(building).saturating_mul(rounds)
    }
}

/// How many values there are in an entry.
fn count(entry: &Json) -> u64 {
    match entry {
        Json::Array(items) => 1 + items.iter().map(count).sum::<u64>(),
        Json::Object(members) => 1 + members.iter().map(|(_, value)| count(value)).sum::<u64>(),
        _ => 1,
    }
}

/// An entry as the interpreter knows values. Integers that fit no 64 bits become doubles.
fn value(json: Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(value),
        Json::Int(value) => Value::Int(value),
        Json::Wide(digits) => match digits.parse() {
            Ok(value) => Value::UInt(value),
            Err(_) => Value::Float(digits.parse().unwrap_or(f64::INFINITY)),
        },
        Json::Float(value) => Value::Float(value),
        Json::String(text) => Value::String(Arc::new(text)),
        Json::Array(items) => Value::List(Arc::new(items.into_iter().map(value).collect())),
        Json::Object(members) => {
            let map: HashMap<Key, Value> =
                members.into_iter().map(|(key, member)| (Key::String(Arc::new(key)), value(member))).collect();
            Value::Map(Map { map: Arc::new(map) })
        }
    }
}

/// Walks an expression.
struct Measuring {
    measure: Measure,
    /// Variables in scope.
    bound: Vec<String>,
    wrong: Option<String>,
}

impl Measuring {
    fn visit(&mut self, expression: &IdedExpr, depth: u32) {
        self.measure.steps += 1;
        match &expression.expr {
            Expr::Unspecified | Expr::Literal(_) => {}
            Expr::Ident(name) => {
                if !self.bound.iter().any(|bound| bound == name) && !TYPES.contains(&name.as_str()) {
                    self.refuse(format!("names {name:?}; only {VARIABLE:?} is known"));
                }
            }
            Expr::Select(_) if path(expression).is_some_and(|path| QUALIFIED_TYPES.contains(&path.as_str())) => {}
            Expr::Select(select) => self.visit(&select.operand, depth),
            Expr::Call(call) => {
                let name = call.func_name.as_str();
                self.measure.additions += u64::from(name == "_+_");
                self.measure.matches |= name == "matches";
                if name.starts_with(|first: char| first.is_ascii_alphabetic()) && !FUNCTIONS.contains(&name) {
                    self.refuse(format!("calls {name:?}, which is not a function"));
                }
                if let Some(target) = &call.target {
                    // `optional` is a name space and no variable.
                    if !matches!(&target.expr, Expr::Ident(name) if name == "optional") {
                        self.visit(target, depth);
                    }
                }
                call.args.iter().for_each(|argument| self.visit(argument, depth));
            }
            Expr::List(list) => list.elements.iter().for_each(|element| self.visit(element, depth)),
            Expr::Map(map) => map.entries.iter().for_each(|entry| self.entry(&entry.expr, depth)),
            Expr::Struct(literal) => {
                self.refuse(format!("makes a {:?}; there are no messages here", literal.type_name));
            }
            Expr::Comprehension(each) => {
                self.visit(&each.iter_range, depth);
                self.visit(&each.accu_init, depth);
                let before = self.bound.len();
                self.bound.push(each.accu_var.clone());
                self.bound.push(each.iter_var.clone());
                self.bound.extend(each.iter_var2.clone());
                self.measure.iterations = self.measure.iterations.max(depth + 1);
                self.visit(&each.loop_cond, depth + 1);
                self.visit(&each.loop_step, depth + 1);
                self.visit(&each.result, depth);
                self.bound.truncate(before);
            }
        }
    }

    fn entry(&mut self, entry: &EntryExpr, depth: u32) {
        match entry {
            EntryExpr::StructField(field) => self.visit(&field.value, depth),
            EntryExpr::MapEntry(entry) => {
                self.visit(&entry.key, depth);
                self.visit(&entry.value, depth);
            }
        }
    }

    fn refuse(&mut self, why: String) {
        self.wrong.get_or_insert(why);
    }
}

/// Names that are joined by dots, as one.
fn path(expression: &IdedExpr) -> Option<String> {
    match &expression.expr {
        Expr::Ident(name) => Some(name.clone()),
        Expr::Select(select) if !select.test => Some(format!("{}.{}", path(&select.operand)?, select.field)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn rows(texts: &[&str]) -> RowBatch {
        let mut batch = RowBatch::default();
        for text in texts {
            batch.body.extend_from_slice(text.as_bytes());
            batch.body.push(b'\n');
            batch.ends.push(batch.body.len() as u32);
        }
        batch
    }

    fn failing(source: &str, texts: &[&str]) -> Vec<u64> {
        let validator = Validator::compile(source).expect("compiles");
        match validator.check(&rows(texts), Instant::now() + Duration::from_secs(20)) {
            Ok(()) => Vec::new(),
            Err(error) => {
                assert_eq!(error.code, "validation_failed", "{error}");
                let details = error.details.expect("details");
                let failures = details["failures"].as_array().expect("a list").clone();
                failures.iter().map(|failure| failure["index"].as_u64().expect("an index")).collect()
            }
        }
    }

    #[test]
    fn entries_pass_that_make_it_true() {
        let users = [r#"{"user_id":"u","n":3}"#, r#"{"user_id":"","n":4}"#, r#"{"n":5}"#, r#"{"user_id":7,"n":1.5}"#];
        assert_eq!(failing(r#"entry.user_id != """#, &users), [1, 2]);
        assert_eq!(failing("has(entry.user_id) && entry.n > 2", &users), [2, 3]);
        assert_eq!(failing("entry.n", &users), [0, 1, 2, 3]);
        assert_eq!(
            failing("entry.l.all(x, x > 0 && x < 10)", &[r#"{"l":[1,2]}"#, r#"{"l":[1,20]}"#, r#"{"l":[]}"#]),
            [1]
        );
        assert_eq!(failing("entry.a.b[1] == null", &[r#"{"a":{"b":[1,null]}}"#]), [0_u64; 0]);
        assert_eq!(failing("entry.s.matches('^[a-z]+$')", &[r#"{"s":"abc"}"#, r#"{"s":"aBc"}"#]), [1]);
        assert_eq!(failing("entry.big > 18446744073709551614u", &[r#"{"big":18446744073709551615}"#]), [0_u64; 0]);
    }

    #[test]
    fn types_have_names() {
        let rows = [r#"{"a":1}"#, r#"{"a":1.5}"#, r#"{"a":"s"}"#, r#"{"a":null}"#, r#"{"a":[1]}"#, r#"{"a":{}}"#];
        for (index, name) in ["int", "double", "string", "null_type", "list", "map"].into_iter().enumerate() {
            let others: Vec<u64> = (0..6).filter(|other| *other != index as u64).collect();
            assert_eq!(failing(&format!("type(entry.a) == {name}"), &rows), others, "{name}");
        }
        let stamp = "type(timestamp(entry.t)) == google.protobuf.Timestamp";
        assert_eq!(failing(stamp, &[r#"{"t":"2026-01-02T03:04:05Z"}"#, r#"{"t":"x"}"#]), [1]);
        assert_eq!(failing("entry.l.all(int, int > 1)", &[r#"{"l":[2]}"#, r#"{"l":[1]}"#]), [1]);
    }

    #[test]
    fn what_does_not_compile_is_refused() {
        let deep = "entry.l.all(a, a.all(b, b.all(c, c > 0)))";
        let long = format!("entry.a == \"{}\"", "x".repeat(MAX_EXPRESSION_BYTES));
        let many = vec!["entry.a == 1"; 200].join(" || ");
        for source in [
            "",
            "entry.",
            "entry.a ==",
            "other.a == 1",
            "entry.all(x, y > 1)",
            "f(entry)",
            "google.a",
            "min(1, 2) == 1",
        ]
        .into_iter()
        .chain([deep, &long, &many])
        {
            let error = Validator::compile(source).expect_err(source);
            assert_eq!((error.status, error.code), (400, "invalid_validator"), "{source}: {error}");
        }
    }

    #[test]
    fn an_entry_that_costs_too_much_fails_before_it_is_looked_at() {
        let numbers = vec!["1"; 100_000].join(",");
        let entry = format!(r#"{{"l":[{numbers}]}}"#);
        let began = Instant::now();
        assert_eq!(failing("entry.l.all(x, entry.l.all(y, x == y))", &[&entry, r#"{"l":[1,1]}"#]), [0]);
        let text = format!(r#"{{"s":"{}","l":[{numbers}]}}"#, "x".repeat(100_000));
        assert_eq!(failing("size(entry.l.map(x, entry.s + entry.s)) > 0", &[&text]), [0]);
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    }

    #[test]
    fn a_batch_ends_at_its_deadline() {
        let validator = Validator::compile("entry.a == 1").expect("compiles");
        let error = validator.check(&rows(&[r#"{"a":1}"#]), Instant::now() - Duration::from_secs(1)).expect_err("late");
        assert_eq!(error.status, 503);
    }
}

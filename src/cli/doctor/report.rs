//! What was found, for people and for programs.

use serde_json::{Value, json};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// As it should be.
    Ok,
    /// The broker runs, but slower or with less room than it could.
    Warn,
    /// The broker does not run here, or cannot keep what it promises.
    Fail,
}

impl Level {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at.
    pub name: &'static str,
    /// How bad it is.
    pub level: Level,
    /// What was found.
    pub found: String,
    /// What to do about it; empty when nothing is.
    pub fix: String,
}

impl Finding {
    /// As it should be.
    pub fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, level: Level::Ok, found: found.into(), fix: String::new() }
    }

    /// Could be better.
    pub fn warn(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, level: Level::Warn, found: found.into(), fix: fix.into() }
    }

    /// Must be mended.
    pub fn fail(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, level: Level::Fail, found: found.into(), fix: fix.into() }
    }
}

/// The worst level among the findings.
pub fn worst(findings: &[Finding]) -> Level {
    findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok)
}

/// A line a finding, and one for its fix.
pub fn as_text(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for Finding { name, level, found, fix } in findings {
        text.push_str(&format!("{:<5} {name:<width$}  {found}\n", level.as_str()));
        if !fix.is_empty() {
            text.push_str(&format!("{:<5} {:<width$}  fix: {fix}\n", "", ""));
        }
    }
    text
}

/// One document with every finding.
pub fn as_json(findings: &[Finding]) -> Value {
    let entry = |finding: &Finding| {
        let fix = if finding.fix.is_empty() { Value::Null } else { finding.fix.clone().into() };
        json!({ "name": finding.name, "level": finding.level.as_str(), "found": finding.found, "fix": fix })
    };
    json!({ "level": worst(findings).as_str(), "checks": findings.iter().map(entry).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_finding_decides() {
        let findings = [Finding::ok("a", "fine"), Finding::warn("bcd", "so so", "do this")];
        assert_eq!((worst(&findings), worst(&findings[..1]), worst(&[])), (Level::Warn, Level::Ok, Level::Ok));
        assert_eq!(as_text(&findings), "ok    a    fine\nwarn  bcd  so so\n           fix: do this\n");
        let json = r#"{"level":"warn","checks":[{"name":"a","level":"ok","found":"fine","fix":null},{"name":"bcd","level":"warn","found":"so so","fix":"do this"}]}"#;
        assert_eq!(as_json(&findings).to_string(), json);
    }
}

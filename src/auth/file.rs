//! The policy file: TOML to plain values, checked.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use argon2::PasswordHash;
use serde::{Deserialize, Serialize};

use super::action::Action;
use super::error::AuthError;
use super::grants::{Grants, Pattern};

/// Largest policy or key file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// Most principals of a policy.
const MAX_PRINCIPALS: usize = 65_536;
/// Longest allowed difference of clocks, in seconds.
const MAX_LEEWAY_S: u64 = 300;

/// The file as written.
#[derive(Debug, Clone, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct PolicyFile {
    /// Origins of pages that may call, besides those of the broker itself.
    #[serde(default)]
    pub origins: Vec<String>,
    /// Addresses whose `X-Forwarded-For` is believed.
    #[serde(default)]
    pub trusted_proxies: Vec<IpAddr>,
    /// Bounds on attempts.
    #[serde(default)]
    pub limits: Limits,
    /// What callers may do who show nothing.
    pub anonymous: Option<Anonymous>,
    /// Who has a password, or a name that keys go by.
    #[serde(default, rename = "principal")]
    pub principals: Vec<PrincipalText>,
    /// Whose tokens are accepted.
    #[serde(default, rename = "issuer")]
    pub issuers: Vec<IssuerText>,
}

/// Bounds on attempts.
#[derive(Debug, Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Failures in a row that an address may have before it has to wait.
    pub failures: u32,
    /// Seconds after which one failure is forgotten.
    pub failure_s: u32,
    /// Threads that check passwords and tokens.
    pub threads: u32,
    /// Seconds for which a password that was checked is not checked again.
    pub remember_s: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { failures: 20, failure_s: 6, threads: 2, remember_s: 300 }
    }
}

/// `[anonymous]`.
#[derive(Debug, Clone, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Anonymous {
    /// What everybody may do.
    pub grants: GrantsText,
}

/// `[[principal]]`.
#[derive(Debug, Clone, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct PrincipalText {
    /// The name.
    pub name: String,
    /// Hashes of the passwords it may use; several while one takes the place of another.
    pub password: Option<OneOrMore>,
    /// What it may do.
    #[serde(default)]
    pub grants: GrantsText,
}

/// `[[issuer]]`.
#[derive(Debug, Clone, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct IssuerText {
    /// The exact claim `iss`.
    pub issuer: String,
    /// One of these has to be in the claim `aud`.
    pub audience: OneOrMore,
    /// Its public keys: a file with a JWK set.
    pub jwks_file: Option<PathBuf>,
    /// Its public keys: where to get a JWK set.
    pub jwks_url: Option<String>,
    /// Seconds between two regular looks at the keys.
    #[serde(default = "refresh_s")]
    pub refresh_s: u64,
    /// Seconds that clocks may differ.
    #[serde(default = "leeway_s")]
    pub leeway_s: u64,
    /// The claim that names the principal.
    #[serde(default = "subject")]
    pub principal_claim: String,
    /// What every token of this issuer may do.
    #[serde(default)]
    pub grants: GrantsText,
    /// What tokens with certain claims may do besides.
    #[serde(default, rename = "role")]
    pub roles: Vec<RoleText>,
}

/// `[[issuer.role]]`.
#[derive(Debug, Clone, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct RoleText {
    /// A claim: text, text separated by spaces, or a list of texts.
    pub claim: String,
    /// The text that has to be in it.
    pub value: String,
    /// What such a token may do.
    pub grants: GrantsText,
}

fn refresh_s() -> u64 {
    600
}

fn leeway_s() -> u64 {
    30
}

fn subject() -> String {
    "sub".to_owned()
}

/// One text or several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
pub enum OneOrMore {
    /// One.
    One(String),
    /// Several.
    More(Vec<String>),
}

impl OneOrMore {
    /// All of them.
    #[must_use]
    pub fn texts(&self) -> &[String] {
        match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::More(texts) => texts,
        }
    }
}

/// Grants as written: `"*"`, or for each action the streams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected \"*\", or a table from actions to streams")]
pub enum GrantsText {
    /// `"*"`: everything.
    All(String),
    /// For each action, the patterns.
    Some(BTreeMap<String, OneOrMore>),
}

impl Default for GrantsText {
    fn default() -> Self {
        Self::Some(BTreeMap::new())
    }
}

impl GrantsText {
    /// The grants.
    ///
    /// # Errors
    /// What is wrong with them, in words.
    pub fn grants(&self) -> Result<Grants, String> {
        let allowed = match self {
            Self::All(text) if text == "*" => return Ok(Grants::all()),
            Self::All(text) => return Err(format!("grants are \"*\" or a table, not {text:?}")),
            Self::Some(allowed) => allowed,
        };
        let mut grants = Grants::default();
        for (word, patterns) in allowed {
            let actions = match word.strip_suffix(".*") {
                Some(group) => Action::ALL.into_iter().filter(|action| in_group(*action, group)).collect(),
                None => Action::parse(word).into_iter().collect::<Vec<_>>(),
            };
            if actions.is_empty() {
                let known = Action::ALL.map(Action::as_str).join(", ");
                return Err(format!("{word:?} is no action; there are {known}"));
            }
            for action in actions {
                patterns.texts().iter().for_each(|text| grants.add(action, Pattern::parse(text)));
            }
        }
        Ok(grants)
    }
}

fn in_group(action: Action, group: &str) -> bool {
    action.as_str().split_once('.').is_some_and(|(found, _)| found == group)
}

/// Reads a text file of bounded size.
pub(super) fn read(path: &Path) -> Result<String, AuthError> {
    let mut text = String::new();
    let opened = std::fs::File::open(path);
    opened
        .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text))
        .map_err(|error| AuthError::file(path, error))?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(AuthError::content(path, format!("the file is larger than {MAX_FILE_BYTES} bytes")));
    }
    Ok(text)
}

impl PolicyFile {
    /// Reads and checks a policy. Files it names count from its directory.
    ///
    /// # Errors
    /// The first thing wrong with it; the text of the file is not repeated.
    pub fn load(path: &Path) -> Result<Self, AuthError> {
        let text = read(path)?;
        let mut file = Self::parse(&text).map_err(|detail| AuthError::content(path, detail))?;
        let directory = path.parent().unwrap_or_else(|| Path::new(""));
        for issuer in &mut file.issuers {
            issuer.jwks_file = issuer.jwks_file.take().map(|named| directory.join(named));
        }
        Ok(file)
    }

    /// Parses and checks the text of a policy.
    ///
    /// # Errors
    /// The first thing wrong with it, with its line where that is known.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: Self = toml::from_str(text).map_err(|error| {
            // Not the library's own text: it quotes the line, which may hold a hash.
            let line = error.span().map(|span| text.get(..span.start).unwrap_or_default().matches('\n').count() + 1);
            line.map_or_else(|| error.message().to_owned(), |line| format!("line {line}: {}", error.message()))
        })?;
        file.check()?;
        Ok(file)
    }

    fn check(&self) -> Result<(), String> {
        if self.principals.len() > MAX_PRINCIPALS {
            return Err(format!("more than {MAX_PRINCIPALS} principals"));
        }
        let limits = self.limits;
        if limits.failures == 0 || limits.failure_s == 0 || !(1..=64).contains(&limits.threads) {
            return Err("limits: failures and failure_s are at least 1, threads 1 to 64".to_owned());
        }
        if let Some(anonymous) = &self.anonymous {
            anonymous.grants.grants().map_err(|detail| format!("anonymous: {detail}"))?;
        }
        for origin in &self.origins {
            if !is_origin(origin) {
                return Err(format!("{origin:?} is no origin; write it as browsers do, such as https://app.example"));
            }
        }
        let mut names = std::collections::HashSet::new();
        for principal in &self.principals {
            let named = |detail: String| format!("principal {:?}: {detail}", principal.name);
            if principal.name.is_empty() || principal.name.contains(':') || principal.name.chars().any(char::is_control)
            {
                return Err(named("a name has at least one character, no colon and no control characters".to_owned()));
            }
            if !names.insert(principal.name.as_str()) {
                return Err(named("it is there twice".to_owned()));
            }
            principal.grants.grants().map_err(named)?;
            for hash in principal.password.iter().flat_map(OneOrMore::texts) {
                let sound = PasswordHash::new(hash).is_ok_and(|hash| hash.algorithm.as_str().starts_with("argon2"));
                if !sound {
                    return Err(named(
                        "password is no argon2 hash; make one with `streamcast-uring keys password`".to_owned(),
                    ));
                }
            }
        }
        self.issuers
            .iter()
            .try_for_each(|issuer| issuer.check().map_err(|detail| format!("issuer {:?}: {detail}", issuer.issuer)))?;
        let mut issuers = std::collections::HashSet::new();
        match self.issuers.iter().find(|issuer| !issuers.insert(issuer.issuer.as_str())) {
            Some(twice) => Err(format!("issuer {:?}: it is there twice", twice.issuer)),
            None => Ok(()),
        }
    }
}

impl IssuerText {
    fn check(&self) -> Result<(), String> {
        if self.issuer.is_empty() || self.audience.texts().is_empty() {
            return Err("issuer and audience must be given".to_owned());
        }
        match (&self.jwks_file, &self.jwks_url) {
            (Some(_), None) => {}
            (None, Some(url)) if is_safe_url(url) => {}
            (None, Some(_)) => return Err("jwks_url must begin with https://, or http:// on this host".to_owned()),
            _ => return Err("either jwks_file or jwks_url must be given".to_owned()),
        }
        if self.leeway_s > MAX_LEEWAY_S || self.refresh_s < 10 {
            return Err(format!("leeway_s is at most {MAX_LEEWAY_S} and refresh_s at least 10"));
        }
        self.grants.grants()?;
        self.roles.iter().try_for_each(|role| role.grants.grants().map(drop))
    }
}

/// An origin as browsers write it: scheme, host, port, and nothing behind.
fn is_origin(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    rest.is_some_and(|rest| {
        !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_graphic() && !b"/?#*,".contains(&byte))
    })
}

/// Keys decide who is let in: they come over TLS, or from this host.
fn is_safe_url(url: &str) -> bool {
    if url.starts_with("https://") {
        return true;
    }
    let authority = url.strip_prefix("http://").and_then(|rest| rest.split('/').next());
    let Some(authority) = authority.filter(|authority| !authority.contains('@')) else { return false };
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    matches!(host, "127.0.0.1" | "[::1]" | "localhost")
}

#[cfg(test)]
mod tests {
    use super::super::action::Resource;
    use super::*;

    const HASH: &str = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$H2Nj02lFBPRaB6dqnTiCqA";

    fn wrong(text: &str) -> String {
        PolicyFile::parse(text).expect_err(text)
    }

    #[test]
    fn the_whole_of_a_policy_is_read() {
        let file = PolicyFile::parse(&format!(
            r#"
            origins = ["https://app.example:8443"]
            trusted_proxies = ["10.0.0.1", "::1"]
            [limits]
            failures = 5
            [anonymous.grants]
            "data.read" = "public.*"
            [[principal]]
            name = "ops"
            password = "{HASH}"
            grants = "*"
            [[principal]]
            name = "desk"
            password = ["{HASH}", "{HASH}"]
            [principal.grants]
            "data.*" = ["trades", "quotes.*"]
            "control.read" = ["/"]
            [[issuer]]
            issuer = "https://id.example"
            audience = "streamcast"
            jwks_url = "https://id.example/keys"
            [[issuer.role]]
            claim = "groups"
            value = "desk"
            [issuer.role.grants]
            "data.read" = "*"
            "#
        ))
        .unwrap();
        assert_eq!((file.limits.failures, file.limits.threads), (5, 2));
        assert_eq!(file.principals[0].grants.grants(), Ok(Grants::all()));
        let desk = file.principals[1].grants.grants().unwrap();
        assert!(desk.allow(Action::DataPublish, Resource::Stream("quotes.eu")));
        assert!(!desk.allow(Action::StatsRead, Resource::Stream("trades")));
        assert!(desk.allow(Action::ControlRead, Resource::Collection));
        assert!(!desk.allow(Action::ControlRead, Resource::Stream("trades")));
        assert_eq!((file.issuers[0].leeway_s, file.issuers[0].refresh_s), (30, 600));
    }

    #[test]
    fn what_is_wrong_is_named_and_secrets_are_not_repeated() {
        for (text, says) in [
            ("x = 1", "line 1: unknown field `x`"),
            ("origins = [\"app.example\"]", "no origin"),
            ("origins = [\"https://app.example/\"]", "no origin"),
            ("origins = [\"*\"]", "no origin"),
            ("\n[limits]\nfailures = 0", "at least 1"),
            ("[[principal]]\nname = \"a:b\"", "no colon"),
            ("[[principal]]\nname = \"a\"\n[[principal]]\nname = \"a\"", "twice"),
            ("[[principal]]\nname = \"a\"\npassword = \"hunter2\"", "argon2"),
            ("[[principal]]\nname = \"a\"\ngrants = \"all\"", "\"*\" or a table"),
            ("[[principal]]\nname = \"a\"\n[principal.grants]\n\"data.reed\" = \"*\"", "no action"),
            ("[[principal]]\nname = \"a\"\n[principal.grants]\n\"x.*\" = \"*\"", "no action"),
            ("[[issuer]]\nissuer = \"i\"\naudience = \"a\"", "either jwks_file or jwks_url"),
            ("[[issuer]]\nissuer = \"i\"\naudience = []\njwks_file = \"f\"", "audience"),
            ("[[issuer]]\nissuer = \"i\"\naudience = \"a\"\njwks_url = \"http://id.example/\"", "https://"),
            ("[[issuer]]\nissuer = \"i\"\naudience = \"a\"\njwks_url = \"http://localhost@evil/\"", "https://"),
            ("[[issuer]]\nissuer = \"i\"\naudience = \"a\"\njwks_file = \"f\"\nleeway_s = 301", "at most 300"),
        ] {
            let message = wrong(text);
            assert!(message.contains(says), "{text}: {message}");
            assert!(!message.contains("hunter2"), "{message}");
        }
        assert!(!wrong("[[principal]]\nname = \"a\"\npassword = 7 # hunter2").contains("hunter2"));
        for url in ["http://127.0.0.1:80/x", "http://localhost/x", "http://[::1]:9/x", "https://h/x"] {
            assert!(is_safe_url(url), "{url}");
        }
    }
}

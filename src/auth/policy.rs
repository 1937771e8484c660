//! A policy that was loaded: credentials to principals, and what has changed between two policies.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use argon2::password_hash::SaltString;
use argon2::password_hash::rand_core::OsRng;
use argon2::{Argon2, PasswordHash, PasswordHasher, PasswordVerifier};

use super::cache::Cache;
use super::credential::Credential;
use super::error::AuthError;
use super::file::{Limits, OneOrMore, PolicyFile};
use super::grants::Grants;
use super::keys::{self, Key, KeyFile};
use super::limiter::Pace;
use super::overview::{IssuerView, KeyView, Overview, PrincipalView, grants_view};
use super::principal::{ANONYMOUS, Origin, Principal};
use super::token::{self, Issuer};

/// Where a policy is read from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PolicySources {
    /// The policy file.
    pub policy: Option<PathBuf>,
    /// The file of keys.
    pub keys: Option<PathBuf>,
}

impl PolicySources {
    /// Whether there is any.
    #[must_use]
    pub fn any(&self) -> bool {
        self.policy.is_some() || self.keys.is_some()
    }
}

/// A policy in force.
pub struct Policy {
    /// What was found out about credentials under this policy.
    pub cache: Cache,
    /// Bounds on attempts.
    pub limits: Limits,
    /// Origins of other sites that may call.
    pub origins: Vec<String>,
    /// Addresses whose word about others is believed.
    pub trusted_proxies: Vec<std::net::IpAddr>,
    /// Whose tokens are accepted.
    pub issuers: Vec<Issuer>,
    anonymous: Option<Principal>,
    people: HashMap<String, Person>,
    keys: HashMap<String, (Key, Principal)>,
    /// What the password of somebody who does not exist is compared with, so that it takes as long.
    decoy: String,
}

struct Person {
    hashes: Vec<Arc<str>>,
    grants: Grants,
}

impl Policy {
    /// Reads a policy and the keys of issuers.
    ///
    /// # Errors
    /// The first thing wrong with a file. Keys of issuers that cannot be read are only reported.
    pub fn load(sources: &PolicySources) -> Result<Self, AuthError> {
        let file = sources.policy.as_deref().map(PolicyFile::load).transpose()?.unwrap_or_default();
        let nameless = PathBuf::from("policy");
        let policy_path = sources.policy.as_ref().unwrap_or(&nameless);
        let wrong = |detail: String| AuthError::content(policy_path, detail);
        let mut people = HashMap::new();
        for text in &file.principals {
            let hashes = text.password.iter().flat_map(OneOrMore::texts).map(|hash| Arc::from(hash.as_str())).collect();
            people.insert(text.name.clone(), Person { hashes, grants: text.grants.grants().map_err(wrong)? });
        }
        let keys = match &sources.keys {
            Some(path) => keys(path, &people)?,
            None => HashMap::new(),
        };
        let issuers = file.issuers.iter().map(Issuer::new).collect::<Result<Vec<_>, _>>().map_err(wrong)?;
        for issuer in &issuers {
            issuer.keyring.look(Instant::now());
        }
        let anonymous = match &file.anonymous {
            Some(anonymous) => Some(Principal::new(ANONYMOUS, anonymous.grants.grants().map_err(wrong)?, None)),
            None => None,
        };
        let first = people.values().find_map(|person: &Person| person.hashes.first());
        let decoy = match first {
            Some(hash) => hash.to_string(),
            None => hash_password("").map_err(wrong)?,
        };
        Ok(Self {
            cache: Cache::new(Duration::from_secs(u64::from(file.limits.remember_s))),
            limits: file.limits,
            origins: file.origins,
            trusted_proxies: file.trusted_proxies,
            issuers,
            anonymous,
            people,
            keys,
            decoy,
        })
    }

    /// Who callers are that show nothing, if they may do anything.
    #[must_use]
    pub fn anonymous(&self) -> Option<&Principal> {
        self.anonymous.as_ref()
    }

    /// What it says, without anything that lets anybody in.
    #[must_use]
    pub fn overview(&self, now: SystemTime) -> Overview {
        let now_s = keys::unix_s(now);
        let keys_of = |name: &str| self.keys.values().filter(|(key, _)| key.name == name).count();
        let mut principals: Vec<PrincipalView> = self
            .people
            .iter()
            .map(|(name, person)| PrincipalView {
                name: name.clone(),
                passwords: person.hashes.len(),
                keys: keys_of(name),
                grants: grants_view(&person.grants),
            })
            .collect();
        principals.sort_by(|one, other| one.name.cmp(&other.name));
        let mut listed: Vec<KeyView> = self
            .keys
            .values()
            .map(|(key, principal)| KeyView {
                id: key.id.clone(),
                name: key.name.clone(),
                created: key.created,
                expires: key.expires,
                expired: key.expires.is_some_and(|expires| expires <= now_s),
                own_grants: key.grants.is_some(),
                grants: grants_view(principal.grants()),
            })
            .collect();
        listed.sort_by(|one, other| one.id.cmp(&other.id));
        let issuers = self.issuers.iter().map(|known| IssuerView {
            issuer: known.text.issuer.clone(),
            grants: known.text.grants.grants().map(|grants| grants_view(&grants)).unwrap_or_default(),
        });
        Overview {
            anonymous: self.anonymous.as_ref().map(|anonymous| grants_view(anonymous.grants())),
            issuers: issuers.collect(),
            principals,
            keys: listed,
        }
    }

    /// How fast an address may fail.
    #[must_use]
    pub fn pace(&self) -> Pace {
        Pace { failures: self.limits.failures, each: Duration::from_secs(u64::from(self.limits.failure_s)) }
    }

    /// The principal of a key, in microseconds.
    #[must_use]
    pub fn key(&self, key: &str, now: SystemTime) -> Option<Principal> {
        let (kept, principal) = self.keys.get(keys::id_of(key)?)?;
        kept.matches(key, now).then(|| principal.clone())
    }

    /// The principal of a password or token. It takes milliseconds and more of a processor, and sometimes a request to
    /// an issuer: not for a thread that others wait for.
    #[must_use]
    pub fn check(&self, credential: &Credential, now: Instant) -> Option<Principal> {
        match credential {
            Credential::Password { user, password } => self.password(user, password),
            Credential::Key(key) => self.key(key, SystemTime::now()),
            Credential::Token(token) => token::verify(&self.issuers, token, now),
            Credential::Ticket(_) => None,
        }
    }

    fn password(&self, user: &str, password: &str) -> Option<Principal> {
        let person = self.people.get(user).filter(|person| !person.hashes.is_empty());
        let Some(person) = person else {
            let _ = verifies(&self.decoy, password);
            return None;
        };
        let hash = person.hashes.iter().find(|hash| verifies(hash, password))?;
        Some(Principal::new(user, person.grants.clone(), None).from(Origin::Password(Arc::clone(hash))))
    }

    /// What a principal of an earlier policy is under this one; `None` if it has to show its credentials again.
    #[must_use]
    pub fn renewed(&self, principal: &Principal, now: SystemTime) -> Option<Principal> {
        if principal.expires().is_some_and(|expires| expires <= now) {
            return None;
        }
        match principal.origin() {
            Origin::Everybody => self.anonymous.clone().filter(|_| principal.is_anonymous()),
            Origin::Password(hash) => {
                let person = self.people.get(principal.name()).filter(|person| person.hashes.contains(hash))?;
                let renewed = Principal::new(principal.name(), person.grants.clone(), None);
                Some(renewed.from(Origin::Password(Arc::clone(hash))))
            }
            Origin::Key(id) => self.keys.get(id).map(|(_, renewed)| renewed.clone()),
            Origin::Token(issuer) => {
                self.issuers.iter().any(|known| known.text.issuer == *issuer).then(|| principal.clone())
            }
        }
    }
}

fn keys(path: &Path, people: &HashMap<String, Person>) -> Result<HashMap<String, (Key, Principal)>, AuthError> {
    let mut keys = HashMap::new();
    for key in KeyFile::load(path)?.keys {
        let grants = match &key.grants {
            Some(own) => {
                own.grants().map_err(|detail| AuthError::content(path, format!("key {}: {detail}", key.id)))?
            }
            None => people.get(&key.name).map(|person| person.grants.clone()).unwrap_or_default(),
        };
        let principal = Principal::new(&key.name, grants, key.expires_at()).from(Origin::Key(key.id.clone()));
        keys.insert(key.id.clone(), (key, principal));
    }
    Ok(keys)
}

fn verifies(hash: &str, password: &str) -> bool {
    PasswordHash::new(hash).is_ok_and(|hash| Argon2::default().verify_password(password.as_bytes(), &hash).is_ok())
}

/// Hashes a password as policies keep it.
///
/// # Errors
/// The library's words; not for any password that is not absurdly long.
pub fn hash_password(password: &str) -> Result<String, String> {
    let salt = SaltString::generate(&mut OsRng);
    Argon2::default()
        .hash_password(password.as_bytes(), &salt)
        .map(|hash| hash.to_string())
        .map_err(|error| error.to_string())
}

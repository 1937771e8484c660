//! Tokens of others: JSON Web Tokens with a signature of a known issuer.

use std::time::{Duration, Instant, UNIX_EPOCH};

use jsonwebtoken::{Algorithm, Validation, decode};
use serde_json::{Map, Value};

use super::file::IssuerText;
use super::grants::Grants;
use super::keyring::{Keyring, Verifier};
use super::principal::{Origin, Principal};
use super::unverified::{self, Header};

/// The longest name a token may give its principal, in bytes.
const MAX_NAME_BYTES: usize = 512;

/// An issuer whose tokens are accepted.
pub struct Issuer {
    /// As declared.
    pub text: IssuerText,
    /// Its keys.
    pub keyring: Keyring,
    grants: Grants,
    roles: Vec<(String, String, Grants)>,
}

impl Issuer {
    /// An issuer as declared.
    ///
    /// # Errors
    /// What is wrong with its grants.
    pub fn new(text: &IssuerText) -> Result<Self, String> {
        let roles = text.roles.iter().map(|role| Ok((role.claim.clone(), role.value.clone(), role.grants.grants()?)));
        Ok(Self {
            keyring: Keyring::new(text),
            grants: text.grants.grants()?,
            roles: roles.collect::<Result<_, String>>()?,
            text: text.clone(),
        })
    }

    /// The principal of a token of this issuer, if it is one.
    fn verify(&self, token: &str, header: &Header, now: Instant) -> Option<Principal> {
        let algorithm = match header.alg.as_str() {
            "RS256" => Algorithm::RS256,
            "ES256" => Algorithm::ES256,
            "EdDSA" => Algorithm::EdDSA,
            _ => return None,
        };
        if header.crit.is_some() {
            return None;
        }
        let fits = |key: &Verifier| {
            header.kid.as_ref().is_none_or(|id| key.id.as_ref() == Some(id))
                && key.algorithm.as_ref().is_none_or(|only| *only == header.alg)
                && key.key.family() == algorithm.family()
        };
        if !self.keyring.keys().iter().any(fits) && !self.keyring.look_for_unknown(now) {
            return None;
        }
        let mut validation = Validation::new(algorithm);
        validation.set_issuer(&[&self.text.issuer]);
        validation.set_audience(self.text.audience.texts());
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        validation.validate_nbf = true;
        validation.leeway = self.text.leeway_s;
        let keys = self.keyring.keys();
        let mut tried = keys.iter().filter(|key| fits(key));
        tried.find_map(|key| {
            let claims = decode::<Map<String, Value>>(token, &key.key, &validation).ok()?.claims;
            self.principal(&claims)
        })
    }

    fn principal(&self, claims: &Map<String, Value>) -> Option<Principal> {
        let subject = claims.get(&self.text.principal_claim)?.as_str()?;
        let sound = !subject.is_empty() && subject.len() <= MAX_NAME_BYTES && !subject.chars().any(char::is_control);
        let expires_s = claims.get("exp")?.as_f64().filter(|expires| (0.0..1e12).contains(expires))?;
        let expires = UNIX_EPOCH + Duration::from_secs_f64(expires_s) + Duration::from_secs(self.text.leeway_s);
        let mut grants = self.grants.clone();
        for (claim, value, more) in &self.roles {
            if claims.get(claim).is_some_and(|found| holds(found, value)) {
                grants.merge(more);
            }
        }
        let name = format!("{}:{subject}", self.text.issuer);
        let origin = Origin::Token(self.text.issuer.clone());
        sound.then(|| Principal::new(name, grants, Some(expires)).from(origin))
    }
}

/// Whether a claim is a text, a text of words, or a list of texts that holds `value`.
fn holds(claim: &Value, value: &str) -> bool {
    match claim {
        Value::String(text) => text == value || text.split(' ').any(|word| word == value),
        Value::Array(items) => items.iter().any(|item| item.as_str() == Some(value)),
        _ => false,
    }
}

/// The principal of a token, if one of the issuers has signed it and it is valid now.
pub fn verify(issuers: &[Issuer], token: &str, now: Instant) -> Option<Principal> {
    // Whose token it says it is decides whose keys are tried; nothing of it is believed before that.
    let (header, named) = unverified::read(token)?;
    issuers.iter().find(|issuer| issuer.text.issuer == named)?.verify(token, &header, now)
}

#[cfg(test)]
mod tests;

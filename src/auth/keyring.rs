//! The public keys of an issuer: read from a file or fetched, and looked at again when that can help.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jsonwebtoken::DecodingKey;
use jsonwebtoken::jwk::{Jwk, JwkSet, PublicKeyUse};

use super::file::{IssuerText, read};

/// Largest key set that is read, in bytes.
const MAX_SET_BYTES: usize = 512 * 1024;
/// Most keys of a set.
const MAX_KEYS: usize = 64;
/// Between two looks that tokens with unknown keys ask for.
const MIN_PERIOD: Duration = Duration::from_secs(15);
/// How long a fetch may take.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// Where keys come from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    File(std::path::PathBuf),
    Url(String),
}

/// The keys of one issuer.
pub struct Keyring {
    source: Source,
    period: Duration,
    state: Mutex<State>,
    /// Held while the keys are looked at, so that one thread does it.
    looking: Mutex<()>,
}

#[derive(Default)]
struct State {
    keys: Arc<Vec<Verifier>>,
    looked: Option<Instant>,
}

/// A key that can check signatures.
pub struct Verifier {
    /// Its name.
    pub id: Option<String>,
    /// The one algorithm it is for, if its set says so.
    pub algorithm: Option<String>,
    /// The key.
    pub key: DecodingKey,
}

impl Keyring {
    /// The keys of an issuer, not looked at yet.
    pub fn new(issuer: &IssuerText) -> Self {
        let source = match (&issuer.jwks_file, &issuer.jwks_url) {
            (Some(path), _) => Source::File(path.clone()),
            (None, url) => Source::Url(url.clone().unwrap_or_default()),
        };
        let period = Duration::from_secs(issuer.refresh_s);
        Self { source, period, state: Mutex::default(), looking: Mutex::new(()) }
    }

    /// The keys there are.
    pub fn keys(&self) -> Arc<Vec<Verifier>> {
        Arc::clone(&self.state.lock().unwrap_or_else(PoisonError::into_inner).keys)
    }

    /// Whether a regular look is due.
    pub fn is_due(&self, now: Instant) -> bool {
        self.older_than(self.period, now)
    }

    /// Looks again because a token names a key that is not there, but not too often. True if it looked.
    pub fn look_for_unknown(&self, now: Instant) -> bool {
        self.older_than(MIN_PERIOD, now) && self.look(now)
    }

    /// Looks at the keys again; false if another thread does so now. What is wrong with them goes to the log, and those
    /// from before stay.
    pub fn look(&self, now: Instant) -> bool {
        let Ok(_looking) = self.looking.try_lock() else { return false };
        self.state.lock().unwrap_or_else(PoisonError::into_inner).looked = Some(now);
        let found = match &self.source {
            Source::File(path) => read(path).map_err(|error| error.to_string()),
            Source::Url(url) => fetch(url).map_err(|error| format!("{url}: {error}")),
        };
        match found.and_then(|text| parse(&text)) {
            Ok(keys) => self.state.lock().unwrap_or_else(PoisonError::into_inner).keys = Arc::new(keys),
            Err(error) => tracing::warn!(%error, "the keys of a token issuer cannot be read; those from before stay"),
        }
        true
    }

    fn older_than(&self, age: Duration, now: Instant) -> bool {
        let looked = self.state.lock().unwrap_or_else(PoisonError::into_inner).looked;
        looked.is_none_or(|looked| now.saturating_duration_since(looked) >= age)
    }
}

/// The keys of a set that are for signatures; others are passed over.
fn parse(text: &str) -> Result<Vec<Verifier>, String> {
    let set: serde_json::Value = serde_json::from_str(text).map_err(|error| format!("not a key set: {error}"))?;
    let listed = set.get("keys").and_then(|keys| keys.as_array()).ok_or("not a key set: no list `keys`")?;
    if listed.len() > MAX_KEYS {
        return Err(format!("the key set has more than {MAX_KEYS} keys"));
    }
    // One by one: a set may hold keys of kinds that are not known here.
    let known = listed.iter().filter_map(|key| serde_json::from_value::<Jwk>(key.clone()).ok());
    let set = JwkSet { keys: known.collect() };
    Ok(set.keys.iter().filter_map(verifier).collect())
}

fn verifier(key: &Jwk) -> Option<Verifier> {
    let signs = key.common.public_key_use.as_ref().is_none_or(|purpose| *purpose == PublicKeyUse::Signature);
    let algorithm = key.common.key_algorithm.map(|algorithm| algorithm.to_string());
    let id = key.common.key_id.clone();
    DecodingKey::from_jwk(key).ok().filter(|_| signs).map(|key| Verifier { id, algorithm, key })
}

/// Gets a key set over HTTP. Runs on a thread that may wait.
fn fetch(url: &str) -> Result<String, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    runtime.block_on(async {
        tokio::time::timeout(FETCH_TIMEOUT, get(url)).await.unwrap_or_else(|_| Err("no answer in time".to_owned()))
    })
}

async fn get(url: &str) -> Result<String, String> {
    let client = reqwest::Client::builder()
        .use_preconfigured_tls(crate::tls::client_config(None).map_err(|error| error.to_string())?)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .build()
        .map_err(|error| error.to_string())?;
    let mut response = client.get(url).send().await.map_err(|error| error.without_url().to_string())?;
    if !response.status().is_success() {
        return Err(format!("status {}", response.status().as_u16()));
    }
    let mut body = Vec::new();
    while let Some(bytes) = response.chunk().await.map_err(|error| error.without_url().to_string())? {
        body.extend_from_slice(&bytes);
        if body.len() > MAX_SET_BYTES {
            return Err(format!("the key set is larger than {MAX_SET_BYTES} bytes"));
        }
    }
    String::from_utf8(body).map_err(|_| "the key set is not UTF-8".to_owned())
}

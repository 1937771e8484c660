//! What was found out about credentials lately, so that a password is hashed once and not for every connection.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::credential::Fingerprint;
use super::principal::Principal;

/// Credentials that are remembered; the oldest go.
const MAX_REMEMBERED: usize = 16_384;
/// How long a wrong credential is remembered.
const WRONG_FOR: Duration = Duration::from_secs(10);

/// What is known of credentials, by fingerprint. It belongs to one policy and goes with it.
pub struct Cache {
    known: Mutex<Known>,
    right_for: Duration,
}

#[derive(Default)]
struct Known {
    entries: HashMap<Fingerprint, (Option<Principal>, Instant)>,
    order: VecDeque<Fingerprint>,
}

impl Cache {
    /// Remembers right credentials for this long.
    pub fn new(right_for: Duration) -> Self {
        Self { known: Mutex::default(), right_for }
    }

    /// The principal of a credential, `Some(None)` for one that is wrong, `None` for one that must be checked.
    pub fn get(&self, fingerprint: &Fingerprint, now: Instant) -> Option<Option<Principal>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (found, until) = known.entries.get(fingerprint)?;
        (now < *until).then(|| found.clone())
    }

    /// Remembers what was found out.
    pub fn put(&self, fingerprint: Fingerprint, found: Option<Principal>, now: Instant) {
        let keep = if found.is_some() { self.right_for } else { WRONG_FOR };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.entries.insert(fingerprint, (found, now + keep)).is_none() {
            known.order.push_back(fingerprint);
        }
        while known.order.len() > MAX_REMEMBERED {
            if let Some(oldest) = known.order.pop_front() {
                known.entries.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn right_and_wrong_are_remembered_for_their_time() {
        let (cache, now) = (Cache::new(Duration::from_secs(300)), Instant::now());
        cache.put([1; 32], Some(Principal::public()), now);
        cache.put([2; 32], None, now);
        assert_eq!(cache.get(&[1; 32], now + Duration::from_secs(299)), Some(Some(Principal::public())));
        assert_eq!(cache.get(&[1; 32], now + Duration::from_secs(300)), None);
        assert_eq!(cache.get(&[2; 32], now), Some(None));
        assert_eq!(cache.get(&[2; 32], now + WRONG_FOR), None);
        assert_eq!(cache.get(&[3; 32], now), None);
    }

    #[test]
    fn it_does_not_grow_without_end() {
        let (cache, now) = (Cache::new(Duration::from_secs(300)), Instant::now());
        for number in 0..MAX_REMEMBERED as u64 + 10 {
            let mut fingerprint = [0; 32];
            fingerprint[..8].copy_from_slice(&number.to_le_bytes());
            cache.put(fingerprint, None, now);
            cache.put(fingerprint, None, now);
        }
        let known = cache.known.lock().unwrap();
        assert_eq!((known.entries.len(), known.order.len()), (MAX_REMEMBERED, MAX_REMEMBERED));
    }
}

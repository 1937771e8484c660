//! Failures by address: who guesses has to wait.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Addresses that are kept; the ones without recent failures go first.
const MAX_ADDRESSES: usize = 65_536;

/// Counts failures of addresses. An IPv6 address counts with its whole /64, which one host has for itself.
pub struct Limiter {
    table: Mutex<HashMap<IpAddr, (f64, Instant)>>,
}

/// How many failures are too many.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Failures at once.
    pub failures: u32,
    /// After this time one is forgotten.
    pub each: Duration,
}

impl Limiter {
    /// Nobody has failed yet.
    pub fn new() -> Self {
        Self { table: Mutex::default() }
    }

    /// Whether an address has failed so often that it is not listened to now.
    pub fn blocks(&self, address: IpAddr, pace: Pace, now: Instant) -> bool {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = table.get(&network(address)).map_or(0.0, |(failures, at)| left(*failures, *at, pace, now));
        // Forgetting is gradual: an address that waited for one failure to be forgotten may try once.
        counted + 1.0 > f64::from(pace.failures)
    }

    /// Counts a failure; true if the address is blocked from now on and was not before.
    pub fn failed(&self, address: IpAddr, pace: Pace, now: Instant) -> bool {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let address = network(address);
        if table.len() >= MAX_ADDRESSES && !table.contains_key(&address) {
            table.retain(|_, (failures, at)| left(*failures, *at, pace, now) > 0.0);
            if table.len() >= MAX_ADDRESSES
                && let Some(any) = table.keys().next().copied()
            {
                table.remove(&any);
            }
        }
        let (failures, at) = table.entry(address).or_insert((0.0, now));
        let before = left(*failures, *at, pace, now);
        let limit = f64::from(pace.failures);
        (*failures, *at) = ((before + 1.0).min(limit), now);
        before + 1.0 <= limit && before + 2.0 > limit
    }
}

fn left(failures: f64, at: Instant, pace: Pace, now: Instant) -> f64 {
    let forgotten = now.saturating_duration_since(at).as_secs_f64() / pace.each.as_secs_f64().max(1e-3);
    (failures - forgotten).max(0.0)
}

fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace { failures: 3, each: Duration::from_secs(10) };

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn after_some_failures_an_address_waits_for_each_to_be_forgotten() {
        let (limiter, now) = (Limiter::new(), Instant::now());
        let me = ip("10.0.0.1");
        assert_eq!([(); 3].map(|()| limiter.failed(me, PACE, now)), [false, false, true]);
        assert!(limiter.blocks(me, PACE, now) && limiter.blocks(me, PACE, now + Duration::from_secs(9)));
        assert!(!limiter.blocks(me, PACE, now + Duration::from_secs(10)));
        assert!(limiter.failed(me, PACE, now + Duration::from_secs(10)));
        assert!(limiter.blocks(me, PACE, now + Duration::from_secs(19)));
        assert!(!limiter.blocks(me, PACE, now + Duration::from_secs(60)));
        assert!(!limiter.blocks(ip("10.0.0.2"), PACE, now));
    }

    #[test]
    fn an_address_is_the_same_in_both_notations_and_a_network_of_version_6_is_one() {
        let (limiter, now) = (Limiter::new(), Instant::now());
        for address in ["10.0.0.1", "::ffff:10.0.0.1", "10.0.0.1"] {
            limiter.failed(ip(address), PACE, now);
        }
        assert!(limiter.blocks(ip("::ffff:10.0.0.1"), PACE, now));
        for address in ["2001:db8::1", "2001:db8::2", "2001:db8::ffff:0:0:3"] {
            limiter.failed(ip(address), PACE, now);
        }
        assert!(limiter.blocks(ip("2001:db8::4"), PACE, now) && !limiter.blocks(ip("2001:db8:0:1::1"), PACE, now));
    }

    #[test]
    fn the_table_does_not_grow_without_end() {
        let (limiter, now) = (Limiter::new(), Instant::now());
        for number in 0..MAX_ADDRESSES as u32 + 100 {
            limiter.failed(IpAddr::from(number.to_be_bytes()), PACE, now);
        }
        assert!(limiter.table.lock().unwrap().len() <= MAX_ADDRESSES);
    }
}

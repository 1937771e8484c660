//! Tickets: what a page of a browser shows in the URL of a WebSocket, where it can set no header. A ticket is good once
//! and for seconds, so that a URL in somebody's log is worth nothing.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use argon2::password_hash::rand_core::{OsRng, RngCore};
use data_encoding::BASE64URL_NOPAD;
use sha2::{Digest, Sha256};

use super::principal::Principal;

/// How long a ticket is good.
pub const TICKET_LIFETIME: Duration = Duration::from_secs(30);
/// Tickets that may be given out in that time.
const MAX_TICKETS: usize = 4_096;
/// Tickets that one principal may get in that time.
const MAX_TICKETS_EACH: usize = 256;

/// The tickets that are out.
#[derive(Default)]
pub struct Tickets(Mutex<Out>);

type Hash = [u8; 32];

#[derive(Default)]
struct Out {
    tickets: HashMap<Hash, Principal>,
    /// In the order they were given out, which is the order in which they end. Used ones stay until then.
    order: VecDeque<(Instant, Hash, String)>,
    /// How many each principal has in `order`.
    each: HashMap<String, usize>,
}

impl Out {
    fn tidy(&mut self, now: Instant) {
        while self.order.front().is_some_and(|(until, ..)| *until <= now) {
            let Some((_, hash, name)) = self.order.pop_front() else { return };
            self.tickets.remove(&hash);
            if let Some(count) = self.each.get_mut(&name) {
                *count -= 1;
                if *count == 0 {
                    self.each.remove(&name);
                }
            }
        }
    }
}

impl Tickets {
    /// A new ticket for a principal, unless too many are out.
    pub fn issue(&self, principal: &Principal, now: Instant) -> Option<String> {
        let mut out = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        out.tidy(now);
        let mine = out.each.get(principal.name()).copied().unwrap_or(0);
        if out.order.len() >= MAX_TICKETS || mine >= MAX_TICKETS_EACH {
            return None;
        }
        let mut random = [0; 32];
        OsRng.fill_bytes(&mut random);
        let ticket = BASE64URL_NOPAD.encode(&random);
        let hash = Hash::from(Sha256::digest(&ticket));
        out.tickets.insert(hash, principal.clone());
        out.order.push_back((now + TICKET_LIFETIME, hash, principal.name().to_owned()));
        out.each.insert(principal.name().to_owned(), mine + 1);
        Some(ticket)
    }

    /// Whose ticket this is; it is used up.
    pub fn redeem(&self, ticket: &str, now: Instant) -> Option<Principal> {
        let mut out = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        out.tidy(now);
        out.tickets.remove(&Hash::from(Sha256::digest(ticket)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::grants::Grants;
    use super::*;

    #[test]
    fn a_ticket_is_good_once_and_for_a_while() {
        let (tickets, now) = (Tickets::default(), Instant::now());
        let me = Principal::new("me", Grants::all(), None);
        let ticket = tickets.issue(&me, now).unwrap();
        assert_eq!(tickets.redeem("x", now), None);
        assert_eq!(tickets.redeem(&ticket, now), Some(me.clone()));
        assert_eq!(tickets.redeem(&ticket, now), None);
        let late = tickets.issue(&me, now).unwrap();
        assert_eq!(tickets.redeem(&late, now + TICKET_LIFETIME), None);
    }

    #[test]
    fn nobody_can_have_all_the_tickets() {
        let (tickets, now) = (Tickets::default(), Instant::now());
        let named = |name: &str| Principal::new(name, Grants::all(), None);
        for _ in 0..MAX_TICKETS_EACH {
            assert!(tickets.issue(&named("a"), now).is_some());
        }
        assert!(tickets.issue(&named("a"), now).is_none() && tickets.issue(&named("b"), now).is_some());
        assert!(tickets.issue(&named("a"), now + TICKET_LIFETIME).is_some());
        {
            let out = tickets.0.lock().unwrap();
            assert_eq!((out.tickets.len(), out.each.len(), out.order.len()), (1, 1, 1));
        }
        for number in 0..MAX_TICKETS {
            tickets.issue(&named(&(number / 200).to_string()), now + TICKET_LIFETIME);
        }
        assert!(tickets.issue(&named("c"), now + TICKET_LIFETIME).is_none());
    }
}

//! A made-up market: several instruments on several venues, with the habits of real ones. Trades come in bursts,
//! volatility clusters, the signs of trades persist, sizes have a heavy tail, prices keep to their tick.
//!
//! The same seed, starting time and rate make the same trades, one after the other.

mod arrivals;
mod instruments;
mod price;
mod random;

use std::fmt::Write as _;

use self::arrivals::Arrivals;
use self::instruments::{INSTRUMENTS, Instrument, VENUES};
use self::price::PricePath;
use self::random::Random;
use super::feed::Source;

/// Chance that a trade has the sign of the instrument's trade before it.
const SIGN_PERSISTENCE: f64 = 0.72;
/// Exponent of the tail of sizes: with 1.6 the mean exists and the variance does not.
const SIZE_TAIL: f64 = 1.6;
/// The largest size in medians.
const MAX_SIZE_MEDIANS: f64 = 5_000.0;

/// One trade.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trade {
    /// When it happened, in microseconds since 1970.
    pub event_us: i64,
    /// What was traded.
    pub symbol: &'static str,
    /// Where.
    pub venue: &'static str,
    /// At what price, a multiple of the instrument's tick.
    pub price: f64,
    /// How much, a multiple of the instrument's lot.
    pub amount: f64,
    /// 1 if the buyer took the offer, -1 if the seller took the bid.
    pub side: i32,
}

/// The market, at some moment.
pub struct Market {
    random: Random,
    arrivals: Arrivals,
    books: Vec<Book>,
    /// A Brownian path that all instruments follow in part.
    common: f64,
    common_at_s: f64,
    start_us: i64,
    next_at_s: f64,
}

/// The state of one instrument.
struct Book {
    instrument: &'static Instrument,
    path: PricePath,
    common_before: f64,
    last_side: i32,
}

impl Market {
    /// A market that opens at `start_us` (microseconds since 1970) with `rate_rows_per_s` trades a second on average.
    #[must_use]
    pub fn new(seed: u64, start_us: i64, rate_rows_per_s: f64) -> Self {
        let mut random = Random::new(seed ^ start_us.unsigned_abs());
        let books = INSTRUMENTS.iter().map(|instrument| Book::new(instrument, &mut random)).collect();
        let mut arrivals = Arrivals::new(rate_rows_per_s);
        let next_at_s = arrivals.next(&mut random);
        Self { random, arrivals, books, common: 0.0, common_at_s: 0.0, start_us, next_at_s }
    }

    /// When the next trade happens, in microseconds since 1970.
    #[must_use]
    pub fn next_at_us(&self) -> i64 {
        self.start_us.saturating_add((self.next_at_s * 1e6) as i64)
    }

    /// The next trade.
    pub fn next_trade(&mut self) -> Trade {
        let (at_s, event_us) = (self.next_at_s, self.next_at_us());
        let random = &mut self.random;
        self.common += (at_s - self.common_at_s).max(0.0).sqrt() * random.normal();
        self.common_at_s = at_s;
        let book = random.weighted(&mut self.books, |book| book.instrument.weight);
        let trade = book.trade(random, at_s, event_us, self.common, self.arrivals.stress());
        self.next_at_s = self.arrivals.next(random);
        trade
    }
}

impl Book {
    fn new(instrument: &'static Instrument, random: &mut Random) -> Self {
        let path = PricePath::new(instrument.price, instrument.daily_volatility, random);
        Self { instrument, path, common_before: 0.0, last_side: random.sign() }
    }

    fn trade(&mut self, random: &mut Random, at_s: f64, event_us: i64, common: f64, stress: f64) -> Trade {
        let moved = common - std::mem::replace(&mut self.common_before, common);
        self.path.advance(random, at_s, moved * self.instrument.common_share, self.instrument.common_share, stress);
        if random.uniform() > SIGN_PERSISTENCE {
            self.last_side = random.sign();
        }
        let amount = self.amount(random);
        let tick = self.instrument.tick();
        let half_spread = self.path.half_spread(tick);
        let price = self.path.price() + f64::from(self.last_side) * half_spread;
        self.path.push(f64::from(self.last_side), amount / self.instrument.median_amount);
        Trade {
            event_us,
            symbol: self.instrument.symbol,
            venue: random.weighted_index(&self.instrument.venue_weights).map_or(VENUES[0], |index| VENUES[index]),
            price: self.instrument.to_tick(price),
            amount,
            side: self.last_side,
        }
    }

    /// A size with a heavy tail; people like round ones.
    fn amount(&self, random: &mut Random) -> f64 {
        let instrument = self.instrument;
        let medians = if random.uniform() < 0.2 {
            [0.5, 1.0, 2.0, 5.0, 10.0, 20.0][random.below(6)]
        } else if random.uniform() < 0.06 {
            4.0 * random.uniform().max(1e-9).powf(-1.0 / SIZE_TAIL)
        } else {
            (0.9 * random.normal()).exp()
        };
        instrument.to_lot(medians.min(MAX_SIZE_MEDIANS) * instrument.median_amount)
    }
}

impl Source for Market {
    fn due_us(&self) -> i64 {
        self.next_at_us()
    }

    fn write_row(&mut self, out: &mut String) {
        let trade = self.next_trade();
        // Symbols and venues are our own words and need no escaping; Debug prints a double with a point, shortest.
        let _ = write!(
            out,
            r#"{{"event_ts":{},"symbol":"{}","venue":"{}","price":{:?},"amount":{:?},"side":{}}}"#,
            trade.event_us, trade.symbol, trade.venue, trade.price, trade.amount, trade.side
        );
    }

    fn skip_to(&mut self, now_us: i64) {
        let late_us = now_us.saturating_sub(self.next_at_us()).max(0);
        self.start_us = self.start_us.saturating_add(late_us);
    }
}

#[cfg(test)]
mod tests;

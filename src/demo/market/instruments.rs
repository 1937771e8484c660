//! What is traded and where.

/// The venues. They do not exist.
pub const VENUES: [&str; 4] = ["NORTH", "HARBOR", "MERIDIAN", "DELTA"];

/// An instrument and its habits.
pub struct Instrument {
    pub symbol: &'static str,
    /// Price at the opening.
    pub price: f64,
    /// Smallest step of the price, in units of the last of its decimals.
    pub tick_units: i64,
    pub price_decimals: i32,
    pub amount_decimals: i32,
    pub median_amount: f64,
    /// Standard deviation of a day's return.
    pub daily_volatility: f64,
    /// How much of it comes from the market as a whole, from 0 to 1.
    pub common_share: f64,
    /// How often it is traded, against the others.
    pub weight: f64,
    pub venue_weights: [f64; VENUES.len()],
}

impl Instrument {
    /// The step of the price.
    pub fn tick(&self) -> f64 {
        self.tick_units as f64 / 10f64.powi(self.price_decimals)
    }

    /// The nearest price that can be quoted, at least one tick.
    pub fn to_tick(&self, price: f64) -> f64 {
        let ticks = (price / self.tick()).round().max(1.0);
        // One division of whole numbers: the double nearest to the decimal, which prints as that decimal.
        ticks * self.tick_units as f64 / 10f64.powi(self.price_decimals)
    }

    /// The nearest amount that can be traded, at least one lot.
    pub fn to_lot(&self, amount: f64) -> f64 {
        let scale = 10f64.powi(self.amount_decimals);
        (amount * scale).round().max(1.0) / scale
    }
}

/// Columns in the order of the struct's fields.
#[rustfmt::skip]
pub const INSTRUMENTS: [Instrument; 8] = [
    instrument("BTC-USD", 64_250.0,  (5, 1), (4, 0.05),     0.030,  0.75, 30.0, [5.0, 3.0, 2.0, 1.0]),
    instrument("ETH-USD", 3_180.0,   (1, 2), (3, 0.6),      0.036,  0.75, 22.0, [3.0, 4.0, 2.0, 1.0]),
    instrument("SOL-USD", 148.0,     (1, 2), (2, 8.0),      0.050,  0.65, 14.0, [2.0, 4.0, 1.0, 2.0]),
    instrument("XRP-USD", 0.5210,    (1, 4), (0, 400.0),    0.045,  0.60,  8.0, [1.0, 3.0, 1.0, 3.0]),
    instrument("EUR-USD", 1.08420,   (5, 5), (0, 20_000.0), 0.0045, 0.20, 12.0, [1.0, 1.0, 6.0, 2.0]),
    instrument("USD-JPY", 156.320,   (5, 3), (0, 20_000.0), 0.0055, 0.15,  8.0, [1.0, 0.5, 6.0, 2.0]),
    instrument("XAU-USD", 2_340.00,  (1, 2), (2, 1.5),      0.009,  0.10,  4.0, [2.0, 1.0, 3.0, 3.0]),
    instrument("OIL-USD", 78.40,     (1, 2), (0, 25.0),     0.020,  0.15,  2.0, [1.0, 1.0, 1.0, 5.0]),
];

#[expect(clippy::too_many_arguments, reason = "a row of the table above")]
const fn instrument(
    symbol: &'static str,
    price: f64,
    (tick_units, price_decimals): (i64, i32),
    (amount_decimals, median_amount): (i32, f64),
    daily_volatility: f64,
    common_share: f64,
    weight: f64,
    venue_weights: [f64; VENUES.len()],
) -> Instrument {
    Instrument {
        symbol,
        price,
        tick_units,
        price_decimals,
        amount_decimals,
        median_amount,
        daily_volatility,
        common_share,
        weight,
        venue_weights,
    }
}

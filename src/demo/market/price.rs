//! The path of one price: a diffusion whose variance is driven by its own returns (GARCH in continuous time), with
//! jumps, and a weak pull back to where it began so that it never leaves for good.

use super::random::Random;

const DAY_S: f64 = 86_400.0;
/// How fast the variance returns to its usual level, and how strongly returns move it.
const VARIANCE_RETURN_PER_S: f64 = 1.0 / 240.0;
const VARIANCE_OF_VARIANCE: f64 = 0.06;
/// The variance stays within these factors of its usual level.
const VARIANCE_BOUNDS: (f64, f64) = (0.08, 40.0);
/// Jumps a second, and their size in deviations of a minute.
const JUMPS_PER_S: f64 = 1.0 / 900.0;
const JUMP_MINUTE_DEVIATIONS: (f64, f64) = (2.0, 6.0);
/// How fast the price is pulled to its opening.
const PULL_PER_S: f64 = 1.0 / (8.0 * 3_600.0);
/// The longest step that is taken at once.
const MAX_STEP_S: f64 = 30.0;

/// A price at the time of its last trade.
pub struct PricePath {
    opening_log: f64,
    log_price: f64,
    at_s: f64,
    /// Variance of the logarithm a second: usual and present.
    usual_variance: f64,
    variance: f64,
}

impl PricePath {
    /// A path that begins at `price`, in a calm or excited state as it happens.
    pub fn new(price: f64, daily_volatility: f64, random: &mut Random) -> Self {
        let usual_variance = daily_volatility * daily_volatility / DAY_S;
        let variance = usual_variance * (0.5 * random.normal()).exp();
        Self { opening_log: price.ln(), log_price: price.ln(), at_s: 0.0, usual_variance, variance }
    }

    /// Goes on to `at_s`. `common` is the market's own move since the last trade, in deviations times the root of
    /// seconds, and `common_share` how much of the variance it stands for. `stress` (0 in quiet times) adds variance.
    pub fn advance(&mut self, random: &mut Random, at_s: f64, common: f64, common_share: f64, stress: f64) {
        let passed_s = (at_s - self.at_s).max(0.0);
        self.at_s = at_s;
        let seconds = passed_s.min(MAX_STEP_S);
        let own = (1.0 - common_share * common_share).max(0.0).sqrt() * seconds.sqrt() * random.normal();
        let shock = common.clamp(-4.0 * MAX_STEP_S.sqrt(), 4.0 * MAX_STEP_S.sqrt()) + own;
        self.log_price += (self.variance * (1.0 + stress)).sqrt() * shock;
        self.log_price += (self.opening_log - self.log_price) * (1.0 - (-PULL_PER_S * passed_s).exp());
        if random.uniform() < JUMPS_PER_S * seconds {
            let (least, most) = JUMP_MINUTE_DEVIATIONS;
            let deviations = f64::from(random.sign()) * (least + (most - least) * random.uniform());
            self.log_price += deviations * (60.0 * self.usual_variance).sqrt();
            self.variance += 4.0 * self.usual_variance;
        }
        // A return larger than expected raises the variance, a smaller one lowers it.
        let surprise = if seconds > 0.0 { (shock * shock / seconds).min(16.0) - 1.0 } else { 0.0 };
        self.variance += VARIANCE_RETURN_PER_S * (self.usual_variance - self.variance) * seconds
            + VARIANCE_OF_VARIANCE * self.variance * surprise * seconds.sqrt();
        self.variance =
            self.variance.clamp(self.usual_variance * VARIANCE_BOUNDS.0, self.usual_variance * VARIANCE_BOUNDS.1);
    }

    /// The price in the middle.
    pub fn price(&self) -> f64 {
        self.log_price.exp()
    }

    /// Half the distance between bid and offer: half a tick in quiet times, more when the price moves.
    pub fn half_spread(&self, tick: f64) -> f64 {
        (tick / 2.0).max(0.25 * self.price() * self.variance.sqrt())
    }

    /// A trade of `medians` usual sizes moves the price its way.
    pub fn push(&mut self, side: f64, medians: f64) {
        self.log_price += side * 0.02 * self.usual_variance.sqrt() * medians.min(100.0).sqrt();
    }
}

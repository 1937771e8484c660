//! When trades happen: a self-exciting point process whose base rate breathes and is shaken by news.
//!
//! The rate at a moment is `base * (mood + news) + excitement`. The mood is the exponential of an Ornstein-Uhlenbeck
//! process, news are shots that die away, and every trade adds to the excitement (a Hawkes process). The base is
//! chosen so that the mean over time is the rate that was asked for.

use super::random::Random;

/// Between two steps of mood and news; in between they stand still.
const STEP_S: f64 = 0.05;
/// Standard deviation of the logarithm of the mood, and how long a mood lasts.
const MOOD_DEVIATION: f64 = 0.45;
const MOOD_LASTS_S: f64 = 30.0;
/// News a second, how much one adds to the mood on average, and how long it lasts.
const NEWS_PER_S: f64 = 0.08;
const NEWS_SIZE: f64 = 5.0;
const NEWS_LASTS_S: f64 = 1.2;
/// Trades that follow from one trade.
const FOLLOWERS: f64 = 0.45;

/// The process, at the moment of its last trade.
pub struct Arrivals {
    base_per_s: f64,
    now_s: f64,
    step_ends_s: f64,
    log_mood: f64,
    news: f64,
    excitement_per_s: f64,
    decay_per_s: f64,
}

impl Arrivals {
    /// A process with a mean of `rate_per_s`.
    pub fn new(rate_per_s: f64) -> Self {
        let mean_news = NEWS_PER_S * NEWS_SIZE * NEWS_LASTS_S;
        Self {
            base_per_s: rate_per_s * (1.0 - FOLLOWERS) / (1.0 + mean_news),
            now_s: 0.0,
            step_ends_s: STEP_S,
            log_mood: 0.0,
            news: 0.0,
            excitement_per_s: 0.0,
            // Followers come within about three usual gaps, but within a time a person can see.
            decay_per_s: (rate_per_s / 3.0).clamp(0.5, 50.0),
        }
    }

    /// The time of the next trade, in seconds since the start.
    pub fn next(&mut self, random: &mut Random) -> f64 {
        loop {
            // Until the end of the step the rate only falls, so the rate now bounds it: thin a faster process.
            let bound_per_s = self.steady_per_s() + self.excitement_per_s;
            let wait_s = random.exponential() / bound_per_s;
            if self.now_s + wait_s >= self.step_ends_s {
                self.pass(self.step_ends_s - self.now_s);
                self.step(random);
                continue;
            }
            self.pass(wait_s);
            if random.uniform() * bound_per_s <= self.steady_per_s() + self.excitement_per_s {
                self.excitement_per_s += FOLLOWERS * self.decay_per_s;
                return self.now_s;
            }
        }
    }

    /// How far the news lift the market out of its usual state; 0 in quiet times.
    pub fn stress(&self) -> f64 {
        self.news
    }

    fn steady_per_s(&self) -> f64 {
        let mood = (self.log_mood - MOOD_DEVIATION * MOOD_DEVIATION / 2.0).exp();
        self.base_per_s * (mood + self.news)
    }

    fn pass(&mut self, seconds: f64) {
        self.now_s += seconds;
        self.excitement_per_s *= (-seconds * self.decay_per_s).exp();
    }

    fn step(&mut self, random: &mut Random) {
        self.now_s = self.step_ends_s;
        self.step_ends_s += STEP_S;
        let kept = (-STEP_S / MOOD_LASTS_S).exp();
        self.log_mood = self.log_mood * kept + MOOD_DEVIATION * (1.0 - kept * kept).sqrt() * random.normal();
        self.news *= (-STEP_S / NEWS_LASTS_S).exp();
        if random.uniform() < NEWS_PER_S * STEP_S {
            self.news += NEWS_SIZE * random.exponential();
        }
    }
}

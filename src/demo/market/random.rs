//! A small deterministic source of random numbers: xoshiro256++, seeded by splitmix64.

/// The same seed gives the same numbers on every machine.
pub struct Random {
    state: [u64; 4],
    spare_normal: Option<f64>,
}

impl Random {
    /// A source for a seed; any seed is as good as another.
    pub fn new(seed: u64) -> Self {
        let mut mixed = seed;
        let state = std::array::from_fn(|_| {
            mixed = mixed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = mixed;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        });
        Self { state, spare_normal: None }
    }

    fn next(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c1, d1) = (c ^ a, d ^ b);
        self.state = [a ^ d1, b ^ c1, c1 ^ (b << 17), d1.rotate_left(45)];
        result
    }

    /// From 0 to below 1.
    pub fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A whole number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        ((self.uniform() * bound as f64) as usize).min(bound.saturating_sub(1))
    }

    /// 1 or -1.
    pub fn sign(&mut self) -> i32 {
        if self.next() >> 63 == 0 { 1 } else { -1 }
    }

    /// Of mean 1.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.uniform()).ln()
    }

    /// Of mean 0 and variance 1, by the polar method.
    pub fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare_normal.take() {
            return spare;
        }
        loop {
            let (x, y) = (2.0 * self.uniform() - 1.0, 2.0 * self.uniform() - 1.0);
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                let scale = (-2.0 * square.ln() / square).sqrt();
                self.spare_normal = Some(y * scale);
                return x * scale;
            }
        }
    }

    /// One of `items` (not empty), each as often as its weight says.
    pub fn weighted<'a, T>(&mut self, items: &'a mut [T], weight: impl Fn(&T) -> f64) -> &'a mut T {
        let total: f64 = items.iter().map(&weight).sum();
        let mut left = self.uniform() * total;
        let last = items.len() - 1;
        let chosen = items.iter().position(|item| {
            left -= weight(item);
            left < 0.0
        });
        &mut items[chosen.unwrap_or(last)]
    }

    /// The index of one of the weights, each as often as it says; `None` without any.
    pub fn weighted_index(&mut self, weights: &[f64]) -> Option<usize> {
        let mut left = self.uniform() * weights.iter().sum::<f64>();
        weights.iter().position(|weight| {
            left -= weight;
            left < 0.0
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_their_distributions_and_their_seed() {
        let mut random = Random::new(7);
        let count = 100_000;
        let normals: Vec<f64> = (0..count).map(|_| random.normal()).collect();
        let mean = normals.iter().sum::<f64>() / f64::from(count);
        let variance = normals.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / f64::from(count);
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
        let waited: f64 = (0..count).map(|_| random.exponential()).sum();
        assert!((waited / f64::from(count) - 1.0).abs() < 0.02);
        let thirds = (0..count).filter(|_| random.weighted_index(&[1.0, 2.0]) == Some(0)).count();
        assert!((thirds as f64 / f64::from(count) - 1.0 / 3.0).abs() < 0.01);
        let first = |seed| Random::new(seed).next();
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
    }
}

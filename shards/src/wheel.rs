//! A timer wheel of one-second slots: setting, moving and firing a deadline cost the same however many
//! connections there are. A deadline is kept with its owner; the wheel only says when to look.

/// Seconds the wheel spans; a later deadline is looked at earlier and set again.
const SLOTS: usize = 64;

/// Keys by the second in which to look at them.
#[derive(Debug)]
pub struct Wheel<K> {
    slots: Vec<Vec<K>>,
    /// Seconds since the wheel began.
    now_s: u32,
}

impl<K> Default for Wheel<K> {
    fn default() -> Self {
        Self { slots: (0..SLOTS).map(|_| Vec::new()).collect(), now_s: 0 }
    }
}

impl<K> Wheel<K> {
    /// The wheel's second.
    #[must_use]
    pub fn now_s(&self) -> u32 {
        self.now_s
    }

    /// Asks to look at `key` at second `at_s`, at the earliest in the next one.
    pub fn set(&mut self, key: K, at_s: u32) {
        let ahead = at_s.saturating_sub(self.now_s).clamp(1, SLOTS as u32 - 1);
        self.slots[(self.now_s + ahead) as usize % SLOTS].push(key);
    }

    /// Moves on to second `now_s` and returns the keys to look at.
    pub fn advance(&mut self, now_s: u32) -> Vec<K> {
        let mut due = Vec::new();
        let steps = now_s.saturating_sub(self.now_s);
        for _ in 0..steps.min(SLOTS as u32) {
            self.now_s += 1;
            due.append(&mut self.slots[self.now_s as usize % SLOTS]);
        }
        self.now_s = self.now_s.max(now_s);
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_fire_in_their_second_or_when_the_wheel_has_turned() {
        let mut wheel = Wheel::default();
        wheel.set("past", 0);
        wheel.set("three", 3);
        wheel.set("far", 500);
        assert_eq!(wheel.advance(1), ["past"]);
        assert_eq!(wheel.advance(2), [""; 0]);
        assert_eq!(wheel.advance(40), ["three"]);
        assert_eq!(wheel.advance(63), ["far"], "looked at early, to be set again");
    }

    #[test]
    fn a_long_pause_fires_everything_once() {
        let mut wheel = Wheel::default();
        for key in 0..200 {
            wheel.set(key, key);
        }
        let mut due = wheel.advance(10_000);
        due.sort_unstable();
        assert_eq!(due, (0..200).collect::<Vec<_>>());
        assert_eq!(wheel.now_s(), 10_000);
    }
}

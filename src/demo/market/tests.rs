//! The habits of the market, on fixed seeds.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

const START_US: i64 = 1_795_000_000_000_000;

fn trades(seed: u64, rate: f64, count: usize) -> Vec<Trade> {
    let mut market = Market::new(seed, START_US, rate);
    (0..count).map(|_| market.next_trade()).collect()
}

#[test]
fn seed_and_start_decide_everything() {
    let first = trades(3, 500.0, 5_000);
    assert_eq!(first, trades(3, 500.0, 5_000));
    assert_ne!(first, trades(4, 500.0, 5_000));
    let mut later = Market::new(3, START_US + 1, 500.0);
    assert_ne!(first[0].price, later.next_trade().price);
}

#[test]
fn trades_are_well_formed_and_in_order() {
    let mut last_us = START_US;
    let mut symbols = BTreeSet::new();
    let mut venues = BTreeSet::new();
    for trade in trades(5, 2_000.0, 50_000) {
        assert!(trade.event_us >= last_us);
        last_us = trade.event_us;
        let instrument = INSTRUMENTS.iter().find(|one| one.symbol == trade.symbol).expect("a known symbol");
        assert_eq!(trade.price, instrument.to_tick(trade.price), "{trade:?} is off its tick");
        assert_eq!(trade.amount, instrument.to_lot(trade.amount), "{trade:?} is off its lot");
        assert!(trade.price > 0.2 * instrument.price && trade.price < 5.0 * instrument.price, "{trade:?}");
        assert!(trade.side == 1 || trade.side == -1);
        let digits = format!("{}", trade.price).split_once('.').map_or(0, |(_, digits)| digits.len());
        assert!(digits <= instrument.price_decimals as usize, "{trade:?} prints with {digits} decimals");
        symbols.insert(trade.symbol);
        venues.insert(trade.venue);
    }
    assert_eq!((symbols.len(), venues.len()), (INSTRUMENTS.len(), VENUES.len()));
}

#[test]
fn the_rate_is_the_one_asked_for() {
    // Bursts and moods average out over an hour; at the highest rate a test can only afford seconds of one mood.
    for (rate, seconds, within) in [(1.0, 8_000, 0.12), (50.0, 4_000, 0.12), (100_000.0, 4, 0.7)] {
        let mut market = Market::new(11, START_US, rate);
        let mut count = 0;
        while market.next_at_us() < START_US + seconds * 1_000_000 {
            market.next_trade();
            count += 1;
        }
        let measured = f64::from(count) / seconds as f64;
        assert!((measured / rate - 1.0).abs() < within, "{measured} instead of {rate} a second");
    }
}

#[test]
fn trades_come_in_bursts() {
    let mut market = Market::new(2, START_US, 50.0);
    let mut per_second: BTreeMap<i64, u32> = BTreeMap::new();
    while market.next_at_us() < START_US + 1_000 * 1_000_000 {
        *per_second.entry((market.next_at_us() - START_US) / 1_000_000).or_default() += 1;
        market.next_trade();
    }
    let counts: Vec<f64> = (0..1_000).map(|second| f64::from(per_second.get(&second).copied().unwrap_or(0))).collect();
    let mean = counts.iter().sum::<f64>() / counts.len() as f64;
    let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / counts.len() as f64;
    assert!(variance > 5.0 * mean, "variance {variance} of the counts is near their mean {mean}, as without bursts");
    let busiest = counts.iter().copied().fold(0.0, f64::max);
    assert!(busiest > 3.0 * mean && busiest < 60.0 * mean, "{busiest} in the busiest second, {mean} in the usual");
}

#[test]
fn volatility_clusters_and_returns_have_a_heavy_tail() {
    let mut market = Market::new(9, START_US, 20.0);
    let mut closes = Vec::new();
    let mut last = 0.0;
    while closes.len() < 6_000 {
        let trade = market.next_trade();
        if trade.symbol == "BTC-USD" {
            last = trade.price;
        }
        if (trade.event_us - START_US) / 30_000_000 > closes.len() as i64 {
            closes.push(last);
        }
    }
    let returns: Vec<f64> = closes.windows(2).skip(1).map(|pair| (pair[1] / pair[0]).ln()).collect();
    let mean_of = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let sizes: Vec<f64> = returns.iter().map(|value| value.abs()).collect();
    let mean = mean_of(&sizes);
    let variance = mean_of(&sizes.iter().map(|size| (size - mean).powi(2)).collect::<Vec<_>>());
    let together = mean_of(&sizes.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).collect::<Vec<_>>());
    assert!(together / variance > 0.1, "sizes of neighbouring returns correlate by {}", together / variance);
    let second = mean_of(&returns.iter().map(|value| value.powi(2)).collect::<Vec<_>>());
    let fourth = mean_of(&returns.iter().map(|value| value.powi(4)).collect::<Vec<_>>());
    assert!(fourth / (second * second) > 4.0, "kurtosis {}", fourth / (second * second));
    let daily = second.sqrt() * (86_400.0_f64 / 30.0).sqrt();
    assert!((0.01..0.12).contains(&daily), "a day's volatility is {daily}");
}

#[test]
fn sizes_have_a_heavy_tail_and_signs_persist() {
    let all = trades(21, 1_000.0, 60_000);
    let mut amounts: Vec<f64> =
        all.iter().filter(|trade| trade.symbol == "ETH-USD").map(|trade| trade.amount).collect();
    amounts.sort_by(f64::total_cmp);
    let (median, extreme) = (amounts[amounts.len() / 2], amounts[amounts.len() * 999 / 1_000]);
    assert!(extreme > 15.0 * median, "{extreme} against {median}");
    let sides: Vec<i32> = all.iter().filter(|trade| trade.symbol == "BTC-USD").map(|trade| trade.side).collect();
    let same = sides.windows(2).filter(|pair| pair[0] == pair[1]).count() as f64 / sides.len() as f64;
    assert!((0.8..0.92).contains(&same), "{same} of the trades have the sign of the one before");
}

#[test]
fn a_row_is_json_in_the_order_of_the_columns() {
    let mut market = Market::new(1, START_US, 10.0);
    let expected = Market::new(1, START_US, 10.0).next_trade();
    let mut row = String::new();
    market.write_row(&mut row);
    let value: serde_json::Value = serde_json::from_str(&row).expect("json");
    let keys: Vec<&String> = value.as_object().expect("an object").keys().collect();
    assert_eq!(keys, ["event_ts", "symbol", "venue", "price", "amount", "side"]);
    assert_eq!(value["price"], expected.price);
    assert_eq!(value["event_ts"], expected.event_us);
}

#[test]
fn who_is_late_leaves_rows_out_and_goes_on_from_now() {
    let mut market = Market::new(1, START_US, 10.0);
    let now_us = START_US + 60_000_000;
    market.skip_to(now_us);
    assert_eq!(market.next_at_us(), now_us);
    let before = market.next_trade();
    assert!(market.next_at_us() >= before.event_us);
    market.skip_to(START_US);
    assert!(market.next_at_us() >= now_us, "time never goes back");
}

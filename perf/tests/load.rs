//! The load against a toy server: what it counts, and that it notices what a server does wrong.

mod toy;

use std::net::SocketAddr;

use streamcast_perf::clock;
use streamcast_perf::load::{Group, Load, LoadSettings, Order, Pace, Plan, Purpose};
use streamcast_perf::row::{RowWriter, trade};
use streamcast_perf::schedule::Schedule;
use streamcast_perf::wire::{self, Ask, Kind};
use toy::Fault;

fn load(address: SocketAddr, spin: bool) -> Load {
    let settings = LoadSettings { address, spin, read_bytes: 64 << 10, parallel: 8 };
    let wire = wire::of(Kind::Streamcast, address, true);
    Load::new(wire, settings, RowWriter::new(&trade()).unwrap()).unwrap()
}

fn subscribe(load: &mut Load, count: usize, offset: Option<u64>) -> usize {
    let group = load.groups.len();
    load.groups.push(Group::new(1, Order::Dense));
    let ask = Ask::Subscribe { stream: "trades".into(), offset, filter: None };
    load.open(std::iter::repeat_n(Plan { ask, purpose: Purpose::Subscribe(group) }, count), 10.0).unwrap();
    group
}

fn publisher(load: &mut Load, identity: Option<&str>) {
    let ask = Ask::Publish { stream: "trades".into(), publisher: identity.map(Into::into) };
    load.open([Plan { ask, purpose: Purpose::Publish }], 10.0).unwrap();
}

fn after(seconds: f64) -> u64 {
    clock::now_ns() + clock::seconds_ns(seconds)
}

/// Publishes `frames` frames of `batch` rows at 1,000 frames a second and waits for what must come.
fn publish(load: &mut Load, frames: u64, batch: u32) {
    let begin = clock::now_ns();
    let mut schedule = Schedule::new(begin, 1000.0).unwrap();
    let end = begin + frames * 1_000_000;
    schedule.end_at(end);
    load.publishing.batch = batch;
    load.open_window(begin..end);
    load.set_pace(Pace::Rate(schedule)).unwrap();
    let rows = frames * u64::from(batch);
    let wanted = rows * load.groups[0].open as u64;
    let done = |load: &Load| {
        let all = load.publishing.acked_rows == rows && load.groups[0].messages >= wanted;
        all || load.drops().0 > 0 || load.publishing.refused == frames
    };
    load.run_until(after(10.0), done).unwrap();
}

#[test]
fn every_row_reaches_every_subscriber_and_is_timed_from_its_due_time() {
    for (spin, batch) in [(false, 1), (true, 7)] {
        let mut load = load(toy::start(Fault::None), spin);
        subscribe(&mut load, 20, None);
        publisher(&mut load, None);
        publish(&mut load, 100, batch);
        let rows = 100 * u64::from(batch);
        let group = &load.groups[0];
        assert_eq!((group.open, group.messages, group.faults), (20, 20 * rows, 0));
        assert_eq!(group.latency.count(), 20 * rows);
        assert_eq!(load.publishing.acks.count(), 100);
        assert_eq!((load.publishing.acked_rows, load.publishing.in_flight()), (rows, 0));
        assert!(group.latency.quantile_us(0.5) > 1.0);
        assert_eq!(load.drops(), (0, None));
    }
}

#[test]
fn a_generator_that_is_late_counts_its_own_delay() {
    let mut load = load(toy::start(Fault::None), false);
    subscribe(&mut load, 1, None);
    publisher(&mut load, None);
    let begin = clock::now_ns();
    let mut schedule = Schedule::new(begin, 1000.0).unwrap();
    schedule.end_at(begin + 50_000_000);
    load.open_window(begin..begin + 50_000_000);
    load.set_pace(Pace::Rate(schedule)).unwrap();
    // The load stands still for as long as a stalled machine might.
    clock::sleep_until(begin + 100_000_000);
    load.run_until(after(10.0), |load| load.groups[0].messages == 50).unwrap();
    assert_eq!(load.groups[0].latency.count(), 50);
    assert!(load.groups[0].latency.quantile_us(0.0) >= 50_000.0, "the last row was due 50 ms before");
    assert!(load.groups[0].latency.quantile_us(1.0) >= 100_000.0);
}

#[test]
fn a_lost_row_is_a_fault() {
    let mut load = load(toy::start(Fault::Lose(5)), false);
    subscribe(&mut load, 3, None);
    publisher(&mut load, None);
    load.publishing.row_limit = 10;
    load.set_pace(Pace::Window(1)).unwrap();
    load.run_until(after(10.0), |load| load.groups[0].messages == 27).unwrap();
    let group = &load.groups[0];
    assert_eq!((group.messages, group.faults), (27, 3));
    assert!(group.first_fault.as_ref().unwrap().contains("expected from Some(5)"));
}

#[test]
fn drops_and_refusals_are_told() {
    let mut dropped = load(toy::start(Fault::DropAfter(4)), false);
    subscribe(&mut dropped, 2, None);
    publisher(&mut dropped, None);
    publish(&mut dropped, 10, 1);
    dropped.run_until(after(10.0), |load| load.groups[0].open == 0).unwrap();
    assert_eq!(dropped.drops(), (2, Some("the server closed with 4429 {\\\"error\\\":\\\"too_slow\\\"}")));

    let mut refused = load(toy::start(Fault::Refuse), false);
    subscribe(&mut refused, 1, None);
    publisher(&mut refused, None);
    publish(&mut refused, 10, 1);
    assert_eq!(refused.publishing.refused, 10);
    assert!(refused.publishing.first_refusal.as_ref().unwrap().contains("toy"));
}

#[test]
fn replays_windows_and_row_limits() {
    let mut load = load(toy::start(Fault::None), false);
    publisher(&mut load, None);
    load.publishing.batch = 100;
    load.publishing.row_limit = 1_050;
    load.set_pace(Pace::Window(8)).unwrap();
    load.run_until(after(10.0), |load| load.publishing.acked_rows == 1_050).unwrap();
    assert_eq!(load.publishing.acked_rows, 1_050, "the last frame is shorter");
    let group = subscribe(&mut load, 3, Some(0));
    load.run_until(after(10.0), |load| load.groups[0].messages == 3 * 1_050).unwrap();
    assert_eq!((load.groups[group].messages, load.groups[group].faults), (3 * 1_050, 0));
    load.close_group(group);
    assert_eq!(load.groups[group].open, 0);
}

#[test]
fn a_stalled_subscriber_is_not_read_any_more() {
    let mut load = load(toy::start(Fault::None), false);
    subscribe(&mut load, 3, None);
    publisher(&mut load, None);
    assert!(load.stall_one(0).unwrap());
    publish(&mut load, 20, 1);
    assert_eq!((load.groups[0].open, load.groups[0].messages), (2, 40));
    load.close_stalled();
    assert_eq!(load.drops(), (0, None));
}

#[test]
fn knocking_counts_connections_that_were_greeted() {
    let mut load = load(toy::start(Fault::None), false);
    let ask = Ask::Subscribe { stream: "trades".into(), offset: None, filter: None };
    assert!(load.knock(&ask, 0.2).unwrap() > 10);
    assert_eq!(load.groups.len(), 0);
}

#[test]
fn nobody_there_is_an_error() {
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut load = load(address, false);
    load.groups.push(Group::new(1, Order::Dense));
    let ask = Ask::Subscribe { stream: "trades".into(), offset: None, filter: None };
    let error = load.open([Plan { ask, purpose: Purpose::Subscribe(0) }], 5.0).unwrap_err();
    assert!(error.to_string().starts_with("1 of 1 connections did not open"), "{error}");
}

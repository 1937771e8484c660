//! How long it takes to parse, validate and encode publish frames, to frame rows, and to run predicates.
//!
//! `cargo bench --bench encode`. Prints nanoseconds per row: the median and the best of many rounds.

use std::hint::black_box;
use std::time::Instant;

use streamcast_uring::schema::{Filter, Predicate, RowIndex, Schema};
use streamcast_uring::wire::row::{build_block, push_row_frame};
use streamcast_uring::wire::{FrameParser, Numbering, RowBatch, reply};

const ROUNDS: usize = 400;

const TRADES: &str = r#"{"type":"object","properties":{"event_ts":{"type":"integer"},"symbol":{"type":"string"},
    "price":{"type":"number"},"amount":{"type":"number"},"side":{"type":"integer","format":"int32"},
    "venue":{"type":"string"}},"required":["event_ts","symbol","price","amount","side","venue"]}"#;

/// Runs `work` in rounds of about a millisecond and prints the time per `items`.
fn measure(name: &str, items: usize, mut work: impl FnMut()) {
    let start = Instant::now();
    work();
    let once_ns = start.elapsed().as_nanos().max(1);
    let repeats = (500_000 / once_ns).clamp(1, 100_000) as usize;
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..repeats {
                work();
            }
            start.elapsed().as_nanos() as f64 / (repeats * items) as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!("{name:<44} {:>9.1} ns  (best {:.1})", rounds[ROUNDS / 2], rounds[0]);
}

fn trade(index: usize) -> String {
    let symbol = ["BTC-USD", "ETH-USD", "SOL-USD", "EURUSD"][index % 4];
    format!(
        "{{\"event_ts\":{},\"symbol\":\"{symbol}\",\"price\":{:?},\"amount\":{:?},\"side\":{},\"venue\":\"kraken\"}}",
        1_700_000_000_000_000 + index * 137,
        60_000.25 + (index % 977) as f64 * 0.01,
        (index % 331) as f64 * 0.0137 + 0.001,
        index % 2,
    )
}

fn batch(rows: usize) -> String {
    format!("[{}]", (0..rows).map(trade).collect::<Vec<_>>().join(","))
}

fn parse(parser: &mut FrameParser, schema: Option<&Schema>, frame: &str) -> RowBatch {
    match parser.parse(schema, Numbering::Plain, frame.as_bytes()) {
        Ok(frame) => frame.rows,
        Err(refusal) => panic!("{refusal}"),
    }
}

fn main() {
    let schema = Schema::compile_text(TRADES, true).unwrap_or_else(|error| panic!("{error}"));
    let mut parser = FrameParser::new();
    println!("one row: {} bytes", trade(1).len());

    for rows in [1, 10, 100, 1000] {
        let frame = if rows == 1 { trade(1) } else { batch(rows) };
        measure(&format!("parse {rows} with schema, per row"), rows, || {
            black_box(parse(&mut parser, Some(&schema), black_box(&frame)));
        });
        measure(&format!("parse {rows} without schema, per row"), rows, || {
            black_box(parse(&mut parser, None, black_box(&frame)));
        });
    }
    let escaped = batch(100).replace("kraken", "kra\\\"ken");
    measure("parse 100 with escapes, per row", 100, || {
        black_box(parse(&mut parser, Some(&schema), black_box(&escaped)));
    });
    let shuffled = batch(100).replace(",\"venue\":\"kraken\"", "").replace("{\"event", "{\"venue\":\"kraken\",\"event");
    measure("parse 100 in another order, per row", 100, || {
        black_box(parse(&mut parser, Some(&schema), black_box(&shuffled)));
    });

    let rows = parse(&mut parser, Some(&schema), &batch(100));
    let mut out = Vec::with_capacity(1 << 20);
    measure("push_row_frame, per row", 100, || {
        out.clear();
        for (index, row) in rows.iter().enumerate() {
            push_row_frame(&mut out, Some(1_000_000 + index as i64), 1_700_000_000_000_000, row);
        }
        black_box(&out);
    });
    measure("build_block of 100, per row", 100, || {
        black_box(build_block(Some(1), &[(100, 1_700_000_000_000_000)], rows.iter(), rows.body.len()));
    });
    measure("push_ok of 100, per row", 100, || {
        out.clear();
        reply::push_ok(&mut out, &[], Some(1_000_000), 100);
        black_box(&out);
    });

    let predicates: Vec<Predicate> = (0..100)
        .map(|index| {
            let filter = Filter::parse(&format!("{{\"symbol\":\"S{index}\",\"side\":[0,1]}}"));
            let filter = filter.unwrap_or_else(|error| panic!("{error}"));
            Predicate::compile(&filter, Some(&schema)).unwrap_or_else(|error| panic!("{error}"))
        })
        .collect();
    let mut index = RowIndex::new();
    measure("RowIndex::scan, per row", 100, || {
        for row in rows.iter() {
            index.scan(Some(&schema), black_box(row));
        }
    });
    index.scan(Some(&schema), rows.row(0));
    measure("matches_indexed, per predicate", 100, || {
        for predicate in &predicates {
            black_box(predicate.matches_indexed(rows.row(0), black_box(&index)));
        }
    });
    measure("matches without an index, per row", 100, || {
        for row in rows.iter() {
            black_box(predicates[0].matches(row));
        }
    });
}

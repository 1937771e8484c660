//! Publish frames: the fast path against the exact parser, and canonical text as a fixed point.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use streamcast_uring_fuzz::schema::Schema;
use streamcast_uring_fuzz::schema::json::{self, Json};
use streamcast_uring_fuzz::schemas;
use streamcast_uring_fuzz::wire::{FrameParser, Numbering, PublishFrame, Refusal};

thread_local! {
    static PARSER: RefCell<FrameParser> = RefCell::new(FrameParser::new());
    static SCHEMAS: [Schema; 2] = schemas();
}

fn parse(schema: Option<&Schema>, numbering: Numbering, payload: &[u8]) -> Result<PublishFrame, Refusal> {
    PARSER.with_borrow_mut(|parser| parser.parse(schema, numbering, payload))
}

/// What the exact parser makes of a frame without a schema.
fn expected(numbering: Numbering, payload: &[u8]) -> Option<Vec<String>> {
    let rows = match (numbering, json::parse(payload).ok()?) {
        (Numbering::Plain, value) => value,
        (Numbering::ExactlyOnce, Json::Array(pair)) => match <[Json; 2]>::try_from(pair).ok()? {
            [Json::Int(seq), rows] if seq >= 1 => rows,
            [Json::Wide(digits), rows] if !digits.starts_with('-') => rows,
            _ => return None,
        },
        _ => return None,
    };
    match rows {
        Json::Object(_) => Some(vec![rows.to_text()]),
        Json::Array(items) if !items.is_empty() && items.iter().all(|item| matches!(item, Json::Object(_))) => {
            Some(items.iter().map(Json::to_text).collect())
        }
        _ => None,
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&how, payload)) = data.split_first() else { return };
    let numbering = if how & 1 == 0 { Numbering::Plain } else { Numbering::ExactlyOnce };

    let frame = parse(None, numbering, payload);
    match (&frame, expected(numbering, payload)) {
        (Ok(frame), Some(rows)) => assert!(frame.rows.iter().eq(rows.iter().map(String::as_bytes))),
        (Err(Refusal::BadFrame(_)), None) => {}
        (frame, expected) => panic!("{frame:?} where the exact parser has {expected:?}"),
    }

    let typed = SCHEMAS.with(|schemas| {
        let schema = &schemas[usize::from(how >> 1) % schemas.len()];
        let typed = parse(Some(schema), numbering, payload);
        if let Ok(typed) = &typed {
            for row in typed.rows.iter() {
                match parse(Some(schema), Numbering::Plain, row) {
                    Ok(again) => assert_eq!(again.rows.row(0), row),
                    Err(refusal) => panic!("the stored row is refused: {refusal}"),
                }
            }
        }
        typed
    });
    match (&frame, &typed) {
        (Ok(frame), Ok(typed)) => assert_eq!(frame.rows.count(), typed.rows.count()),
        (Ok(_), Err(Refusal::Rejected(_))) | (Err(Refusal::BadFrame(_)), Err(Refusal::BadFrame(_))) => {}
        (frame, typed) => panic!("{frame:?} without a schema, {typed:?} with one"),
    }
});

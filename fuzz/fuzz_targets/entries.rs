//! Bodies of inserts: what is taken is JSON with as many entries as rows, each of which the parser of publish frames
//! stores the same way.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde::de::IgnoredAny;
use streamcast_uring_fuzz::batches::body::parse;
use streamcast_uring_fuzz::batches::limits::MAX_ENTRIES;
use streamcast_uring_fuzz::schema::Schema;
use streamcast_uring_fuzz::schemas;
use streamcast_uring_fuzz::wire::FrameParser;

thread_local! {
    static SCHEMAS: [Schema; 2] = schemas();
}

fn check(body: &[u8], schema: Option<&Schema>) {
    let mut parser = FrameParser::new();
    match parse(body, schema, &mut parser) {
        Ok(insert) => {
            let count = insert.rows.count();
            assert!((1..=MAX_ENTRIES).contains(&count));
            assert!(insert.key.as_ref().is_none_or(|key| (1..=256).contains(&key.chars().count())));
            if let Err(error) = serde_json::from_slice::<IgnoredAny>(body) {
                panic!("{error} was taken");
            }
            // Numbers out of range are JSON, and no value of serde's.
            if let Ok(document) = serde_json::from_slice::<serde_json::Value>(body) {
                assert_eq!(document["entries"].as_array().map(Vec::len), Some(count));
            }
            // Stored rows are a fixed point: a batch of them is stored as it is.
            let rows: Vec<&[u8]> = insert.rows.iter().collect();
            let again = [b"{\"entries\":[".as_slice(), &rows.join(b",".as_slice()), b"]}"].concat();
            let stored = match parse(&again, schema, &mut parser) {
                Ok(stored) => stored,
                Err(error) => panic!("{error}"),
            };
            assert_eq!(stored.rows.body, insert.rows.body);
        }
        Err(error) => assert!(matches!(error.status, 400 | 413 | 422), "{error}"),
    }
}

fuzz_target!(|data: &[u8]| {
    check(data, None);
    SCHEMAS.with(|schemas| schemas.iter().for_each(|schema| check(data, Some(schema))));
});

//! Schema documents: compiling never panics, and the canonical form compiles to itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use streamcast_uring_fuzz::schema::{MAX_CANONICAL_BYTES, Schema};

fuzz_target!(|text: &[u8]| {
    let Ok(document) = serde_json::from_slice(text) else { return };
    let types = Schema::compile_types(&document);
    let live = Schema::compile(&document, false);
    let durable = Schema::compile(&document, true);
    // Each of them takes only what the one before it takes.
    assert!(live.is_err() || types.is_ok());
    assert!(durable.is_err() || live.is_ok());
    assert!(Schema::compile_strict(&document, true).is_err() || durable.is_ok());
    let Ok(schema) = types else { return };
    assert!(!schema.columns().is_empty() && schema.canonical().len() <= MAX_CANONICAL_BYTES);
    match Schema::compile_text(schema.canonical(), true) {
        Ok(again) => assert_eq!(again, schema),
        // Names are checked anew; nesting beyond what a text parser reads cannot come as text either.
        Err(error) => assert!(durable.is_err(), "{error}"),
    }
});

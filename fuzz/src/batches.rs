//! What reads the bodies and the tokens of the batch API.

#[path = "../../src/batches/body.rs"]
pub mod body;
#[path = "../../src/batches/error.rs"]
pub mod error;
#[path = "../../src/batches/limits.rs"]
pub mod limits;
#[path = "../../src/batches/scan.rs"]
pub mod scan;
#[path = "../../src/batches/sip.rs"]
pub mod sip;
#[path = "../../src/batches/token.rs"]
pub mod token;

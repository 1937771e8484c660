//! What says who asks, without what checks it.

#[path = "../../src/auth/action.rs"]
pub mod action;
#[path = "../../src/auth/credential.rs"]
pub mod credential;
#[path = "../../src/auth/error.rs"]
pub mod error;
#[path = "../../src/auth/file.rs"]
pub mod file;
#[path = "../../src/auth/grants.rs"]
pub mod grants;
#[path = "../../src/auth/head.rs"]
pub mod head;
#[path = "../../src/auth/keys.rs"]
pub mod keys;
#[path = "../../src/auth/unverified.rs"]
pub mod unverified;

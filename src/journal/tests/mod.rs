//! The journal as a whole: real files, real threads, and a sink that tells what it was given.

mod commit;
mod replay;
mod support;

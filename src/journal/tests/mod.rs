//! The journal as a whole: real files, real threads, and a sink that tells what it was given.

mod commit;
mod crash;
mod declare;
mod evict;
mod failure;
mod fault;
mod limits;
mod replay;
mod support;

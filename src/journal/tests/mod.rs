//! The journal as a whole: real files, real threads, and a sink that tells what it was given.

mod commit;
mod crash;
mod declare;
mod erase;
mod evict;
mod failure;
mod fault;
mod insert;
mod limits;
mod replay;
mod support;

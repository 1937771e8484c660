//! The wire (wire.md sections 1 to 9): request targets, greetings, publish frames and their replies, row frames,
//! close reasons. Pure functions: no sockets, no clocks, no threads.

pub mod batch;
pub mod close;
pub mod greeting;
pub mod publish;
pub mod reply;
pub mod row;
pub mod target;

pub use batch::RowBatch;
pub use close::CloseReason;
pub use greeting::{Greeting, PublisherMark};
pub use publish::{FrameParser, Numbering, PublishFrame, Refusal, Seq};
pub use target::{BadTarget, OffsetParam, Target};

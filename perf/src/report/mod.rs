//! Reports from result files: tables in Markdown, pages with plots.

mod figures;
mod format;
mod html;
mod markdown;
mod plots;
mod svg;
mod targets;

pub use format::number;
pub use html::page;
pub use markdown::{document, put_between_marks};
pub use targets::{Verdict, verdicts};

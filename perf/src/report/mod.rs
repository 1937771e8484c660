//! Reports: tables in Markdown, pages with plots.

mod format;

pub use format::number;

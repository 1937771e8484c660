//! A file becomes one without some of its rows.

use std::path::Path;

use arrow::array::{AsArray as _, BooleanArray};
use arrow::compute::filter_record_batch;
use arrow::datatypes::Int64Type;

use super::error::ColumnsError;
use super::layout::Layout;
use super::merge::{batch_bytes, for_each_batch, slices};
use super::read::describe;
use super::source::Source;
use super::unnamed::Unnamed;
use super::write::{FileWriter, WriteOptions};

/// What is left of a file.
#[derive(Debug)]
pub struct Remainder {
    /// The file with the other rows; none if there are no others.
    pub file: Option<Unnamed>,
    /// How many rows were left out.
    pub omitted: u64,
}

/// Writes the rows of `input` to a file in `directory`, but for those for whose offsets, given in order, `is_omitted`
/// holds. Nothing of the input is in memory but a row group.
///
/// The output is read again: it is what was written, and it and what was left out are as many rows as the input has. On
/// an error no output is left behind.
///
/// # Errors
/// [`ColumnsError::File`] when the input is damaged, `is_omitted` cannot tell, or the file cannot be written.
pub fn omit(
    input: &Source,
    layout: &Layout,
    directory: &Path,
    options: &WriteOptions,
    is_omitted: &mut dyn FnMut(i64) -> Result<bool, String>,
) -> Result<Remainder, ColumnsError> {
    let unusable = |why: String| ColumnsError::file(input.name(), why);
    let before = describe(input.clone(), layout, input.name())?;
    let mut writer = None;
    let mut omitted = 0;
    for_each_batch(input, layout, |rows| {
        let offsets = rows.column(0).as_primitive::<Int64Type>().values();
        let kept = offsets.iter().map(|offset| is_omitted(*offset).map(|is_omitted| !is_omitted));
        let kept: BooleanArray = kept.collect::<Result<Vec<bool>, _>>().map_err(unusable)?.into();
        omitted += (kept.len() - kept.true_count()) as u64;
        let rows = filter_record_batch(&rows, &kept).map_err(|error| unusable(error.to_string()))?;
        for rows in slices(&rows, options) {
            let writer = match &mut writer {
                Some(writer) => writer,
                None => writer.insert(FileWriter::create(layout, directory, options)?),
            };
            let bytes = batch_bytes(&rows);
            writer.write(rows, bytes)?;
        }
        Ok(())
    })?;
    let file = writer.map(FileWriter::finish).transpose()?;
    let written = match &file {
        None => 0,
        Some(output) => {
            let found = describe(Source::file(output.temporary())?, layout, &output.file().uri)?;
            if found != *output.file() || found.start < before.start || found.end > before.end {
                return Err(ColumnsError::file(
                    &output.temporary().display().to_string(),
                    "it is not what was written",
                ));
            }
            found.rows
        }
    };
    if written + omitted != before.rows {
        return Err(unusable(format!("{written} of its {} rows were written and {omitted} left out", before.rows)));
    }
    Ok(Remainder { file, omitted })
}

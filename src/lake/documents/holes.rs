//! The document of holes: which offsets of a stream hold no rows, and which erasures took some (docs/storage.md, "Holes").
//!
//! It lies beside the versions, in each place that has these, and is replaced as a whole.

use serde::{Deserialize, Serialize};

use super::commit::{Current, Documents};
use super::model::Document;
use crate::lake::error::LakeError;
use crate::lake::steps::step;
use crate::stream::holes::{Erasure, Hole};

/// The file beside the hint.
pub(super) const NAME: &str = "holes.json";

/// The format that is written, and the only one that is known.
const FORMAT: u32 = 1;

/// The holes and erasures of a stream, each in ascending order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Holes {
    /// The stream's UUID.
    pub stream_id: String,
    /// Offsets that hold no rows. They do not overlap.
    pub holes: Vec<Hole>,
    /// The erasures.
    pub erasures: Vec<Erasure>,
}

#[derive(Serialize, Deserialize)]
struct Written {
    streamcast_holes: u32,
    stream_id: String,
    holes: Vec<(i64, i64, Option<i64>)>,
    erasures: Vec<(i64, u32, i64)>,
}

impl Holes {
    /// The document as it is written.
    #[must_use]
    pub fn text(&self) -> String {
        let written = Written {
            streamcast_holes: FORMAT,
            stream_id: self.stream_id.clone(),
            holes: self.holes.iter().map(|hole| (hole.first, hole.end, hole.marker)).collect(),
            erasures: self.erasures.iter().map(|it| (it.marker, it.records, it.ts_us)).collect(),
        };
        // A value of plain numbers and strings always has a text.
        serde_json::to_string(&written).unwrap_or_default()
    }

    /// Reads a document; the text of the error says what is wrong with it.
    ///
    /// # Errors
    /// When it is no JSON, of another format, or its holes are not in order.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let written: Written = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if written.streamcast_holes != FORMAT {
            return Err(format!("its format is {}, and only {FORMAT} is known", written.streamcast_holes));
        }
        let mut end = i64::MIN;
        for (first, next, _) in &written.holes {
            if first >= next || *first < end {
                return Err(format!("the hole from {first} to {next} does not follow the one before it"));
            }
            end = *next;
        }
        let hole = |(first, end, marker)| Hole { first, end, marker };
        let erasure = |(marker, records, ts_us)| Erasure { marker, records, ts_us };
        Ok(Self {
            stream_id: written.stream_id,
            holes: written.holes.into_iter().map(hole).collect(),
            erasures: written.erasures.into_iter().map(erasure).collect(),
        })
    }
}

impl Documents {
    /// Writes the holes of the stream whose document is `document` to each place where it has one, if they are not
    /// there.
    ///
    /// # Errors
    /// When a place cannot be written.
    pub async fn write_holes(&self, document: &Document, holes: &Holes) -> Result<(), LakeError> {
        let bytes = holes.text().into_bytes();
        for shelf in self.shelves(document)? {
            if shelf.beside(NAME).await?.as_ref() != Some(&bytes) {
                shelf.put_beside(NAME, bytes.clone()).await?;
                step("holes written");
            }
        }
        Ok(())
    }

    /// The holes that were written beside `current`; `None` if there never were any.
    ///
    /// # Errors
    /// When they cannot be read, make no sense, or are another stream's.
    pub async fn holes(&self, current: &Current) -> Result<Option<Holes>, LakeError> {
        let (uri, bytes) = self.beside(current, NAME).await?;
        let Some(bytes) = bytes else { return Ok(None) };
        let path = std::path::PathBuf::from(uri);
        let holes = Holes::parse(&bytes).map_err(|what| LakeError::Damaged { path: path.clone(), what })?;
        let (found, recorded) = (&holes.stream_id, &current.document.stream_id);
        if found != recorded {
            let (found, recorded) = (format!("{found:?}"), format!("{recorded:?}"));
            return Err(LakeError::Foreign { path, what: "stream_id", found, recorded });
        }
        Ok(Some(holes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_survive_being_written_and_read() {
        let holes = Holes {
            stream_id: "x".to_owned(),
            holes: vec![
                Hole { first: 3, end: 5, marker: Some(9) },
                Hole { first: 9, end: 10, marker: Some(9) },
                Hole { first: 12, end: 1 << 40, marker: None },
            ],
            erasures: vec![Erasure { marker: 9, records: 2, ts_us: 7 }],
        };
        assert_eq!(Holes::parse(holes.text().as_bytes()), Ok(holes.clone()));
        let newer = holes.text().replace("\"streamcast_holes\":1", "\"streamcast_holes\":2");
        assert!(Holes::parse(newer.as_bytes()).expect_err("newer").contains("its format is 2"));
        let across = holes.text().replace("[9,10,9]", "[4,10,9]");
        assert!(Holes::parse(across.as_bytes()).expect_err("overlap").contains("from 4 to 10"));
        assert!(Holes::parse(b"{}").is_err());
    }
}

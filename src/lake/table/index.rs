//! The live files of one snapshot, in short.

use std::collections::HashSet;
use std::ops::Range;

use iceberg::spec::ManifestFile;

use crate::lake::data_file::DataFile;

/// One live file, without what is known of its columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Live {
    pub uri: Box<str>,
    pub start: i64,
    pub end: i64,
    pub rows: u64,
    pub size_bytes: u64,
    pub ts_us: (i64, i64),
    pub split_offsets: Box<[i64]>,
}

impl Live {
    pub(super) fn of(file: &DataFile) -> Self {
        Self {
            uri: file.uri.as_str().into(),
            start: file.start,
            end: file.end,
            rows: file.rows,
            size_bytes: file.size_bytes,
            ts_us: file.ts_us,
            split_offsets: file.split_offsets.as_slice().into(),
        }
    }

    pub(super) fn data_file(&self) -> DataFile {
        DataFile {
            uri: self.uri.to_string(),
            start: self.start,
            end: self.end,
            rows: self.rows,
            size_bytes: self.size_bytes,
            ts_us: self.ts_us,
            split_offsets: self.split_offsets.to_vec(),
            columns: Vec::new(),
        }
    }
}

/// The live files of a snapshot by offset, and the manifests they are in.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Index {
    /// Disjoint and increasing.
    pub files: Vec<Live>,
    /// As the manifest list has them.
    pub manifests: Vec<ManifestFile>,
}

/// How a file stands to those that are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// After all of them.
    After,
    /// All its offsets are in files that are there.
    Covered,
    /// Some are and some are not, or none is and there are later ones.
    Misfit(&'static str),
}

impl Index {
    pub(super) fn extent(&self) -> Option<(i64, i64)> {
        Some((self.files.first()?.start, self.files.last()?.end))
    }

    pub(super) fn rows(&self) -> u64 {
        self.files.iter().map(|file| file.rows).sum()
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size_bytes).sum()
    }

    /// The files that have offsets in `range`, as positions.
    pub(super) fn touching(&self, range: &Range<i64>) -> Range<usize> {
        let first = self.files.partition_point(|file| file.end <= range.start);
        let last = self.files.partition_point(|file| file.start < range.end);
        first..last.max(first)
    }

    pub(super) fn fit(&self, start: i64, end: i64) -> Fit {
        if self.extent().is_none_or(|(_, last)| start >= last) {
            return Fit::After;
        }
        let touched = &self.files[self.touching(&(start..end))];
        let (Some(first), Some(last)) = (touched.first(), touched.last()) else {
            return Fit::Misfit("it is before files that are there, and its offsets are in none of them");
        };
        let gapless = touched.windows(2).all(|pair| pair[0].end == pair[1].start);
        if first.start <= start && end <= last.end && gapless {
            Fit::Covered
        } else {
            Fit::Misfit("some of its offsets are there already and some are not")
        }
    }

    /// Puts `files` in the place of those in `range`.
    pub(super) fn splice(&mut self, range: &Range<i64>, files: impl IntoIterator<Item = Live>) {
        let place = self.touching(range);
        self.files.splice(place, files);
    }

    /// The first pair of files that share offsets or have the same name.
    pub(super) fn overlap(&self) -> Option<(&Live, &Live)> {
        let pair = self.files.windows(2).find(|pair| pair[0].end > pair[1].start || pair[0].start >= pair[0].end);
        if let Some([one, two]) = pair {
            return Some((one, two));
        }
        let mut names = HashSet::with_capacity(self.files.len());
        let twice = self.files.iter().find(|file| !names.insert(&*file.uri))?;
        Some((twice, twice))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(ranges: &[(i64, i64)]) -> Index {
        let live = |&(start, end): &(i64, i64)| Live {
            uri: format!("file:///{start}").into(),
            start,
            end,
            rows: 1,
            size_bytes: 1,
            ts_us: (0, 0),
            split_offsets: Box::new([]),
        };
        Index { files: ranges.iter().map(live).collect(), manifests: Vec::new() }
    }

    #[test]
    fn files_fit_after_or_are_covered() {
        let index = index(&[(1, 10), (10, 20), (30, 40)]);
        for (start, end, fits) in
            [(40, 50, true), (45, 50, true), (1, 10, true), (5, 15, true), (1, 20, true), (30, 31, true)]
        {
            assert!(!matches!(index.fit(start, end), Fit::Misfit(_)), "{start} {end} {fits}");
        }
        assert_eq!(index.fit(40, 41), Fit::After);
        assert_eq!(index.fit(3, 4), Fit::Covered);
        for (start, end) in [(0, 1), (0, 5), (15, 25), (20, 30), (22, 23), (15, 35), (35, 45)] {
            assert!(matches!(index.fit(start, end), Fit::Misfit(_)), "{start} {end}");
        }
        assert_eq!(super::Index::default().fit(7, 9), Fit::After);
    }

    #[test]
    fn files_are_found_by_range() {
        let index = index(&[(1, 10), (10, 20), (30, 40)]);
        assert_eq!(index.touching(&(10..20)), 1..2);
        assert_eq!(index.touching(&(9..31)), 0..3);
        assert_eq!(index.touching(&(20..30)), 2..2);
        assert_eq!(index.extent(), Some((1, 40)));
        assert!(index.overlap().is_none());
        let mut broken = index;
        broken.files[1].start = 9;
        assert!(broken.overlap().is_some());
    }
}

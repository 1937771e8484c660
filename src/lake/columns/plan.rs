//! Which row groups of a file are read for some offsets, in which order, and how much at a time.

use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};

/// Row groups that are read together: one, or several whose offsets overlap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cluster {
    /// The row groups by number.
    pub groups: Vec<usize>,
    /// The lowest offset, and the highest.
    pub extent: (i64, i64),
}

/// The clusters of row groups with these extents that hold offsets of `from..until`, in the order of offsets.
/// Groups without rows have no extent.
pub(super) fn clusters(extents: &[Option<(i64, i64)>], from: i64, until: i64) -> Vec<Cluster> {
    let mut groups: Vec<(usize, (i64, i64))> =
        extents.iter().enumerate().filter_map(|(group, extent)| Some((group, (*extent)?))).collect();
    groups.sort_by_key(|(_, extent)| *extent);
    let mut clusters: Vec<Cluster> = Vec::new();
    for (group, extent) in groups.into_iter().filter(|(_, (first, last))| *last >= from && *first < until) {
        match clusters.last_mut() {
            Some(cluster) if cluster.extent.1 >= extent.0 => {
                cluster.groups.push(group);
                cluster.extent.1 = cluster.extent.1.max(extent.1);
            }
            _ => clusters.push(Cluster { groups: vec![group], extent }),
        }
    }
    clusters
}

/// Bytes of values that are decoded at a time.
const BATCH_BYTES: u64 = 512 << 10;

/// Rows that are decoded at a time, at most.
const BATCH_ROWS: u64 = 4096;

/// How many rows of a group are decoded at a time.
pub(super) fn batch_rows(group: &RowGroupMetaData) -> usize {
    let rows = u64::try_from(group.num_rows()).unwrap_or(0).max(1);
    let wanted = BATCH_BYTES / (decoded_bytes(group) / rows).max(1);
    wanted.clamp(1, BATCH_ROWS) as usize
}

/// What the values of a group take when they are decoded, in bytes.
pub(super) fn decoded_bytes(group: &RowGroupMetaData) -> u64 {
    let sizes = group
        .columns()
        .iter()
        .map(|chunk| chunk.uncompressed_size().max(chunk.unencoded_byte_array_data_bytes().unwrap_or(0)).max(0) as u64);
    sizes.sum()
}

/// Where the pages of a group are: the first byte, and how many.
pub(super) fn byte_range(metadata: &ParquetMetaData, group: usize) -> Option<(u64, u64)> {
    let ranges = metadata.row_groups().get(group)?.columns().iter().map(|chunk| chunk.byte_range());
    let (start, end) = ranges
        .map(|(start, length)| (start, start.saturating_add(length)))
        .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
    Some((start, end - start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(groups: &[usize], extent: (i64, i64)) -> Cluster {
        Cluster { groups: groups.to_vec(), extent }
    }

    #[test]
    fn groups_come_in_the_order_of_offsets() {
        let extents = [Some((21, 30)), Some((1, 10)), None, Some((11, 20))];
        let all = clusters(&extents, i64::MIN, i64::MAX);
        assert_eq!(all, [cluster(&[1], (1, 10)), cluster(&[3], (11, 20)), cluster(&[0], (21, 30))]);
        assert_eq!(clusters(&extents, 10, 11), [cluster(&[1], (1, 10))]);
        assert_eq!(clusters(&extents, 31, 100), []);
        assert_eq!(clusters(&extents, 15, 22), [cluster(&[3], (11, 20)), cluster(&[0], (21, 30))]);
    }

    #[test]
    fn overlapping_groups_are_read_together() {
        let extents = [Some((1, 10)), Some((5, 20)), Some((20, 25)), Some((26, 30))];
        let all = clusters(&extents, i64::MIN, i64::MAX);
        assert_eq!(all, [cluster(&[0, 1, 2], (1, 25)), cluster(&[3], (26, 30))]);
    }
}

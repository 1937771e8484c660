//! The data root's disk: what it is, how full it is, and how long a commit has to wait for it.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::report::Finding;

/// Syncs that are measured, of each kind.
const SYNCS: usize = 200;
/// Bytes written before each: about a group of the journal.
const WRITE_BYTES: usize = 4_096;
/// Time after which a slow disk is judged by what was measured so far.
const MEASURE_TIME: Duration = Duration::from_secs(5);

pub fn check(root: &Path) -> Vec<Finding> {
    let place = match existing(root) {
        Ok(place) => place,
        Err(error) => {
            let found = format!("{}: {error}", root.display());
            return vec![Finding::fail("data root", found, "name a directory on a local disk with --root")];
        }
    };
    let mut findings = match space(&place) {
        Ok(space) => vec![kind(&space), free(&space)],
        Err(error) => vec![Finding::warn("disk", format!("unknown: {error}"), "look at it with df")],
    };
    findings.extend(match measure(&place) {
        Ok(measured) => {
            vec![sync("fdatasync append", &measured.append), sync("fdatasync overwrite", &measured.overwrite)]
        }
        Err(error) => {
            let found = format!("{} cannot be written: {error}", place.display());
            let fix = format!("give the broker's user the directory: chown or mkdir -p {}", root.display());
            vec![Finding::fail("data root", found, fix)]
        }
    });
    findings
}

/// The root, or the directory it would be made in.
fn existing(root: &Path) -> io::Result<PathBuf> {
    let root = std::path::absolute(root)?;
    for place in root.ancestors() {
        match std::fs::metadata(place) {
            Ok(found) if found.is_dir() => return Ok(place.to_owned()),
            Ok(_) => return Err(io::ErrorKind::NotADirectory.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

struct Space {
    magic: i64,
    free_bytes: u64,
    total_bytes: u64,
}

fn space(place: &Path) -> io::Result<Space> {
    let path = CString::new(place.as_os_str().as_bytes())?;
    // SAFETY: all zeroes is a valid statfs.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with NUL and both outlive the call, which writes the struct only.
    if unsafe { libc::statfs(path.as_ptr(), &mut found) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let block = u64::try_from(found.f_bsize).unwrap_or(0);
    Ok(Space {
        magic: found.f_type,
        free_bytes: found.f_bavail.saturating_mul(block),
        total_bytes: found.f_blocks.saturating_mul(block),
    })
}

/// Whether the file system keeps what it was told to sync. The numbers are those of statfs(2).
fn kind(space: &Space) -> Finding {
    const NAME: &str = "file system";
    const LOCAL: &str = "put the data root on a local disk, ext4 or xfs";
    match space.magic {
        0x0102_1994 => Finding::fail(NAME, "tmpfs: everything is gone with the power", LOCAL),
        0x8584_58f6 => Finding::fail(NAME, "ramfs: everything is gone with the power", LOCAL),
        0x6969 => Finding::warn(NAME, "nfs: locks and syncs depend on the server", LOCAL),
        0xff53_4d42 | 0xfe53_4d42 => Finding::warn(NAME, "smb: locks and syncs depend on the server", LOCAL),
        0x6573_5546 => Finding::warn(NAME, "fuse: syncs depend on the program behind it", LOCAL),
        0x794c_7630 => {
            Finding::warn(NAME, "overlayfs, as in a container's own layer", "mount a volume for the data root")
        }
        0xef53 => Finding::ok(NAME, "ext4"),
        0x5846_5342 => Finding::ok(NAME, "xfs"),
        0x9123_683e => {
            Finding::warn(NAME, "btrfs: copying on write makes every commit slower", "chattr +C on the empty data root")
        }
        0x2fc1_2fc1 => Finding::ok(NAME, "zfs"),
        0xf2f5_2010 => Finding::ok(NAME, "f2fs"),
        other => Finding::ok(NAME, format!("type {other:#x}")),
    }
}

fn free(space: &Space) -> Finding {
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let found = format!("{:.1} of {:.1} GiB free", gib(space.free_bytes), gib(space.total_bytes));
    const FIX: &str = "make room, or move the data root; without room commits fail and publishers wait";
    match space.free_bytes {
        bytes if bytes < 256 << 20 => Finding::fail("free space", found, FIX),
        bytes if bytes < 4 << 30 || bytes < space.total_bytes / 50 => Finding::warn("free space", found, FIX),
        _ => Finding::ok("free space", found),
    }
}

/// Sorted times of a number of syncs.
struct Measured {
    append: Vec<Duration>,
    overwrite: Vec<Duration>,
}

fn measure(place: &Path) -> io::Result<Measured> {
    let path = place.join(format!(".streamcast-doctor-{}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
    let append = times(&mut file);
    let overwrite = append.is_ok().then(|| file.seek(SeekFrom::Start(0)).and_then(|_| times(&mut file)));
    std::fs::remove_file(&path)?;
    Ok(Measured { append: append?, overwrite: overwrite.unwrap_or_else(|| Ok(Vec::new()))? })
}

fn times(file: &mut File) -> io::Result<Vec<Duration>> {
    let bytes = [0x5a; WRITE_BYTES];
    let begun = Instant::now();
    let mut times = Vec::with_capacity(SYNCS);
    while times.len() < SYNCS && begun.elapsed() < MEASURE_TIME {
        let start = Instant::now();
        file.write_all(&bytes)?;
        file.sync_data()?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    Ok(times)
}

fn sync(name: &'static str, times: &[Duration]) -> Finding {
    let at = |part: f64| {
        let index = (times.len() as f64 * part) as usize;
        times.get(index.min(times.len().saturating_sub(1))).copied().unwrap_or_default()
    };
    let (middle, late) = (at(0.5), at(0.99));
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let found = format!("p50 {:.3} ms, p99 {:.3} ms, of {}", ms(middle), ms(late), times.len());
    if middle > Duration::from_millis(5) {
        let fix = "every commit waits this long: use a disk with power-loss protection, or a battery-backed cache";
        return Finding::warn(name, found, fix);
    }
    if late > Duration::from_millis(50) {
        return Finding::warn(name, found, "something else keeps the disk busy; give the data root one of its own");
    }
    if middle < Duration::from_micros(5) {
        let fix = "check that the disk really flushes; a write cache that lies loses acknowledged rows with the power";
        return Finding::warn(name, found, fix);
    }
    Finding::ok(name, found)
}

#[cfg(test)]
mod tests {
    use super::super::report::Level;
    use super::*;

    #[test]
    fn a_new_root_is_measured_where_it_would_be_made() {
        let directory = tempfile::tempdir().expect("a directory");
        let findings = check(&directory.path().join("a/b"));
        let names: Vec<_> = findings.iter().map(|finding| finding.name).collect();
        assert_eq!(names, ["file system", "free space", "fdatasync append", "fdatasync overwrite"]);
        assert_eq!(std::fs::read_dir(directory.path()).map(Iterator::count).ok(), Some(0), "nothing is left behind");
    }

    #[test]
    fn a_root_that_cannot_be_is_a_failure() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        for root in [file.path().to_owned(), file.path().join("below")] {
            let findings = check(&root);
            assert!(findings.iter().any(|finding| finding.level == Level::Fail), "{findings:?}");
        }
    }

    #[test]
    fn disks_are_judged() {
        let space = |magic, free_bytes, total_bytes| Space { magic, free_bytes, total_bytes };
        assert_eq!(kind(&space(0xef53, 0, 0)).level, Level::Ok);
        assert_eq!(kind(&space(0x0102_1994, 0, 0)).level, Level::Fail);
        for (free_bytes, total, level) in [
            (100 << 20, 1 << 40, Level::Fail),
            (1 << 30, 1 << 32, Level::Warn),
            (10 << 30, 1 << 40, Level::Warn),
            (100 << 30, 1 << 40, Level::Ok),
        ] {
            assert_eq!(free(&space(0xef53, free_bytes, total)).level, level, "{free_bytes}");
        }
        let of = |micros: u64| vec![Duration::from_micros(micros); 100];
        for (times, level) in
            [(of(300), Level::Ok), (of(9_000), Level::Warn), (of(1), Level::Warn), (vec![], Level::Warn)]
        {
            assert_eq!(sync("x", &times).level, level);
        }
        let mut spiky = of(300);
        spiky[99] = Duration::from_millis(80);
        assert_eq!(sync("x", &spiky).level, Level::Warn);
    }
}

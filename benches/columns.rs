//! How fast rows become Parquet files and come back: sealing, reading, merging, bulk loading.
//!
//! `cargo bench --bench columns`. Prints rows per second of wall time and of processor time, which is what one core
//! does when the machine is busy with other things.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use streamcast_uring::lake::DataFile;
use streamcast_uring::lake::columns::ingest::{self, ChunkWriter, ReadAhead};
use streamcast_uring::lake::columns::{FileName, FileRows, Layout, Sealer, Source, WriteOptions, merge};
use streamcast_uring::schema::Schema;
use streamcast_uring::wire::{FrameParser, Numbering};

const TRADES: &str = r#"{"type":"object","properties":{"event_ts":{"type":"integer"},"symbol":{"type":"string"},
    "price":{"type":"number"},"amount":{"type":"number"},"side":{"type":"integer","format":"int32"},
    "venue":{"type":"string"}},"required":["event_ts","symbol","price","amount","side","venue"]}"#;

const ROUNDS: usize = 5;

/// Canonical trades, one a line; prices walk, amounts are anything.
fn trades(schema: &Schema, count: u64) -> Vec<Vec<u8>> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut prices = [60_000.0f64, 3_000.0, 150.0, 1.1, 0.5, 90.0, 12.0, 400.0];
    let mut parser = FrameParser::new();
    let mut lines = Vec::with_capacity(count as usize);
    for index in 0..count {
        let which = (random() % 8) as usize;
        prices[which] = ((prices[which] + (random() % 21) as f64 * 0.01 - 0.1).max(0.01) * 100.0).round() / 100.0;
        let row = format!(
            "{{\"event_ts\":{},\"symbol\":\"{}\",\"price\":{:?},\"amount\":{:?},\"side\":{},\"venue\":\"{}\"}}",
            1_700_000_000_000_000 + index * 137 + random() % 100,
            ["BTC-USD", "ETH-USD", "SOL-USD", "EURUSD", "XRP-USD", "LTC-USD", "AVAX-USD", "BNB-USD"][which],
            prices[which],
            (random() % 1_000_000) as f64 / 10_000.0,
            random() % 2,
            ["kraken", "coinbase", "binance"][(random() % 3) as usize],
        );
        match parser.parse(Some(schema), Numbering::Plain, row.as_bytes()) {
            Ok(frame) => lines.push(frame.rows.row(0).to_vec()),
            Err(refusal) => panic!("{refusal}"),
        }
    }
    lines
}

/// Processor time of this process, in user and system mode.
fn processor_time() -> Duration {
    // SAFETY: getrusage only writes to the struct it is given, for which all zeros are valid.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// The most memory this process ever had, in MiB.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn measure<T>(name: &str, rows: u64, mut work: impl FnMut() -> T) -> T {
    let mut best: Option<(Duration, Duration)> = None;
    let mut last = None;
    for _ in 0..ROUNDS {
        let (start, processor) = (Instant::now(), processor_time());
        last = Some(black_box(work()));
        let took = (start.elapsed(), processor_time().saturating_sub(processor));
        best = Some(best.map_or(took, |best| (best.0.min(took.0), best.1.min(took.1))));
    }
    let (wall, processor) = best.unwrap_or_default();
    let rate = |time: Duration| rows as f64 / time.as_secs_f64() / 1e6;
    println!(
        "{name:<48} {:>7.2} M rows/s   {:>7.2} M rows/s of processor time   peak {} MiB",
        rate(wall),
        rate(processor),
        peak_mib()
    );
    last.unwrap_or_else(|| panic!("no round was run"))
}

fn seal(layout: &Layout, directory: &Path, options: &WriteOptions, lines: &[Vec<u8>], first: i64) -> DataFile {
    let run = || {
        let mut sealer = Sealer::create(layout, directory, options)?;
        for (offset, line) in (first..).zip(lines) {
            sealer.push(offset, 1_700_000_000_000_000 + offset / 100, line)?;
        }
        sealer.finish_named(FileName::Extent)
    };
    run().unwrap_or_else(|error| panic!("{error}"))
}

fn path(file: &DataFile) -> PathBuf {
    PathBuf::from(file.uri.trim_start_matches("file://"))
}

fn read(layout: &Layout, file: &DataFile) -> usize {
    let run = || {
        let mut rows = FileRows::open(Source::file(&path(file))?, layout, i64::MIN, i64::MAX)?;
        let mut bytes = 0;
        while let Some(row) = rows.peek()? {
            bytes += row.line.len();
            rows.advance();
        }
        Ok::<_, streamcast_uring::lake::columns::ColumnsError>(bytes)
    };
    run().unwrap_or_else(|error| panic!("{error}"))
}

/// Writes the columns as another program would have them: a table without offsets and stamps.
fn table(layout: &Layout, lines: &[Vec<u8>], path: &Path, times: usize) -> u64 {
    use std::io::Write as _;
    let mut text = Vec::new();
    for line in lines {
        text.extend_from_slice(line);
        text.push(b'\n');
    }
    let lines_path = path.with_extension("ndjson");
    std::fs::write(&lines_path, &text).unwrap_or_else(|error| panic!("{error}"));
    let fields = layout.arrow().fields();
    let schema = arrow::datatypes::Schema::new(fields[1..fields.len() - 1].to_vec());
    let schema = std::sync::Arc::new(schema);
    let file = std::fs::File::create(path).unwrap_or_else(|error| panic!("{error}"));
    let mut out = parquet::arrow::ArrowWriter::try_new(file, schema.clone(), None).unwrap_or_else(|e| panic!("{e}"));
    let ipc = std::fs::File::create(path.with_extension("arrow")).unwrap_or_else(|error| panic!("{error}"));
    let mut ipc = arrow::ipc::writer::FileWriter::try_new(ipc, &schema).unwrap_or_else(|e| panic!("{e}"));
    let mut rows = 0;
    for _ in 0..times {
        let source = ingest::Source::open(&lines_path, None, layout).unwrap_or_else(|e| panic!("{e}"));
        for chunk in source {
            let chunk = chunk.unwrap_or_else(|error| panic!("{error}"));
            rows += chunk.rows as u64;
            let batch = arrow::array::RecordBatch::try_new(schema.clone(), chunk.columns);
            let batch = batch.unwrap_or_else(|error| panic!("{error}"));
            out.write(&batch).unwrap_or_else(|error| panic!("{error}"));
            ipc.write(&batch).unwrap_or_else(|error| panic!("{error}"));
        }
    }
    out.close().unwrap_or_else(|error| panic!("{error}"));
    ipc.finish().unwrap_or_else(|error| panic!("{error}"));
    std::io::stdout().flush().unwrap_or_default();
    rows
}

fn load(layout: &Layout, path: &Path, directory: &Path, threads: usize) -> u64 {
    let run = || {
        let options = WriteOptions { threads, ..WriteOptions::new(&[]) };
        let mut writer = ChunkWriter::create(layout, directory, &options)?;
        let mut next = 1;
        let source = ingest::Source::open(path, None, layout)?;
        let ahead = ReadAhead::start(source).unwrap_or_else(|error| panic!("{error}"));
        for chunk in ahead {
            let chunk = chunk?;
            writer.push(&chunk, next, 1_700_000_000_000_000)?;
            next += chunk.rows as i64;
        }
        let rows = writer.rows();
        let file = writer.finish_named()?;
        let _ = std::fs::remove_file(file.uri.trim_start_matches("file://"));
        Ok::<_, ingest::IngestError>(rows)
    };
    run().unwrap_or_else(|error| panic!("{error}"))
}

fn main() {
    let schema = Schema::compile_text(TRADES, true).unwrap_or_else(|error| panic!("{error}"));
    let layout = Layout::new(&schema).unwrap_or_else(|error| panic!("{error}"));
    let directory = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let count: u64 = 200_000;
    let lines = trades(&schema, count);
    println!("a row: {} bytes as a line", lines.iter().map(Vec::len).sum::<usize>() as u64 / count);

    let plain = WriteOptions::new(&[]);
    let file = measure("seal", count, || seal(&layout, directory.path(), &plain, &lines, 1));
    println!("    {} bytes a row in the file", file.size_bytes / count);
    let sorted = WriteOptions::new(&["symbol".to_owned(), "event_ts".to_owned()]);
    let sorted_file =
        measure("seal, sorted by two columns", count, || seal(&layout, directory.path(), &sorted, &lines, 1));
    measure("read lines", count, || read(&layout, &file));
    measure("read lines of the sorted file", count, || read(&layout, &sorted_file));

    let parts: Vec<DataFile> =
        (0..5).map(|part| seal(&layout, directory.path(), &plain, &lines, 1 + part * count as i64)).collect();
    measure("merge of five", count * 5, || {
        let sources: Result<Vec<_>, _> = parts.iter().map(|file| Source::file(&path(file))).collect();
        let sources = sources.unwrap_or_else(|error| panic!("{error}"));
        merge(&sources, &layout, directory.path(), u64::MAX, &plain).unwrap_or_else(|error| panic!("{error}"))
    });

    drop(lines);
    let table_path = directory.path().join("source.parquet");
    let lines = trades(&schema, count);
    let rows = table(&layout, &lines, &table_path, 10);
    drop(lines);
    for threads in [1, 2] {
        measure(&format!("bulk load of Parquet, {threads} encoding"), rows, || {
            load(&layout, &table_path, directory.path(), threads)
        });
        measure(&format!("bulk load of Arrow, {threads} encoding"), rows, || {
            load(&layout, &table_path.with_extension("arrow"), directory.path(), threads)
        });
    }
    measure("bulk load of NDJSON", count, || load(&layout, &table_path.with_extension("ndjson"), directory.path(), 1));
}

//! Keeps the borders of docs/architecture.md: which room may name which, where a dependency may appear, and the
//! few rules of the house that a compiler does not know.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

#[path = "support/source.rs"]
mod source;

use source::Source;

/// A room, the other modules of the crate it may name, and the parts of the engine it may name (`*` is all of it).
struct Room {
    name: &'static str,
    modules: &'static [&'static str],
    engine: &'static [&'static str],
}

const fn room(name: &'static str, modules: &'static [&'static str], engine: &'static [&'static str]) -> Room {
    Room { name, modules, engine }
}

const ANY: &[&str] = &["*"];

/// Every module of the crate. `main` and `lib` put it together and are not rooms.
const ROOMS: &[Room] = &[
    room("schema", &[], &[]),
    room("wire", &["schema"], &["Block", "frame"]),
    room("stream", &["schema", "wire"], &[]),
    room("journal", &["schema", "stream", "telemetry", "wire"], &["Block", "cores", "frame", "manner"]),
    room("lake", &["journal", "schema", "stream", "telemetry", "wire"], &["cores", "manner"]),
    room("session", &["auth", "journal", "schema", "stream", "telemetry", "wire"], ANY),
    room("registry", &["schema", "stream", "wire"], &[]),
    room("telemetry", &[], &[]),
    room("tls", &[], &["Cipher", "Encryption"]),
    room("logging", &["config"], &[]),
    room("config", &["schema", "stream", "wire"], &["cores"]),
    room("auth", &["tls"], &[]),
    room("batches", &["journal", "lake", "schema", "session", "stream", "telemetry", "wire"], &["frame"]),
    room("http", &["auth", "batches", "registry", "schema", "telemetry", "tls", "wire"], &["cores", "manner"]),
    room("client", &["schema", "tls", "wire"], &[]),
    room("demo", &["broker", "client", "config", "schema", "wire"], &[]),
    room("broker", ANY, ANY),
    room("cli", ANY, &["cores", "probe", "quota"]),
];

/// Where an outside crate, or a part of the standard library, may be named. The places are path prefixes.
const PLACES: &[(&str, &[&str])] = &[
    ("glommio", &["shards/"]),
    ("io_uring", &["shards/"]),
    ("tungstenite", &["shards/"]),
    ("rusqlite", &["src/journal/", "src/lake/", "src/registry/"]),
    ("axum", &["src/http/"]),
    ("hyper", &["src/http/", "src/client/"]),
    ("hyper_util", &["src/http/", "src/client/"]),
    ("http_body_util", &["src/http/", "src/client/"]),
    ("tower", &["src/http/"]),
    ("prometheus", &["src/http/"]),
    ("utoipa", &["src/http/"]),
    ("clap", &["src/cli/", "src/config/", "perf/"]),
    ("toml", &["src/auth/", "src/config/", "perf/"]),
    ("tokio_tungstenite", &["src/client/", "src/http/"]),
    (
        "tokio",
        &["src/auth/", "src/batches/", "src/http/", "src/client/", "src/cli/", "src/demo/", "src/broker/", "src/lake/"],
    ),
    ("iceberg", &["src/lake/"]),
    ("object_store", &["src/lake/store/"]),
    ("rustls", &["src/auth/", "src/broker/", "src/client/", "src/http/", "src/tls/", "perf/"]),
    ("tokio_rustls", &["src/client/", "src/http/"]),
    ("jsonwebtoken", &["src/auth/"]),
    ("argon2", &["src/auth/"]),
    ("reqwest", &["src/auth/"]),
    ("simd_json", &["src/schema/", "src/wire/"]),
    ("core_affinity", &["shards/", "src/broker/", "perf/"]),
];

/// Rooms that are told the time and never take it, and that do no I/O: everything in them is a function of its input.
const PURE: &[&str] = &["src/schema/", "src/wire/", "src/stream/"];
const IMPURE: &[&str] =
    &["std::net", "std::fs", "std::thread", "std::env", "Instant::now", "SystemTime::now", "libc::"];

const MAX_LINES: usize = 600;

#[test]
fn rooms_name_only_their_neighbours() {
    let mut wrong = String::new();
    for file in product() {
        let Some(name) = file.room() else { continue };
        let Some(room) = ROOMS.iter().find(|room| room.name == name) else {
            let _ = writeln!(wrong, "{}: no such room; add it to ROOMS and to docs/architecture.md", file.path);
            continue;
        };
        for (line, module) in file.paths_below("crate") {
            if module != name && !allows(room.modules, &module) {
                let _ = writeln!(wrong, "{}:{line}: {name} may not name {module}", file.path);
            }
        }
        for (line, part) in file.paths_below("streamcast_shards") {
            if !allows(room.engine, &part) {
                let _ = writeln!(wrong, "{}:{line}: {name} may not name the engine's {part}", file.path);
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// Sources that a fuzz build includes name only what it includes as well: it is built last, and knows no more of the crate.
#[test]
fn what_is_fuzzed_stands_alone() {
    let fuzz: Vec<Source> = read(&["fuzz/src"]);
    let text: String = fuzz.iter().map(|file| file.text.as_str()).collect();
    let included: Vec<&str> = text.split("\"../../").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(!included.is_empty(), "nothing is fuzzed");
    let modules: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';')).collect();
    let mut wrong = String::new();
    for file in product() {
        let is_included = |path: &&str| match path.strip_suffix("mod.rs") {
            Some(room) => file.path.starts_with(room),
            None => file.path == **path,
        };
        if !included.iter().any(is_included) {
            continue;
        }
        for (line, module) in file.paths_below("crate") {
            if !modules.contains(module.as_str()) {
                let _ = writeln!(wrong, "{}:{line}: the fuzz build has no {module}", file.path);
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn rooms_exist() {
    let there: BTreeSet<String> = product().iter().filter_map(Source::room).collect();
    let gone: Vec<_> = ROOMS.iter().map(|room| room.name).filter(|name| !there.contains(*name)).collect();
    assert!(gone.is_empty(), "rooms without a file: {gone:?}");
}

#[test]
fn dependencies_stay_in_their_place() {
    let mut wrong = String::new();
    for file in product() {
        for (name, places) in PLACES {
            if places.iter().any(|place| file.path.starts_with(place)) {
                continue;
            }
            for line in file.lines_naming(name) {
                let _ = writeln!(wrong, "{}:{line}: {name} is for {}", file.path, places.join(", "));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn engine_knows_bytes_and_not_rows() {
    let mut wrong = String::new();
    for file in product().iter().filter(|file| file.path.starts_with("shards/")) {
        for name in ["serde_json", "serde", "streamcast_uring", "http", "tokio", "axum"] {
            for line in file.lines_naming(name) {
                let _ = writeln!(wrong, "{}:{line}: the engine may not name {name}", file.path);
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn pure_rooms_do_no_io() {
    let mut wrong = String::new();
    for file in product().iter().filter(|file| PURE.iter().any(|room| file.path.starts_with(room))) {
        for (number, line) in file.code.lines().enumerate() {
            for call in IMPURE.iter().filter(|call| line.contains(*call)) {
                let _ = writeln!(wrong, "{}:{}: {call} in a pure room", file.path, number + 1);
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// `unwrap` never; `expect` and `unreachable!` with a comment `// panics: …` that says why it cannot happen, on the same
/// line or just above the statement.
#[test]
fn panics_are_argued_for() {
    let mut wrong = String::new();
    for file in product() {
        let written: Vec<&str> = file.text.lines().collect();
        for (number, line) in file.code.lines().enumerate() {
            let calls = [".unwrap()", ".expect(", "unreachable!", "panic!(", "todo!", "unimplemented!"];
            let Some(call) = calls.iter().find(|call| line.contains(**call)) else { continue };
            let argued = written[number.saturating_sub(3)..=number].iter().any(|line| line.contains("// panics:"));
            if !argued || matches!(*call, ".unwrap()" | "todo!" | "unimplemented!") {
                let _ = writeln!(wrong, "{}:{}: {call} without `// panics:`", file.path, number + 1);
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn files_tell_one_thing() {
    let mut wrong = String::new();
    for file in everything() {
        let lines = file.text.lines().count();
        if lines > MAX_LINES {
            let _ = writeln!(wrong, "{}: {lines} lines, at most {MAX_LINES}", file.path);
        }
        if file.path.ends_with("/mod.rs") && !file.is_test() && file.code.split_whitespace().any(|word| word == "fn") {
            let _ = writeln!(wrong, "{}: mod.rs lists what there is and does nothing", file.path);
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// A lint that is let through has to be one that fires, so that it goes when its reason goes.
#[test]
fn lints_are_expected_not_allowed() {
    let mut wrong = String::new();
    for file in everything() {
        for (number, line) in file.code.lines().enumerate() {
            if line.contains("#[allow(") || line.contains("#![allow(") || line.contains("#[ignore") {
                let _ = writeln!(wrong, "{}:{}: {}", file.path, number + 1, line.trim());
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

fn allows(list: &[&str], name: &str) -> bool {
    list.iter().any(|allowed| *allowed == "*" || *allowed == name)
}

/// Sources that end up in a program, without their test modules.
fn product() -> Vec<Source> {
    read(&["src", "shards/src", "perf/src"]).into_iter().filter(|file| !file.is_test()).collect()
}

fn everything() -> Vec<Source> {
    read(&["src", "shards", "perf", "tests", "benches", "fuzz/fuzz_targets"])
}

fn read(roots: &[&str]) -> Vec<Source> {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    for root in roots {
        collect(&home.join(root), &mut paths);
    }
    assert!(!paths.is_empty(), "no sources below {}", home.display());
    paths.sort();
    paths.iter().map(|path| Source::read(home, path)).collect()
}

fn collect(directory: &Path, paths: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries {
        let path = entry.expect("a directory entry").path();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if path.is_dir() && !hidden && !path.ends_with("target") {
            collect(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
}

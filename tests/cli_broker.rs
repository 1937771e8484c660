//! `publish` and `subscribe` against a broker that runs, each test with one of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use streamcast_shards::cores::{allowed_cores, parse_list};

const CONFIG: &str = r#"
[[stream]]
name = "r"
schema.properties = { id = { type = "integer" }, note = { type = ["string", "null"] } }
schema.required = ["id"]

[[stream]]
name = "once"
exactly_once = true
schema.properties = { id = { type = "integer" }, note = { type = ["string", "null"] } }
schema.required = ["id"]

[[stream]]
name = "small"
schema.properties = { id = { type = "integer" }, note = { type = ["string", "null"] } }
schema.required = ["id"]
[stream.limits]
max_message_bytes = 300

[[stream]]
name = "live"
"#;

/// How long anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_streamcast-uring"))
}

/// A broker on a free port, ended with the test.
struct Broker {
    child: Child,
    directory: tempfile::TempDir,
    port: u16,
}

impl Broker {
    fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("streamcast.toml"), CONFIG).expect("a file");
        let (child, port) = serve(directory.path(), 0);
        Self { child, directory, port }
    }

    /// Kills the broker and starts it again on the same port.
    fn restart(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
        self.child = serve(self.directory.path(), self.port).0;
    }

    fn uri(&self, stream: &str) -> String {
        format!("ws://127.0.0.1:{}/{stream}", self.port)
    }

    fn command(&self, name: &str, stream: &str, options: &[&str]) -> Command {
        let mut command = program();
        command.current_dir(self.directory.path()).arg(name).arg(self.uri(stream)).args(options);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn publish(&self, stream: &str, options: &[&str], input: &str) -> (i32, String) {
        let mut child = self.command("publish", stream, options).spawn().expect("the program runs");
        let mut stdin = child.stdin.take().expect("an input");
        // A publisher that has stopped takes no more input.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        let output = child.wait_with_output().expect("it ends");
        (output.status.code().unwrap_or(-1), text(&output.stderr))
    }

    fn subscribe(&self, stream: &str, options: &[&str]) -> (i32, Vec<String>, String) {
        let Output { status, stdout, stderr } = self.command("subscribe", stream, options).output().expect("it runs");
        (status.code().unwrap_or(-1), text(&stdout).lines().map(str::to_owned).collect(), text(&stderr))
    }

    /// The ids of the first `rows` rows of a stream.
    fn ids(&self, stream: &str, rows: u64) -> Vec<i64> {
        let limit = rows.to_string();
        let (code, lines, err) = self.subscribe(stream, &["--offset", "earliest", "--rows", "--limit", &limit]);
        assert_eq!(code, 0, "{err}");
        lines.iter().map(|line| id(line)).collect()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a broker and waits until it says where it listens.
fn serve(directory: &Path, port: u16) -> (Child, u16) {
    serve_on(directory, port, "0")
}

/// The same on these cores.
fn serve_on(directory: &Path, port: u16, cores: &str) -> (Child, u16) {
    let mut command = program();
    command.current_dir(directory).args(["--cores", cores, "--log", "error", "--listen", &format!("127.0.0.1:{port}")]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the program runs");
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().expect("an output"));
    out.read_line(&mut line).expect("a line");
    let port = line.trim().rsplit(':').next().and_then(|port| port.parse().ok());
    (child, port.unwrap_or_else(|| panic!("no port in {line:?}")))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

fn id(row: &str) -> i64 {
    let row: Value = serde_json::from_str(row).expect("JSON");
    let row = if row.is_array() { &row[2] } else { &row };
    row["id"].as_i64().expect("an id")
}

fn rows(ids: impl IntoIterator<Item = i64>) -> String {
    ids.into_iter().map(|id| format!("{{\"id\":{id}}}\n")).collect()
}

fn signal(child: &Child, signal: &str) {
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().expect("kill runs");
    assert!(sent.success());
}

fn ended(child: &mut Child) -> ExitStatus {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("waited") {
            return status;
        }
        assert!(begun.elapsed() < PATIENCE, "it does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn next_line(out: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    out.read_line(&mut line).expect("a line");
    line
}

#[test]
fn rows_go_in_and_come_out() {
    let broker = Broker::start();
    let (code, told) = broker.publish("r", &[], &rows(1..=1_000));
    assert_eq!(code, 0, "{told}");
    assert!(told.contains("1000 rows stored"), "{told}");
    assert_eq!(broker.ids("r", 1_000), (1..=1_000).collect::<Vec<_>>());
    let (code, lines, _) = broker.subscribe("r", &["--offset", "998", "--limit", "2"]);
    assert_eq!((code, lines.iter().map(|line| id(line)).collect::<Vec<_>>()), (0, vec![998, 999]));
    assert!(lines[0].starts_with("[998,"), "{lines:?}");
    let (code, lines, _) = broker.subscribe("r?offset=0", &["--where", r#"{"id":[7,500]}"#, "--limit", "2", "--quiet"]);
    assert_eq!((code, lines.iter().map(|line| id(line)).collect::<Vec<_>>()), (0, vec![7, 500]));
}

#[test]
fn refused_rows_are_told_by_line_and_the_rest_is_stored() {
    let broker = Broker::start();
    let input = "{\"id\":1}\n\n{\"id\":\"x\"}\n{\"id\":2},{\"id\":3}\nnonsense\n{\"id\":4,\"note\":\"é\"}\n{\"id\":5,\"z\":1}\n";
    let (code, told) = broker.publish("r", &["--refused", "aside"], input);
    assert_eq!(code, 1, "{told}");
    for line in ["line 3: refused: ", "line 4: refused: ", "line 5: refused: ", "line 7: refused: ", "2 rows stored"] {
        assert!(told.contains(line), "{told}");
    }
    assert!(told.contains("4 refused"), "{told}");
    assert_eq!(broker.ids("r", 2), [1, 4]);
    let aside = std::fs::read_to_string(broker.directory.path().join("aside")).expect("the file");
    let mut lines: Vec<u64> =
        aside.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()?["line"].as_u64()).collect();
    lines.sort_unstable();
    assert_eq!(lines, [3, 4, 5, 7]);
}

#[test]
fn rows_too_large_for_the_stream_are_refused_and_batches_divided() {
    let broker = Broker::start();
    let large = format!("{{\"id\":51,\"note\":\"{}\"}}\n", "x".repeat(400));
    let (code, told) = broker.publish("small", &[], &(rows(1..=50) + &large + &rows(52..=60)));
    assert_eq!(code, 1, "{told}");
    assert!(told.contains("line 51: refused: a row of 419 bytes"), "{told}");
    let mut ids = broker.ids("small", 59);
    ids.sort_unstable();
    assert_eq!(ids, (1..=50).chain(52..=60).collect::<Vec<_>>());
}

#[test]
fn numbered_rows_are_stored_once_however_often_they_are_published() {
    let broker = Broker::start();
    let (code, told) = broker.publish("once", &["--publisher", "p"], &rows(1..=300));
    assert_eq!(code, 0, "{told}");
    let (code, told) = broker.publish("once", &["--publisher", "p"], &rows(1..=350));
    assert_eq!(code, 0, "{told}");
    assert!(told.contains("300 rows of this publisher already"), "{told}");
    let (code, told) = broker.publish("once", &["--publisher", "p"], &rows(1..=5));
    assert_eq!(code, 1, "another input: {told}");
    let (code, told) = broker.publish("once", &["--publisher", "p", "--continue"], &rows(351..=360));
    assert_eq!(code, 0, "{told}");
    assert_eq!(broker.ids("once", 360), (1..=360).collect::<Vec<_>>());
    let (code, told) = broker.publish("r", &["--publisher", "p"], &rows(1..=1));
    assert_eq!(code, 3, "{told}");
    assert!(told.contains("takes no numbered rows"), "{told}");
}

#[test]
fn a_numbered_run_stops_at_a_bad_row_unless_it_is_set_aside() {
    let broker = Broker::start();
    let input = rows(1..=150) + "{\"id\":\"bad\"}\n" + &rows(151..=250) + "junk\n" + &rows(251..=300);
    let (code, told) = broker.publish("once", &["--publisher", "p"], &input);
    assert_eq!(code, 1, "{told}");
    assert!(told.contains("line 151: refused: ") && told.contains("stopped at the refused row"), "{told}");
    let aside = ["--publisher", "p", "--refused", "aside"];
    let (code, told) = broker.publish("once", &aside, &input);
    assert_eq!(code, 1, "{told}");
    assert!(told.contains("2 refused"), "{told}");
    // The same input once more: the rows set aside have no numbers, so everything is known.
    let (code, told) = broker.publish("once", &aside, &input);
    assert_eq!(code, 0, "{told}");
    assert!(told.contains("0 rows stored") && told.contains("300 known before"), "{told}");
    assert_eq!(broker.ids("once", 300), (1..=300).collect::<Vec<_>>());
}

#[test]
fn a_cursor_goes_on_behind_the_last_row_printed() {
    let broker = Broker::start();
    assert_eq!(broker.publish("r", &[], &rows(1..=30)).0, 0);
    let mut seen = Vec::new();
    for _ in 0..3 {
        let options = ["--offset", "earliest", "--cursor", "c", "--limit", "10"];
        let (code, lines, err) = broker.subscribe("r", &options);
        assert_eq!(code, 0, "{err}");
        seen.extend(lines.iter().map(|line| id(line)));
    }
    assert_eq!(seen, (1..=30).collect::<Vec<_>>());
    // From now on: the position is kept although no row came.
    let mut waiting = broker.command("subscribe", "r", &["--cursor", "now"]).spawn().expect("it runs");
    let cursor = broker.directory.path().join("now");
    let begun = Instant::now();
    while !cursor.exists() {
        assert!(begun.elapsed() < PATIENCE, "no cursor is written");
        std::thread::sleep(Duration::from_millis(5));
    }
    signal(&waiting, "-TERM");
    assert_eq!(ended(&mut waiting).code(), Some(0));
    assert_eq!(broker.publish("r", &[], &rows(31..=32)).0, 0);
    let (code, lines, err) = broker.subscribe("r", &["--cursor", "now", "--limit", "2"]);
    assert_eq!((code, lines.iter().map(|line| id(line)).collect::<Vec<_>>()), (0, vec![31, 32]), "{err}");
    // A cursor of another stream is not this stream's.
    let (code, _, err) = broker.subscribe("once", &["--cursor", "now", "--limit", "1"]);
    assert_eq!(code, 3, "{err}");
}

#[test]
fn both_ends_outlive_a_killed_broker() {
    let mut broker = Broker::start();
    let mut publisher =
        broker.command("publish", "once", &["--publisher", "p", "--linger", "1"]).spawn().expect("it runs");
    let mut subscriber = broker.command("subscribe", "once", &["--offset", "earliest"]).spawn().expect("it runs");
    let mut input = publisher.stdin.take().expect("an input");
    let mut out = BufReader::new(subscriber.stdout.take().expect("an output"));
    let mut seen = Vec::new();
    for part in 0..4_i64 {
        let ids = part * 100 + 1..=part * 100 + 100;
        input.write_all(rows(ids.clone()).as_bytes()).expect("taken");
        if part > 0 {
            // Some of the part may be on its way now.
            broker.restart();
        }
        for _ in ids {
            seen.push(id(&next_line(&mut out)));
        }
    }
    drop(input);
    assert_eq!(ended(&mut publisher).code(), Some(0));
    assert_eq!(seen, (1..=400).collect::<Vec<_>>());
    signal(&subscriber, "-INT");
    assert_eq!(ended(&mut subscriber).code(), Some(0));
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("read");
    assert_eq!(rest, "", "nothing comes twice");
}

#[test]
fn an_output_nobody_reads_is_no_error() {
    let broker = Broker::start();
    assert_eq!(broker.publish("r", &[], &rows(1..=20_000)).0, 0);
    let mut subscriber = broker.command("subscribe", "r", &["--offset", "0"]).spawn().expect("it runs");
    let mut out = BufReader::new(subscriber.stdout.take().expect("an output"));
    assert_eq!(id(&next_line(&mut out)), 1);
    drop(out);
    assert_eq!(ended(&mut subscriber).code(), Some(0));
}

#[test]
fn refusals_of_the_broker_end_with_3() {
    let broker = Broker::start();
    for (stream, options, told) in [
        ("nope", &[][..], "no such stream; the broker serves live, once, r, small"),
        ("r", &["--offset", "99"], "offset 99 lies beyond the end of the stream, 1"),
        ("live", &["--offset", "earliest"], "keeps no rows"),
        ("r", &["--where", r#"{"nope":1}"#], "refused the request"),
        ("r?bogus=1", &[], "bogus"),
    ] {
        let (code, _, err) = broker.subscribe(stream, options);
        assert_eq!(code, 3, "{stream} {options:?}: {err}");
        assert!(err.contains(told), "{stream} {options:?}: {err}");
    }
    let (code, told) = broker.publish("nope", &[], &rows(1..=1));
    assert_eq!(code, 3, "{told}");
}

#[test]
fn live_streams_carry_any_objects() {
    let broker = Broker::start();
    let mut subscriber = broker.command("subscribe", "live", &["--limit", "2", "--rows"]).spawn().expect("it runs");
    let mut notes = BufReader::new(subscriber.stderr.take().expect("notes"));
    let mut note = String::new();
    notes.read_line(&mut note).expect("a note");
    assert!(note.contains("connected to live"), "{note}");
    let (code, told) = broker.publish("live", &[], "{\"b\":1,\"a\":[true]}\n{ \"x\" : 1e400 }\n{\"c\":{}}\n");
    assert_eq!(code, 1, "{told}");
    assert!(told.contains("line 2: refused: "), "{told}");
    let output = subscriber.wait_with_output().expect("it ends");
    assert_eq!(text(&output.stdout), "{\"b\":1,\"a\":[true]}\n{\"c\":{}}\n");
}

#[test]
fn serving_ends_with_0_on_a_signal_and_with_1_when_it_cannot_start() {
    let mut broker = Broker::start();
    let port = format!("127.0.0.1:{}", broker.port);
    let mut second = program();
    second.current_dir(broker.directory.path()).args(["--cores", "0", "--listen", "127.0.0.1:0"]);
    let output = second.output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("is in use by process"), "{}", text(&output.stderr));
    let mut third = program();
    third.current_dir(broker.directory.path()).args(["--root", "other", "--cores", "0", "--listen", &port]);
    let output = third.output().expect("it runs");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    signal(&broker.child, "-TERM");
    assert_eq!(ended(&mut broker.child).code(), Some(0));
}

/// The names of a process's threads, each with the list of the cores that it may run on.
fn threads(process: u32) -> Vec<(String, String)> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("a process");
    let told = |task: std::fs::DirEntry| {
        let name = std::fs::read_to_string(task.path().join("comm")).ok()?.trim().to_owned();
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let cores = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim().to_owned();
        Some((name, cores))
    };
    tasks.filter_map(|task| told(task.ok()?)).collect()
}

#[test]
fn nothing_but_a_shard_runs_on_its_core_when_there_is_another() {
    let allowed = allowed_cores();
    let &[shard, writer, ..] = allowed.as_slice() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("streamcast.toml"), format!("[registry]\n{CONFIG}")).expect("a file");
    let (child, port) = serve_on(directory.path(), 0, &format!("{shard},{writer}"));
    let broker = Broker { child, directory, port };
    // A thread that has begun names itself, and then it goes where it belongs.
    let began = Instant::now();
    loop {
        let found = threads(broker.child.id());
        let names = ["registry", "http", "doorbell", "sc-checkpoint", "sc-reader-0", "sc-lake", "sc-writer", "shard-0"];
        let missing = names.iter().find(|name| !found.iter().any(|(found, _)| found == *name));
        if let Some(name) = missing {
            assert!(began.elapsed() < PATIENCE, "no {name} in {found:?}");
            std::thread::sleep(Duration::from_millis(10));
            continue;
        }
        // The first thread only waits for signals.
        let works = |name: &str| name.starts_with("sc-") || ["registry", "http", "doorbell"].contains(&name);
        let astray = |(name, cores): &&(String, String)| {
            works(name) && parse_list(cores, &allowed).expect("a list").contains(&shard)
        };
        let Some(astray) = found.iter().find(astray) else { break };
        assert!(began.elapsed() < PATIENCE, "{astray:?} may run where shard {shard} does");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// `remote` with `arguments` against the broker: its exit code, and what it said.
fn remote(broker: &Broker, arguments: &[&str]) -> (i32, String) {
    let url = format!("http://127.0.0.1:{}", broker.port);
    let output = program()
        .current_dir(broker.directory.path())
        .env_remove("STREAMCAST_TOKEN")
        .args(["remote", "--broker", &url])
        .args(arguments)
        .output()
        .expect("the program runs");
    (output.status.code().unwrap_or(-1), text(&output.stdout) + &text(&output.stderr))
}

#[test]
fn streams_are_declared_served_and_stopped_from_elsewhere() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("streamcast.toml"), "[registry]\n").expect("a file");
    let schema = r#"{"type":"object","properties":{"id":{"type":"integer"}},"required":["id"]}"#;
    std::fs::write(directory.path().join("schema.json"), schema).expect("a file");
    let (child, port) = serve(directory.path(), 0);
    let mut broker = Broker { child, directory, port };
    let (code, said) = remote(&broker, &["create", "orders", "--schema", "schema.json"]);
    assert_eq!((code, said.as_str()), (0, "declared, revision 1\nserved, revision 2\n"));
    let (code, said) = broker.publish("orders", &["-"], "{\"id\":1}\n");
    assert_eq!(code, 0, "{said}");
    let (code, said) = remote(&broker, &["create", "orders", "--schema", "schema.json"]);
    assert!(code == 3 && said.contains("there is such a stream already"), "{code} {said}");
    let (code, said) = remote(&broker, &["streams"]);
    assert!(code == 0 && said.starts_with("orders ") && said.contains("serving, wanted serving, revision 2"), "{said}");
    assert_eq!(remote(&broker, &["stop", "orders"]), (0, "stopped, revision 3\n".to_owned()));
    assert_eq!(remote(&broker, &["stop", "orders"]), (0, "stopped, revision 3\n".to_owned()));
    broker.restart();
    let (code, said) = remote(&broker, &["streams", "orders"]);
    assert!(code == 0 && said.contains("\"state\": \"stopped\""), "{said}");
    assert_eq!(remote(&broker, &["serve", "orders"]), (0, "served, revision 4\n".to_owned()));
    let (code, said) = remote(&broker, &["serve", "nope"]);
    assert!(code == 3 && said.contains("404 unknown_stream"), "{code} {said}");
    let (code, said) = remote(&broker, &["create", "a b", "--schema", "schema.json"]);
    assert!(code == 3 && said.contains("422 invalid_name"), "{code} {said}");
    let (code, _) = remote(&broker, &["create", "x", "--schema", "missing.json"]);
    assert_eq!(code, 2);
}

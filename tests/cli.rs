//! Exit codes and messages of the commands, with the program itself. Nothing here needs a broker that runs;
//! `cli_broker.rs` has what does.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const SCHEMA: &str = r#"{"type": "object", "properties": {"id": {"type": "integer"}, "note": {"type": ["string", "null"]}}, "required": ["id"]}"#;

/// Runs the program in `directory`; its input is empty.
fn run(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_streamcast-uring"));
    command.current_dir(directory).args(arguments).stdin(Stdio::null());
    command.output().expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// Runs the program in a directory of its own with these files; checks the exit code and what stands on stdout and
/// stderr.
#[track_caller]
fn check(files: &[(&str, &str)], arguments: &[&str], code: i32, out: &str, err: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, text) in files {
        std::fs::write(directory.path().join(name), text).expect("a file");
    }
    let output = run(directory.path(), arguments);
    let (found_out, found_err) = (text(&output.stdout), text(&output.stderr));
    let shown = format!("{arguments:?}\nstdout: {found_out}\nstderr: {found_err}");
    assert_eq!(output.status.code(), Some(code), "{shown}");
    assert!(found_out.contains(out), "no {out:?} in stdout of {shown}");
    assert!(found_err.contains(err), "no {err:?} in stderr of {shown}");
    assert!(!found_err.contains("panicked"), "{shown}");
}

#[test]
fn a_wrong_command_line_ends_with_2() {
    for (arguments, err) in [
        (&["--bogus"][..], "--bogus"),
        (&["subscribe"], "URI"),
        (&["serve", "--listen", "8765"], "write ADDRESS:PORT"),
        (&["--cores", "3-1"], "runs backwards"),
        (&["--log", "loud"], "no log level"),
        (&["subscribe", "http://127.0.0.1/r"], "begins with ws://"),
        (&["subscribe", "ws://127.0.0.1/r", "--ca", "ca.pem"], "--ca is for addresses"),
        (&["subscribe", "ws://127.0.0.1/r", "--where", "x=1"], "not valid JSON"),
        (&["subscribe", "ws://127.0.0.1/r?where=[1]"], "a filter is a JSON object"),
        (&["subscribe", "ws://127.0.0.1/r", "--offset", "first"], "or `earliest`"),
        (&["publish", "ws://127.0.0.1/r", "--publisher", ""], "1 to 128 bytes"),
        (&["publish", "ws://127.0.0.1/r", "--continue"], "--publisher"),
        (&["demo", "--rate", "0"], "is not between"),
        (&["demo", "--listen", "0.0.0.0:0"], "--insecure"),
    ] {
        check(&[], arguments, 2, "", err);
    }
}

#[test]
fn help_and_version_end_with_0() {
    check(&[], &["--version"], 0, env!("CARGO_PKG_VERSION"), "");
    for command in ["serve", "demo", "create", "streams", "publish", "subscribe", "doctor", "schema"] {
        check(&[], &[command, "--help"], 0, "Usage: streamcast-uring", "");
    }
}

#[test]
fn a_configuration_is_checked() {
    let good = format!("[[stream]]\nname = \"r\"\nschema = '''{SCHEMA}'''\n");
    check(&[("streamcast.toml", &good)], &["--check"], 0, "durable, 2 columns", "");
    check(&[("c.toml", &good)], &["serve", "--config", "c.toml", "--check", "--listen", "[::1]:0"], 0, "[::1]:0", "");
    check(&[], &["--check"], 0, "no file, defaults", "");
    let unknown = good.replace("schema", "shcema");
    let place = "streamcast.toml:3:1: unknown key `shcema` in a [[stream]]; did you mean `schema`?";
    check(&[("streamcast.toml", &unknown)], &["--check"], 2, "", place);
    check(&[("streamcast.toml", &unknown)], &[], 2, "", "3 | shcema");
    check(&[], &["--config", "none.toml"], 2, "", "none.toml: cannot be read: No such file");
    check(&[("streamcast.toml", "listen = \"0.0.0.0:0\"\n")], &[], 2, "", "--insecure");
    check(
        &[("streamcast.toml", "listen = \"0.0.0.0:0\"\n")],
        &["--check", "--insecure"],
        0,
        "0.0.0.0:0 (insecure)",
        "",
    );
    check(&[("streamcast.toml", "[[stream]]\nname = \"_console\"\n")], &["--check"], 2, "", "the broker's own");
    check(&[("data", "")], &["--check"], 2, "", "data: the data root is no directory");
    check(&[], &["--check", "--cores", "8000"], 2, "", "8000");
}

#[test]
fn the_printed_configuration_passes_the_check() {
    let directory = tempfile::tempdir().expect("a directory");
    let printed = run(directory.path(), &["--print-config"]);
    let printed = text(&printed.stdout);
    check(&[("streamcast.toml", &printed)], &["--check"], 0, "trades", "");
}

#[test]
fn streams_are_created_and_listed() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("s.json"), SCHEMA).expect("a file");
    let run = |line: &str| {
        let output = run(directory.path(), &line.split(' ').collect::<Vec<_>>());
        (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
    };
    assert_eq!(run("streams").0, 4, "nothing is there and nothing is made");
    assert!(!directory.path().join("data").exists());
    let (code, out, err) = run("create a --schema s.json --exactly-once --sort-by note,id");
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.starts_with("a created: stream id "), "{out}");
    let (code, again, _) = run("create a --schema s.json --exactly-once --sort-by note,id");
    assert_eq!(code, 0);
    assert!(again.contains("is there already") && again.contains(out.split(' ').nth(4).unwrap_or("?")), "{again}");
    assert_eq!(run("create b --schema s.json").0, 0);
    for (line, code, err) in [
        ("create a --schema s.json", 2, "sort_by"),
        ("create c --schema s.json --sort-by nope", 2, "no column"),
        ("create c --schema s.json --sort-by id,id", 2, "there twice"),
        ("create a/b --schema s.json", 2, "must not"),
        ("create c --schema none.json", 2, "cannot be read"),
        ("streams nope", 1, "no stream `nope`"),
    ] {
        let (found, _, told) = run(line);
        assert_eq!(found, code, "{line}: {told}");
        assert!(told.contains(err), "{line}: {told}");
    }
    let (code, listed, _) = run("streams --json");
    let listed: Vec<Value> = listed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(code, 0);
    assert_eq!(listed.iter().map(|stream| &stream["name"]).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(listed[0]["sort_by"], serde_json::json!(["note", "id"]));
    assert_eq!((&listed[0]["exactly_once"], &listed[1]["exactly_once"]), (&Value::Bool(true), &Value::Bool(false)));
}

#[test]
fn schemas_are_shown_as_they_are_published() {
    let canonical = r#"{"type":"object","properties":{"id":{"type":"integer","format":"int64"},"note":{"type":["string","null"]}},"required":["id"]}"#;
    check(&[("s.json", SCHEMA)], &["schema", "--source", "s.json"], 0, canonical, "");
    let list = format!("[{SCHEMA}, {{}}, 1]");
    check(&[("s.json", &list)], &["schema", "--source", "s.json"], 0, &format!("[{canonical},null,null]"), "");
    check(&[("s.json", "{}")], &["schema", "--source", "s.json"], 1, "", "s.json: ");
    let twice = r#"{"properties": {"a": {"type": "string"}, "a": {"type": "integer"}}}"#;
    check(&[("s.json", twice)], &["schema", "--source", "s.json"], 2, "", "s.json:1:44: not valid JSON");
}

#[test]
fn the_doctor_reports_in_text_and_json() {
    let directory = tempfile::tempdir().expect("a directory");
    let json = run(directory.path(), &["doctor", "--json", "--root", "new/root"]);
    let report: Value = serde_json::from_slice(&json.stdout).expect("a document");
    let names: Vec<&str> =
        report["checks"].as_array().expect("checks").iter().filter_map(|c| c["name"].as_str()).collect();
    for name in [
        "kernel",
        "io_uring",
        "kernel tls",
        "memlock",
        "nofile",
        "cores",
        "isolation",
        "governor",
        "clock source",
        "fdatasync append",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
    let failed = report["level"] == "fail";
    assert_eq!(json.status.code(), Some(i32::from(failed)));
    let broken = report["checks"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|check| check["level"] != "ok" && check["fix"].is_null());
    assert_eq!(broken, None, "a finding without a fix");
    assert!(!directory.path().join("new").exists(), "nothing is left behind");
    check(&[("file", "")], &["doctor", "--root", "file"], 1, "fail", "");
    check(&[], &["doctor", "--cores", "8000"], 1, "fail", "");
}

#[test]
fn nobody_there_ends_with_3() {
    // A port that was free a moment ago.
    let port =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
    let uri = format!("ws://127.0.0.1:{port}/r");
    check(&[], &["subscribe", &uri], 3, "", "is a broker running there?");
    check(&[("rows", "{}\n")], &["publish", &uri, "rows"], 3, "", "is a broker running there?");
    check(&[], &["subscribe", &uri, "--wait", "0.3"], 3, "", "trying again");
}

#[test]
fn files_that_fail_end_with_4() {
    let uri = "ws://127.0.0.1:9/r";
    check(&[], &["publish", uri, "none"], 4, "", "none: No such file");
    check(&[("c", "no cursor")], &["subscribe", uri, "--cursor", "c"], 4, "", "c is no cursor file");
    check(
        &[("f", "?\n"), ("rows", "{}\n")],
        &["publish", uri, "rows", "--publisher", "p", "--refused", "f"],
        4,
        "",
        "f:1:",
    );
    check(&[("data", "")], &["create", "a", "--schema", "none", "--root", "data"], 2, "", "none");
    check(&[("data", ""), ("s.json", SCHEMA)], &["create", "a", "--schema", "s.json", "--root", "data"], 4, "", "data");
}

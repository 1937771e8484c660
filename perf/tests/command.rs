//! The program itself: a run from scenario to report, and peers that are not there.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use streamcast_perf::results::Run;

const SCENARIO: &str = r#"
name = "small"
title = "Small"
peers = ["absent"]

[[case]]
kind = "floor"
name = "floor"
subscribers = 5
frames_per_send = 3
rate = 200.0
warm_s = 0.1
measure_s = 0.5

[[case]]
kind = "fsync"
name = "disk"
bytes = 512
overwrite = true
measure_s = 0.1

[[case]]
kind = "publish"
name = "publish"
window = 1

[[target]]
case = "floor"
figure = "deliveries_per_s"
peer = "floor"
at_least = 0.5
relative_to = { peer = "floor" }

[[target]]
case = "publish"
figure = "rows_per_s"
at_least = 1.0
"#;

fn perf(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_streamcast-perf")).current_dir(folder).args(arguments).output().unwrap()
}

fn script(folder: &Path, name: &str, text: &str) {
    let path = folder.join("peers").join(name);
    std::fs::create_dir_all(folder.join("peers")).unwrap();
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_run_becomes_a_result_file_and_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    std::fs::write(here.join("small.toml"), SCENARIO).unwrap();
    script(here, "absent", "#!/bin/sh\necho 'absent is not installed' >&2\nexit 69\n");
    let run = [
        "run",
        "small.toml",
        "--peers",
        "peers",
        "--out",
        "out",
        "--data",
        "data",
        "--sleep",
        "--repeats",
        "2",
        "--server-cores",
        "0",
        "--generator-cores",
        "0",
    ];
    let output = perf(here, &run);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}");
    assert!(told.contains("publish on absent: absent is not installed"), "{told}");

    let result = Run::load(&here.join("out/small.json")).unwrap();
    assert_eq!(result.outcomes.len(), 4);
    assert_eq!(result.skipped.len(), 2);
    let rate = result.figure("floor", "floor", "deliveries_per_s").unwrap();
    assert!((1_000.0..=4_000.0).contains(&rate), "5 subscribers, 3 frames, 200 rounds: {rate}");
    assert!(result.figure("disk", "disk", "p50_ms").unwrap() > 0.0);
    assert!(result.outcomes.iter().all(|outcome| outcome.problems.is_empty()), "{:?}", result.outcomes);

    std::fs::write(here.join("doc.md"), "# Doc\n<!-- measured: begin -->\n<!-- measured: end -->\n").unwrap();
    let report = ["report", "out", "--html", "page.html", "--into", "doc.md", "--markdown", "tables.md"];
    assert!(perf(here, &report).status.success());
    let tables = std::fs::read_to_string(here.join("tables.md")).unwrap();
    for expected in ["### small: Small", "| met |", "not measured", "absent is not installed", "| processor |"] {
        assert!(tables.contains(expected), "{expected} is not in {tables}");
    }
    assert!(std::fs::read_to_string(here.join("doc.md")).unwrap().contains("### small: Small"));
    assert!(std::fs::read_to_string(here.join("page.html")).unwrap().contains("<h2 id=\"small\">"));
}

#[test]
fn mistakes_end_with_a_clear_error() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    std::fs::write(here.join("small.toml"), SCENARIO).unwrap();
    let fails = |arguments: &[&str], told: &str| {
        let output = perf(here, arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(told), "{error} does not tell {told}");
    };
    fails(&["run", "nothing.toml"], "cannot read scenario nothing.toml");
    fails(&["run", "small.toml", "--case", "bogus"], "no case of scenario small is named `bogus`");
    fails(&["report", "nowhere"], "cannot read nowhere");
    let case = ["run", "small.toml", "--case", "publish", "--generator-cores", "0"];
    let only = |peer: &'static str| [&case[..], &["--peers", "peers", "--peer", peer]].concat();
    fails(&only("missing"), "there is no peer script peers/missing");
    script(here, "broken", "#!/bin/sh\necho oops >&2\nexit 1\n");
    fails(&only("broken"), "peers/broken failed: oops");
    script(here, "silent", "#!/bin/sh\necho hello\n");
    fails(&only("silent"), "printed no peer description");
    let short = "#!/bin/sh\necho '{\"wire\":\"streamcast\",\"version\":\"1\",\"argv\":[\"/bin/sh\",\"-c\",\"echo gone; exit 3\"]}'\n";
    script(here, "short", short);
    fails(&only("short"), "ended at once (exit status: 3); its log ends with: gone");
}

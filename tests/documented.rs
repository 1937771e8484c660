//! docs/operations.md has every command, option, configuration key and metric there is, and no other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

type Words = BTreeSet<String>;

fn documentation() -> String {
    read("docs/operations.md")
}

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A section of the documentation: from a line up to the next one that begins with as many number signs or fewer.
fn section(heading: &str) -> String {
    let text = documentation();
    let level = heading.chars().take_while(|char| *char == '#').count();
    let mut lines = text.lines().skip_while(|line| *line != heading).skip(1).peekable();
    assert!(lines.peek().is_some(), "there is no section {heading:?}");
    let ends = |line: &&str| {
        let signs = line.chars().take_while(|char| *char == '#').count();
        signs > 0 && signs <= level && line.chars().nth(signs) == Some(' ')
    };
    lines.take_while(|line| !ends(line)).map(|line| format!("{line}\n")).collect()
}

/// The words in backticks of the first cell of every row of the tables in a text.
fn first_cells(text: &str) -> Vec<(Vec<String>, String)> {
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    rows.map(|line| {
        let mut cells = line.trim_matches('|').splitn(2, " | ");
        let first = cells.next().unwrap_or_default();
        let words = first.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        (words, cells.next().unwrap_or_default().to_owned())
    })
    .collect()
}

fn run(arguments: &[&str]) -> (String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_streamcast-uring")).args(arguments).output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (text(output.stdout), text(output.stderr))
}

/// Every command that does something, with its long options.
fn commands() -> BTreeMap<String, Words> {
    let mut found = BTreeMap::new();
    let mut left = vec![Vec::new()];
    while let Some(command) = left.pop() {
        let mut arguments: Vec<&str> = command.iter().map(String::as_str).collect();
        arguments.push("--help");
        let (help, _) = run(&arguments);
        let listed = help.split("\nCommands:\n").nth(1).and_then(|rest| rest.split("\n\n").next()).unwrap_or_default();
        let names = listed.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        let names: Vec<&str> =
            names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").collect();
        for name in &names {
            left.push(command.iter().cloned().chain([(*name).to_owned()]).collect::<Vec<String>>());
        }
        if names.is_empty() {
            let options = help.lines().filter_map(|line| {
                let short = || line.strip_prefix("  -").and_then(|rest| rest.get(3..));
                let option = line.strip_prefix("      ").or_else(short).filter(|option| option.starts_with("--"))?;
                option.split([' ', '=']).next().map(str::to_owned)
            });
            let options = options.filter(|option| option != "--help");
            found.insert(command.join(" "), options.collect());
        }
    }
    found
}

#[test]
fn every_command_has_its_options_documented() {
    let commands = commands();
    assert!(commands.len() > 20 && commands["serve"].contains("--listen"), "{commands:?}");
    let mut documented: BTreeMap<String, Words> = BTreeMap::new();
    for (names, options) in first_cells(&section("### Options")) {
        let options: Words = options
            .split('`')
            .skip(1)
            .step_by(2)
            .filter_map(|word| word.split(' ').next())
            .map(str::to_owned)
            .collect();
        for name in names {
            documented.entry(name).or_default().extend(options.iter().cloned());
        }
    }
    assert_eq!(documented, commands, "left: docs/operations.md, \"Options\"; right: --help");
}

#[test]
fn every_command_is_told() {
    let first = |command: &String| command.split(' ').next().unwrap_or_default().to_owned();
    let there: Words = commands().keys().map(first).collect();
    let table = section("## Commands");
    let table = table.split("\n### ").next().unwrap_or_default();
    let told: Words = first_cells(table).into_iter().flat_map(|(words, _)| words).map(|word| first(&word)).collect();
    // Continued forms of one command, such as `list` behind `keys add NAME`.
    let told: Words =
        told.into_iter().filter(|word| !["list", "revoke", "password"].contains(&word.as_str())).collect();
    assert_eq!(told, there, "left: docs/operations.md, \"Commands\"; right: --help");
}

/// The keys of a table of the file, as the error for one that is unknown lists them.
fn keys_of(table: &str) -> Words {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("streamcast.toml");
    std::fs::write(&path, table).expect("written");
    let (_, error) = run(&["--config", path.to_str().expect("text"), "--check"]);
    let keys = error.split("known keys are ").nth(1).and_then(|rest| rest.lines().next());
    keys.unwrap_or_else(|| panic!("{table}: {error}")).split(", ").map(str::to_owned).collect()
}

#[test]
fn every_key_of_the_configuration_is_documented_and_there_is_no_other() {
    let text = section("## streamcast.toml");
    let all: Words = first_cells(&text).into_iter().flat_map(|(words, _)| words).collect();
    let mut known = Words::new();
    // Where it is, what stands before its keys in the documentation, and keys that are tables or that are only refused.
    for (table, prefix, beside) in [
        ("unknown_key = 1", "", &["auth", "tls", "registry", "s3", "lake", "stream"][..]),
        ("[auth]\nunknown_key = 1", "auth.", &[]),
        ("[tls]\nunknown_key = 1", "tls.", &[]),
        ("[lake]\nunknown_key = 1", "", &[]),
        ("[s3]\nunknown_key = 1", "", &["access_key_id", "secret_access_key", "session_token"]),
        ("[registry]\nunknown_key = 1", "", &["profiles", "history_guards"]),
        ("[[stream]]\nname = \"r\"\nunknown_key = 1", "", &["limits", "lake"]),
        ("[[stream]]\nname = \"r\"\nlimits = { unknown_key = 1 }", "limits.", &[]),
    ] {
        let keys = keys_of(table).into_iter().filter(|key| !beside.contains(&key.as_str()));
        known.extend(keys.map(|key| format!("{prefix}{key}")));
    }
    for table in ["[registry.profiles.NAME]", "[registry.history_guards.NAME]"] {
        for key in keys_of(&format!("{table}\nunknown_key = 1")) {
            assert!(text.contains(&format!("`{key}`")), "{key} of {table} is not documented");
        }
        known.insert(table.to_owned());
    }
    assert_eq!(all, known, "left: docs/operations.md, \"streamcast.toml\"; right: what the file may have");
}

#[test]
fn every_metric_is_documented_and_there_is_no_other() {
    let mut named = Words::new();
    for file in ["src/http/metrics.rs", "src/http/routes.rs"] {
        let source = read(file);
        let product = source.split("#[cfg(test)]").next().unwrap_or_default();
        for kind in ["\"streamcast_", "\"process_"] {
            let found = product.match_indices(kind).filter_map(|(at, _)| product[at + 1..].split('"').next());
            named.extend(found.filter(|text| is_metric(text)).map(str::to_owned));
        }
    }
    assert!(named.len() > 40, "{named:?}");
    let told = first_cells(&section("### Every metric")).into_iter().flat_map(|(words, _)| words);
    let told: Words = told.map(|word| word.split('{').next().unwrap_or_default().to_owned()).collect();
    assert_eq!(told, named, "left: docs/operations.md, \"Every metric\"; right: the code");
}

fn is_metric(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

//! `keys`: the keys that clients show, and the hashes of passwords.

use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::exit::Exit;
use crate::auth::{AuthError, GrantsText, Key, KeyFile, OneOrMore, hash_password, unix_s};

/// Make, list and revoke the keys that clients show. A running broker reads the file again on SIGHUP
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Add(Add),
    List(List),
    Revoke(Revoke),
    Password(Password),
}

/// Make a key and print it, once: only its hash is kept
#[derive(Debug, clap::Args)]
struct Add {
    /// Name of whoever shows the key. Without --grant the key may do what the policy's principal of that name may
    name: String,
    /// What the key may do: ACTION=STREAM, where ACTION is data.read, data.publish, stats.read, control.read,
    /// control.mutate, control.migrate or such as data.*, and STREAM a name, a prefix such as trades.*, or * for all;
    /// several times for more [default: what the policy says]
    #[arg(long = "grant", value_name = "ACTION=STREAM", value_parser = grant)]
    grants: Vec<(String, String)>,
    /// How long the key is good: a number with s, m, h or d, such as 90d [default: until it is revoked]
    #[arg(long, value_name = "TIME", value_parser = lifetime)]
    expires: Option<Duration>,
    #[command(flatten)]
    file: File,
}

/// List keys; the keys themselves are not kept and cannot be shown
#[derive(Debug, clap::Args)]
struct List {
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    file: File,
}

/// Revoke a key
#[derive(Debug, clap::Args)]
struct Revoke {
    /// Id of the key, the part between its underscores
    id: String,
    #[command(flatten)]
    file: File,
}

/// Hash a password, read from standard input, for the policy file
#[derive(Debug, clap::Args)]
struct Password {}

/// The file of keys.
#[derive(Debug, clap::Args)]
struct File {
    /// File of the keys, the one that the broker is given as --keys
    #[arg(long, value_name = "FILE", default_value = "keys.json")]
    file: PathBuf,
}

/// Runs the command.
pub fn run(args: Args) -> Exit {
    let done = match args.action {
        Action::Add(args) => add(args),
        Action::List(args) => list(&args.file.file, args.json),
        Action::Revoke(args) => revoke(&args.id, &args.file.file),
        Action::Password(_) => return password(),
    };
    done.unwrap_or_else(|error| Exit::File.because(error))
}

fn add(args: Add) -> Result<Exit, AuthError> {
    let grants = (!args.grants.is_empty()).then(|| {
        let mut table = std::collections::BTreeMap::<String, Vec<String>>::new();
        args.grants.into_iter().for_each(|(action, stream)| table.entry(action).or_default().push(stream));
        GrantsText::Some(table.into_iter().map(|(action, streams)| (action, OneOrMore::More(streams))).collect())
    });
    if args.name.is_empty() || args.name.contains(':') || args.name.chars().any(char::is_control) {
        return Ok(Exit::Usage.because("a name has at least one character, no colon and no control characters"));
    }
    let mut file = KeyFile::load_or_new(&args.file.file)?;
    let (kept, key) = Key::generate(&args.name, args.expires, grants);
    let id = kept.id.clone();
    file.keys.push(kept);
    file.save(&args.file.file)?;
    println!("{key}");
    eprintln!("key {id} for {}; it is not shown again. Send SIGHUP to a running broker.", args.name);
    Ok(Exit::Done)
}

fn list(path: &Path, json: bool) -> Result<Exit, AuthError> {
    let file = KeyFile::load(path)?;
    let now = unix_s(SystemTime::now());
    let mut out = std::io::stdout().lock();
    for key in &file.keys {
        let written = if json {
            let shown = serde_json::json!({
                "id": key.id, "name": key.name, "created": key.created, "expires": key.expires, "grants": key.grants,
            });
            writeln!(out, "{shown}")
        } else {
            let expires = match key.expires {
                None => "no end".to_owned(),
                Some(at) if at <= now => "expired".to_owned(),
                Some(at) => format!("{} d left", (at - now).div_ceil(86_400)),
            };
            writeln!(out, "{}  {:<24} {:<12} {}", key.id, key.name, expires, grants_in_words(key.grants.as_ref()))
        };
        if written.is_err() {
            break;
        }
    }
    Ok(Exit::Done)
}

fn grants_in_words(grants: Option<&GrantsText>) -> String {
    match grants {
        None => "as the policy says".to_owned(),
        Some(GrantsText::All(all)) => all.clone(),
        Some(GrantsText::Some(table)) => {
            let each = table.iter().map(|(action, streams)| format!("{action}={}", streams.texts().join(",")));
            each.collect::<Vec<_>>().join(" ")
        }
    }
}

fn revoke(id: &str, path: &Path) -> Result<Exit, AuthError> {
    let mut file = KeyFile::load(path)?;
    let before = file.keys.len();
    file.keys.retain(|key| key.id != id);
    if file.keys.len() == before {
        return Ok(Exit::Failed.because(format_args!("there is no key {id:?}; `keys list` shows them")));
    }
    file.save(path)?;
    println!("revoked {id}");
    eprintln!("Send SIGHUP to a running broker.");
    Ok(Exit::Done)
}

fn password() -> Exit {
    if std::io::stdin().is_terminal() {
        eprint!("Password (it is shown while you type): ");
    }
    let mut line = String::new();
    if let Err(error) = std::io::stdin().lock().read_line(&mut line) {
        return Exit::File.because(format_args!("standard input: {error}"));
    }
    let password = line.trim_end_matches(['\n', '\r']);
    if password.is_empty() {
        return Exit::Usage.because("no password on standard input");
    }
    match hash_password(password) {
        Ok(hash) => {
            println!("{hash}");
            Exit::Done
        }
        Err(error) => Exit::Failed.because(error),
    }
}

fn grant(text: &str) -> Result<(String, String), String> {
    let (action, stream) = text.split_once('=').ok_or("write ACTION=STREAM, such as data.read=trades.*")?;
    let table = [(action.to_owned(), OneOrMore::One(stream.to_owned()))];
    GrantsText::Some(table.into_iter().collect()).grants()?;
    Ok((action.to_owned(), stream.to_owned()))
}

fn lifetime(text: &str) -> Result<Duration, String> {
    let unit_s = match text.chars().last() {
        Some('s') => 1,
        Some('m') => 60,
        Some('h') => 3_600,
        Some('d') => 86_400,
        _ => 0,
    };
    let number = text.get(..text.len().saturating_sub(1)).and_then(|digits| digits.parse::<u64>().ok());
    match number.and_then(|number| number.checked_mul(unit_s)) {
        Some(seconds) if seconds > 0 && seconds < 1 << 40 => Ok(Duration::from_secs(seconds)),
        _ => Err("write a number with s, m, h or d, such as 90d".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_grants_are_read() {
        assert_eq!(lifetime("90d"), Ok(Duration::from_secs(90 * 86_400)));
        assert_eq!(lifetime("2h"), Ok(Duration::from_secs(7_200)));
        for wrong in ["", "d", "1", "0d", "-1d", "1w", "99999999999999999d", "é"] {
            assert!(lifetime(wrong).is_err(), "{wrong}");
        }
        assert_eq!(grant("data.*=trades.*"), Ok(("data.*".to_owned(), "trades.*".to_owned())));
        for wrong in ["data.read", "data.reed=x", "=x"] {
            assert!(grant(wrong).is_err(), "{wrong}");
        }
    }
}

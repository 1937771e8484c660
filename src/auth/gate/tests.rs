//! The gate with a policy: everything a caller can show.

use std::path::PathBuf;
use std::time::Duration;

use argon2::password_hash::SaltString;
use argon2::{Algorithm, Argon2, Params, PasswordHasher, Version};
use data_encoding::BASE64;

use super::super::keys::{Key, KeyFile};
use super::super::principal::ANONYMOUS;
use super::*;

struct Rig {
    directory: tempfile::TempDir,
    gate: Gate,
    runtime: tokio::runtime::Runtime,
}

fn hash(password: &str) -> String {
    let cheap = Argon2::new(Algorithm::Argon2id, Version::V0x13, Params::new(8, 1, 1, None).unwrap());
    cheap.hash_password(password.as_bytes(), &SaltString::encode_b64(b"some salt").unwrap()).unwrap().to_string()
}

fn policy(more: &str) -> String {
    format!(
        "origins = [\"https://app.example\"]\n{more}\n[limits]\nfailures = 3\nfailure_s = 60\n\
         [[principal]]\nname = \"ann\"\npassword = {:?}\n[principal.grants]\n\"data.read\" = \"r\"\n\
         [[principal]]\nname = \"etl\"\n[principal.grants]\n\"data.publish\" = \"*\"\n",
        hash("pw")
    )
}

fn rig(more: &str) -> Rig {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("policy.toml"), policy(more)).unwrap();
    KeyFile::default().save(&directory.path().join("keys.json")).unwrap();
    let gate = Gate::open(&sources(&directory)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    Rig { directory, gate, runtime }
}

fn sources(directory: &tempfile::TempDir) -> PolicySources {
    let path = |name: &str| -> Option<PathBuf> { Some(directory.path().join(name)) };
    PolicySources { policy: path("policy.toml"), keys: path("keys.json") }
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", BASE64.encode(format!("{user}:{password}").as_bytes()))
}

impl Rig {
    fn ask(&self, fields: &[(&str, &str)], target: &str, peer: &str) -> Outcome {
        let fields = fields.iter().map(|(name, value)| (*name, value.as_bytes()));
        let head = RequestHead::new("GET", target.as_bytes(), fields, peer.parse().ok());
        self.runtime.block_on(self.gate.authenticate(&head))
    }

    fn show(&self, authorization: &str, peer: &str) -> Outcome {
        self.ask(&[("authorization", authorization)], "/r", peer)
    }

    fn name(&self, outcome: Outcome) -> String {
        match outcome {
            Outcome::Principal(principal) => principal.name().to_owned(),
            other => format!("{other:?}"),
        }
    }
}

const WRONG: Outcome = Outcome::Refused(Refusal::Credentials);
const TOO_MANY: Outcome = Outcome::Refused(Refusal::TooManyFailures);

#[test]
fn passwords_are_checked_once_and_remembered() {
    let rig = rig("");
    let head_fields = [("authorization", basic("ann", "pw"))];
    let head = || RequestHead::new("GET", b"/r", head_fields.iter().map(|(n, v)| (*n, v.as_bytes())), None);
    let Glance::Check(check) = rig.gate.glance(&head()) else { panic!("known already") };
    let (tell, told) = std::sync::mpsc::channel();
    assert!(rig.gate.check(check, move || tell.send(()).unwrap()));
    told.recv_timeout(Duration::from_secs(60)).unwrap();
    let Glance::Known(ann) = rig.gate.glance(&head()) else { panic!("not remembered") };
    assert_eq!(ann.name(), "ann");
    assert!(ann.allows(Action::DataRead, Resource::Stream("r")) && !ann.allows(Action::DataRead, Resource::Collection));
    assert_eq!(rig.show(&basic("ann", "pw"), "10.0.0.1"), Outcome::Principal(ann));
    assert_eq!(rig.ask(&[], "/r", "10.0.0.1"), Outcome::Anonymous);
    for (user, password) in [("ann", "pw "), ("ann", ""), ("Ann", "pw"), ("etl", ""), ("etl", "pw"), ("", "")] {
        assert_eq!(rig.show(&basic(user, password), "unknown"), WRONG, "{user}");
        assert_eq!(rig.show(&basic(user, password), "unknown"), WRONG, "{user}, remembered");
    }
    assert_eq!(rig.ask(&[("authorization", &basic("ann", "pw")), ("authorization", "Basic x")], "/r", ""), WRONG);
}

#[test]
fn who_waits_too_long_for_a_check_is_told_and_may_come_back() {
    let rig = rig("");
    let (begun, begins) = std::sync::mpsc::channel();
    let threads = rig.gate.0.policy().unwrap().limits.threads;
    let released: Vec<_> = (0..threads)
        .map(|number| {
            let other = [("authorization", basic("ann", &format!("guess {number}")))];
            let head = RequestHead::new("GET", b"/r", other.iter().map(|(n, v)| (*n, v.as_bytes())), None);
            let Glance::Check(check) = rig.gate.glance(&head) else { panic!("known already") };
            let (release, held) = std::sync::mpsc::channel::<()>();
            let begun = begun.clone();
            // Whoever is told keeps the thread.
            let keep = move || {
                begun.send(()).unwrap();
                let _ = held.recv();
            };
            assert!(rig.gate.check(check, keep));
            release
        })
        .collect();
    released.iter().for_each(|_| begins.recv_timeout(Duration::from_secs(60)).unwrap());
    let fields = [("authorization", basic("ann", "pw"))];
    let head = RequestHead::new("GET", b"/r", fields.iter().map(|(n, v)| (*n, v.as_bytes())), None);
    let short = rig.gate.authenticate_within(&head, Duration::from_millis(20));
    assert_eq!(rig.runtime.block_on(short), Outcome::Refused(Refusal::Busy));
    drop(released);
    assert_eq!(rig.name(rig.show(&basic("ann", "pw"), "10.0.0.1")), "ann");
}

#[test]
fn who_fails_too_often_has_to_wait_even_with_the_right_password() {
    let rig = rig("");
    assert_eq!(rig.name(rig.show(&basic("ann", "pw"), "10.0.0.1")), "ann");
    for _ in 0..3 {
        assert_eq!(rig.show(&basic("ann", "no"), "10.0.0.1"), WRONG);
    }
    assert_eq!(rig.show(&basic("ann", "no"), "10.0.0.1"), TOO_MANY);
    assert_eq!(rig.show(&basic("ann", "pw"), "10.0.0.1"), TOO_MANY);
    assert_eq!(rig.show("Bearer a.b.c", "10.0.0.1"), TOO_MANY);
    assert_eq!(rig.name(rig.show(&basic("ann", "pw"), "10.0.0.2")), "ann");
    assert_eq!(rig.ask(&[], "/r", "10.0.0.1"), Outcome::Anonymous);
}

#[test]
fn a_proxy_is_believed_only_where_the_policy_says_so() {
    let rig = rig("trusted_proxies = [\"127.0.0.1\"]");
    let wrong = basic("ann", "no");
    let through =
        |forwarded: &str, peer: &str| rig.ask(&[("authorization", &wrong), ("x-forwarded-for", forwarded)], "/r", peer);
    for _ in 0..3 {
        assert_eq!(through("1.1.1.1, 10.0.0.9", "127.0.0.1"), WRONG);
    }
    assert_eq!(through("2.2.2.2, 10.0.0.9", "::ffff:127.0.0.1"), TOO_MANY);
    assert_eq!(through("10.0.0.9, 10.0.0.8", "127.0.0.1"), WRONG);
    assert_eq!(through("rubbish", "127.0.0.1"), WRONG);
    for number in 0..3 {
        assert_eq!(through(&format!("9.9.9.{number}"), "10.0.0.7"), WRONG);
    }
    assert_eq!(through("9.9.9.9", "10.0.0.7"), TOO_MANY);
}

#[test]
fn keys_are_good_in_both_schemes_until_they_are_revoked() {
    let rig = rig("");
    let path = rig.directory.path().join("keys.json");
    let (kept, key) = Key::generate("etl", None, None);
    let (expired, old) = Key::generate("etl", Some(Duration::ZERO), None);
    let own = super::super::file::GrantsText::All("*".to_owned());
    let (rich, rich_key) = Key::generate("ops", None, Some(own));
    assert_eq!(rig.show(&format!("Bearer {key}"), ""), WRONG);
    KeyFile { keys: vec![kept, expired, rich] }.save(&path).unwrap();
    rig.gate.reload().unwrap();
    for shown in [format!("Bearer {key}"), basic("etl", &key)] {
        let Outcome::Principal(etl) = rig.show(&shown, "") else { panic!("refused") };
        assert_eq!(etl.name(), "etl");
        assert!(etl.allows(Action::DataPublish, Resource::Stream("r")));
    }
    assert_eq!(rig.show(&format!("Bearer {old}"), ""), WRONG);
    let Outcome::Principal(ops) = rig.show(&format!("Bearer {rich_key}"), "") else { panic!("refused") };
    assert_eq!(ops.grants(), &Grants::all());
    let pass = Pass { principal: ops, action: Action::DataRead, stream: "r".to_owned() };
    assert!(rig.gate.still_holds(&pass));
    KeyFile::default().save(&path).unwrap();
    rig.gate.reload().unwrap();
    assert_eq!(rig.show(&format!("Bearer {key}"), ""), WRONG);
    assert!(!rig.gate.still_holds(&pass));
}

#[test]
fn a_policy_that_cannot_be_read_leaves_the_old_one() {
    let rig = rig("");
    let generation = rig.gate.generation();
    let Outcome::Principal(ann) = rig.show(&basic("ann", "pw"), "") else { panic!("refused") };
    let pass = Pass { principal: ann, action: Action::DataRead, stream: "r".to_owned() };
    let path = rig.directory.path().join("policy.toml");
    std::fs::write(&path, "[[principal]]\nname = 7").unwrap();
    assert!(rig.gate.reload().unwrap_err().to_string().contains("policy.toml: line 2"));
    assert_eq!((rig.gate.generation(), rig.name(rig.show(&basic("ann", "pw"), ""))), (generation, "ann".to_owned()));
    std::fs::write(&path, policy("").replace("\"data.read\" = \"r\"", "\"data.read\" = \"q\"")).unwrap();
    rig.gate.reload().unwrap();
    assert!(rig.gate.generation() != generation && !rig.gate.still_holds(&pass));
    std::fs::write(&path, policy("").replace(&hash("pw"), &hash("new"))).unwrap();
    rig.gate.reload().unwrap();
    assert!(!rig.gate.still_holds(&pass), "its password has changed");
    assert_eq!(rig.show(&basic("ann", "pw"), ""), WRONG);
    assert_eq!(rig.name(rig.show(&basic("ann", "new"), "")), "ann");
}

#[test]
fn tickets_stand_for_whoever_got_them() {
    let rig = rig("");
    let Outcome::Principal(ann) = rig.show(&basic("ann", "pw"), "") else { panic!("refused") };
    let ticket = rig.gate.ticket(&ann).unwrap();
    let target = format!("/r?ticket={ticket}");
    let head = RequestHead::new("GET", target.as_bytes(), [].into_iter(), None);
    assert!(matches!(rig.gate.glance(&head), Glance::Elsewhere));
    assert_eq!(rig.name(rig.ask(&[], &target, "")), "ann");
    assert_eq!(rig.ask(&[], &target, ""), WRONG);
    let late = rig.gate.ticket(&ann).unwrap();
    let path = rig.directory.path().join("policy.toml");
    std::fs::write(&path, policy("").replace("\"ann\"", "\"bob\"")).unwrap();
    rig.gate.reload().unwrap();
    assert_eq!(rig.ask(&[], &format!("/r?ticket={late}"), ""), WRONG);
}

#[test]
fn pages_of_other_sites_are_turned_away_whatever_they_show() {
    let rig = rig("");
    let shown = basic("ann", "pw");
    let from = |origin: &str| {
        rig.ask(&[("authorization", &shown), ("origin", origin), ("host", "broker:8765")], "/r", "10.0.0.1")
    };
    assert_eq!(from("https://evil.example"), Outcome::Refused(Refusal::Origin));
    assert_eq!(rig.name(from("https://app.example")), "ann");
    assert_eq!(rig.name(from("http://broker:8765")), "ann");
}

#[test]
fn a_policy_can_let_everybody_do_something() {
    let rig = rig("[anonymous.grants]\n\"data.read\" = \"public.*\"\n");
    let Outcome::Principal(everybody) = rig.ask(&[], "/r", "") else { panic!("refused") };
    assert_eq!((everybody.name(), everybody.is_anonymous()), (ANONYMOUS, true));
    assert!(everybody.allows(Action::DataRead, Resource::Stream("public.x")));
    assert!(!everybody.allows(Action::DataRead, Resource::Stream("r")));
    assert_eq!(rig.show("Bearer x", ""), WRONG, "wrong credentials are not taken for none");
}

#[test]
fn without_a_policy_control_is_for_this_host_alone_and_only_if_asked_for() {
    let host = [("host", &b"localhost:8765"[..])];
    let head = |peer: &str| RequestHead::new("PUT", b"/control/v1", host.into_iter(), peer.parse().ok());
    let allowed = |gate: &Gate, peer: &str| match gate.glance(&head(peer)) {
        Glance::Known(principal) => principal.allows(Action::ControlMutate, Resource::Collection),
        _ => panic!("somebody is asked for a password"),
    };
    assert!(!allowed(&Gate::public(), "127.0.0.1"));
    let local = Gate::public_with_local_control();
    assert!(allowed(&local, "127.0.0.1") && !allowed(&local, "10.0.0.1"));
    assert!(!local.has_policy() && local.reload().is_ok());
}

//! Tokens that are right, and every way in which they can be wrong. The private keys in `testdata` are for this alone.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use data_encoding::BASE64URL_NOPAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

use super::super::action::{Action, Resource};
use super::super::file::PolicyFile;
use super::*;

const RSA: &[u8] = include_bytes!("../testdata/rsa.pem");
const EC: &[u8] = include_bytes!("../testdata/ec.pem");
const ED: &[u8] = include_bytes!("../testdata/ed.pem");
const KEYS: &str = include_str!("../testdata/jwks.json");

fn issuers(keys: &str) -> (tempfile::TempDir, Vec<Issuer>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("jwks.json");
    std::fs::write(&path, keys).unwrap();
    let text = format!(
        r#"
        [[issuer]]
        issuer = "https://id.example"
        audience = ["streamcast", "other"]
        jwks_file = {path:?}
        [issuer.grants]
        "data.read" = "public.*"
        [[issuer.role]]
        claim = "groups"
        value = "desk"
        grants = {{ "data.publish" = "orders" }}
        [[issuer.role]]
        claim = "scope"
        value = "ops"
        grants = "*"
        "#
    );
    let file = PolicyFile::parse(&text).unwrap();
    let issuers: Vec<_> = file.issuers.iter().map(|text| Issuer::new(text).unwrap()).collect();
    issuers[0].keyring.look(Instant::now());
    (directory, issuers)
}

fn in_seconds(seconds: i64) -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64 + seconds
}

fn claims() -> Value {
    json!({"iss": "https://id.example", "aud": "streamcast", "sub": "ann", "exp": in_seconds(600)})
}

fn signed(algorithm: Algorithm, kid: Option<&str>, claims: &Value) -> String {
    let key = match algorithm {
        Algorithm::ES256 => EncodingKey::from_ec_pem(EC),
        Algorithm::EdDSA => EncodingKey::from_ed_pem(ED),
        Algorithm::HS256 => Ok(EncodingKey::from_secret(b"symmetric symmetric symmetric!!")),
        _ => EncodingKey::from_rsa_pem(RSA),
    };
    let header = Header { kid: kid.map(str::to_owned), ..Header::new(algorithm) };
    encode(&header, claims, &key.unwrap()).unwrap()
}

#[test]
fn each_algorithm_makes_a_principal_until_its_token_expires() {
    let (_directory, issuers) = issuers(KEYS);
    for (algorithm, kid) in [(Algorithm::RS256, "rsa"), (Algorithm::ES256, "ec"), (Algorithm::EdDSA, "ed")] {
        for kid in [Some(kid), None] {
            let claims = claims();
            let found = verify(&issuers, &signed(algorithm, kid, &claims), Instant::now()).expect("a principal");
            assert_eq!(found.name(), "https://id.example:ann");
            let expires = UNIX_EPOCH + Duration::from_secs(claims["exp"].as_u64().unwrap() + 30);
            assert_eq!(found.expires(), Some(expires));
            assert!(found.allows(Action::DataRead, Resource::Stream("public.x")));
            assert!(!found.allows(Action::DataPublish, Resource::Stream("orders")));
        }
    }
}

#[test]
fn claims_give_roles() {
    let (_directory, issuers) = issuers(KEYS);
    for (claim, value, orders, everything) in [
        ("groups", json!(["a", "desk"]), true, false),
        ("groups", json!("desk"), true, false),
        ("groups", json!("desktop"), false, false),
        ("groups", json!({"desk": true}), false, false),
        ("scope", json!("read ops"), true, true),
    ] {
        let mut claims = claims();
        claims[claim] = value.clone();
        let found = verify(&issuers, &signed(Algorithm::EdDSA, Some("ed"), &claims), Instant::now()).unwrap();
        assert_eq!(found.allows(Action::DataPublish, Resource::Stream("orders")), orders, "{claim} {value}");
        assert_eq!(found.allows(Action::ControlMutate, Resource::Collection), everything, "{claim} {value}");
    }
}

#[test]
fn every_wrong_token_is_refused() {
    let (_directory, issuers) = issuers(KEYS);
    let with = |change: &dyn Fn(&mut Value)| {
        let mut claims = claims();
        change(&mut claims);
        signed(Algorithm::RS256, Some("rsa"), &claims)
    };
    let good = signed(Algorithm::RS256, Some("rsa"), &claims());
    let part = |text: &str| BASE64URL_NOPAD.encode(text.as_bytes());
    let (head, rest) = good.split_once('.').unwrap();
    let (body, signature) = rest.split_once('.').unwrap();
    let other_body = part(&claims().to_string().replace("ann", "eve"));
    let wrong = [
        ("expired", with(&|claims| claims["exp"] = json!(in_seconds(-31)))),
        ("not valid yet", with(&|claims| claims["nbf"] = json!(in_seconds(60)))),
        ("no expiry", with(&|claims| drop(claims.as_object_mut().unwrap().remove("exp")))),
        ("expiry is text", with(&|claims| claims["exp"] = json!("never"))),
        ("another audience", with(&|claims| claims["aud"] = json!("elsewhere"))),
        ("no audience", with(&|claims| drop(claims.as_object_mut().unwrap().remove("aud")))),
        ("another issuer", with(&|claims| claims["iss"] = json!("https://id.example/"))),
        ("no subject", with(&|claims| drop(claims.as_object_mut().unwrap().remove("sub")))),
        ("a subject with a line feed", with(&|claims| claims["sub"] = json!("a\nb"))),
        ("an unknown key", signed(Algorithm::RS256, Some("new"), &claims())),
        ("another key's name", signed(Algorithm::RS256, Some("ec"), &claims())),
        ("a key for encryption", signed(Algorithm::RS256, Some("enc"), &claims())),
        ("another algorithm of the key", signed(Algorithm::RS512, Some("rsa"), &claims())),
        ("a symmetric key", signed(Algorithm::HS256, Some("oct"), &claims())),
        ("another body", format!("{head}.{other_body}.{signature}")),
        ("no signature", format!("{head}.{body}.")),
        ("algorithm none", format!("{}.{body}.", part(r#"{"alg":"none"}"#))),
        ("critical fields", format!("{}.{body}.{signature}", part(r#"{"alg":"RS256","kid":"rsa","crit":["x"]}"#))),
        ("two parts", format!("{head}.{body}")),
        ("four parts", format!("{good}.x")),
        ("rubbish", "a.b.c".to_owned()),
    ];
    assert!(verify(&issuers, &good, Instant::now()).is_some());
    for (what, token) in wrong {
        assert!(verify(&issuers, &token, Instant::now()).is_none(), "{what}");
    }
    // A public RSA key used as a secret: the confusion that algorithms without a family invite.
    let confused = encode(
        &Header { kid: Some("rsa".to_owned()), ..Header::new(Algorithm::HS256) },
        &claims(),
        &EncodingKey::from_secret(KEYS.as_bytes()),
    );
    assert!(verify(&issuers, &confused.unwrap(), Instant::now()).is_none());
}

#[test]
fn an_unknown_key_makes_it_look_again_but_not_for_ever() {
    let (directory, issuers) = issuers(r#"{"keys":[]}"#);
    let token = signed(Algorithm::EdDSA, Some("ed"), &claims());
    let now = Instant::now();
    std::fs::write(directory.path().join("jwks.json"), KEYS).unwrap();
    assert!(verify(&issuers, &token, now).is_none(), "it has just looked");
    let later = now + Duration::from_secs(16);
    assert!(verify(&issuers, &token, later).is_some());
    // A set that cannot be read leaves what there was.
    std::fs::write(directory.path().join("jwks.json"), "{").unwrap();
    assert!(issuers[0].keyring.look(later) && verify(&issuers, &token, later).is_some());
    assert!(!issuers[0].keyring.is_due(later) && issuers[0].keyring.is_due(later + Duration::from_secs(600)));
}

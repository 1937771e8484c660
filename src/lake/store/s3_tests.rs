//! Where keys and endpoints come from.

use super::*;

fn settled(config: &S3Config, variables: &[(&str, &str)]) -> Result<Settled, StoreError> {
    let files = [(
        "/aws",
        "[default]\naws_access_key_id=FILE\naws_secret_access_key=F\nregion=eu-north-1\n[p]\naws_access_key_id=P\naws_secret_access_key=S\n",
    )];
    let mut all = vec![("AWS_SHARED_CREDENTIALS_FILE", "/aws"), ("HOME", "/nowhere")];
    all.extend_from_slice(variables);
    settle(config, &Ambient::made_up(&all, &files))
}

fn key_id(settled: &Settled) -> Option<&str> {
    settled.keys.as_ref().map(|keys| keys.0.expose())
}

#[test]
fn settings_go_before_environment_before_profile() {
    let environment = [("AWS_ACCESS_KEY_ID", "ENV"), ("AWS_SECRET_ACCESS_KEY", "E"), ("AWS_REGION", "us-west-2")];
    let plain = S3Config::default();
    let given = S3Config {
        access_key_id: Some(Secret::new("OWN")),
        secret_access_key: Some(Secret::new("O")),
        region: Some("ap-east-1".to_owned()),
        ..S3Config::default()
    };
    let chosen = S3Config { profile: Some("p".to_owned()), ..S3Config::default() };
    for (config, variables, id, region) in [
        (&plain, &environment[..], Some("ENV"), "us-west-2"),
        (&plain, &[][..], Some("FILE"), "eu-north-1"),
        (&plain, &[("AWS_PROFILE", "p")][..], Some("P"), "us-east-1"),
        (&plain, &[("AWS_PROFILE", "none")][..], None, "us-east-1"),
        (&given, &environment[..], Some("OWN"), "ap-east-1"),
        (&chosen, &environment[..], Some("P"), "us-west-2"),
    ] {
        let settled = settled(config, variables).expect("settled");
        assert_eq!((key_id(&settled), settled.region.as_str()), (id, region), "{config:?} {variables:?}");
    }
}

#[test]
fn half_a_pair_of_keys_and_an_empty_profile_are_refused() {
    let half = S3Config { access_key_id: Some(Secret::new("OWN")), ..S3Config::default() };
    assert!(matches!(settled(&half, &[]), Err(StoreError::Config { .. })));
    let empty = S3Config { profile: Some("none".to_owned()), ..S3Config::default() };
    let error = settled(&empty, &[]).expect_err("refused").to_string();
    assert!(error.contains("none"), "{error}");
}

#[test]
fn endpoints_are_encrypted_unless_said_otherwise() {
    for (endpoint, allow_http, unencrypted) in [
        ("https://s3.example", false, Some(false)),
        ("http://127.0.0.1:8333", false, Some(true)),
        ("http://localhost:9000/", false, Some(true)),
        ("http://[::1]:9000", false, Some(true)),
        ("http://s3.example", false, None),
        ("http://s3.example", true, Some(true)),
        ("https://key:secret@s3.example", true, None),
        ("s3.example", true, None),
        ("ftp://s3.example", true, None),
    ] {
        let checked = check_endpoint(endpoint, allow_http);
        assert_eq!(checked.as_ref().ok().copied(), unencrypted, "{endpoint}");
        assert!(checked.err().is_none_or(|error| !error.to_string().contains("secret")), "{endpoint}");
    }
}

#[test]
fn a_bucket_is_in_the_path_or_in_the_host() {
    assert_eq!(bucket_endpoint("https://s3.x/", "b", true), "https://s3.x");
    assert_eq!(bucket_endpoint("https://s3.x/", "b", false), "https://b.s3.x");
    assert_eq!(bucket_endpoint("https://b.s3.x", "b", false), "https://b.s3.x");
}

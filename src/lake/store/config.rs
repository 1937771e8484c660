//! How object stores are reached.

use std::fmt;
use std::time::Duration;

/// A text that is never shown: `Debug` prints three asterisks, and there is no `Display`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps `text` to itself.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// How object stores are reached. The default opens local files and takes everything about S3 from the environment.
#[derive(Debug, Clone, Default)]
pub struct StoreConfig {
    /// For URIs that begin with `s3://`.
    pub s3: S3Config,
}

/// How S3, or what speaks like it, is reached. What is `None` comes from the environment: `AWS_ENDPOINT_URL_S3`,
/// `AWS_ENDPOINT_URL`, `AWS_REGION`, `AWS_DEFAULT_REGION`, `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`,
/// `AWS_SESSION_TOKEN`, then the profile's files, then web identity, container and instance metadata.
#[derive(Debug, Clone)]
pub struct S3Config {
    /// Such as `https://s3.eu-central-1.amazonaws.com`; without it AWS, by region.
    pub endpoint: Option<String>,
    /// Without any, `us-east-1`.
    pub region: Option<String>,
    /// Goes with `secret_access_key`.
    pub access_key_id: Option<Secret>,
    /// Goes with `access_key_id`.
    pub secret_access_key: Option<Secret>,
    /// For keys that are lent for a time.
    pub session_token: Option<Secret>,
    /// A section of the AWS credentials file; goes before keys of the environment when it is set here.
    pub profile: Option<String>,
    /// The bucket as the first part of the path instead of the host's name; without it, when an endpoint is given.
    pub path_style: Option<bool>,
    /// Unencrypted connections to other machines. The own machine may always be reached so.
    pub allow_http: bool,
    /// Whether the store knows `If-None-Match: *` on a PUT. Without it two writers of a table are not kept apart.
    pub conditional_put: bool,
    /// For one request with its answer; a part of an upload is one request.
    pub request_timeout: Duration,
    /// For making a connection.
    pub connect_timeout: Duration,
    /// How often one request is sent again.
    pub max_retries: usize,
    /// How long one request is sent again, from its beginning.
    pub retry_timeout: Duration,
    /// The first wait before sending again; later ones are longer and random.
    pub first_backoff: Duration,
    /// The longest wait before sending again.
    pub max_backoff: Duration,
    /// Bytes of one part of an upload; files up to this size go in one request. At least 5 MiB.
    pub part_bytes: usize,
    /// Parts of an upload in memory and under way at a time.
    pub max_parts_in_flight: usize,
}

impl Default for S3Config {
    fn default() -> Self {
        Self {
            endpoint: None,
            region: None,
            access_key_id: None,
            secret_access_key: None,
            session_token: None,
            profile: None,
            path_style: None,
            allow_http: false,
            conditional_put: true,
            request_timeout: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(5),
            max_retries: 5,
            retry_timeout: Duration::from_secs(60),
            first_backoff: Duration::from_millis(200),
            max_backoff: Duration::from_secs(10),
            part_bytes: 8 << 20,
            max_parts_in_flight: 3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_not_shown() {
        let config = StoreConfig {
            s3: S3Config {
                access_key_id: Some(Secret::new("AKIAVISIBLE")),
                secret_access_key: Some(Secret::new("hidden-key")),
                session_token: Some(Secret::new("hidden-token")),
                ..S3Config::default()
            },
        };
        let shown = format!("{config:?} {config:#?}");
        for text in ["AKIAVISIBLE", "hidden-key", "hidden-token"] {
            assert!(!shown.contains(text), "{shown}");
        }
        assert!(shown.contains("***"));
    }
}

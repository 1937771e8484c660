//! Buckets: S3 and what speaks like it.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use object_store::aws::{AmazonS3, AmazonS3Builder, S3ConditionalPut};
use object_store::path::Path as Key;
use object_store::{
    BackoffConfig, ClientOptions, ObjectStore as _, ObjectStoreExt as _, PutMode, RetryConfig, WriteMultipart,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::ambient::{Ambient, Profile};
use super::config::{S3Config, Secret};
use super::error::StoreError;
use super::listing::Listing;
use super::objects::{MAX_WHOLE_BYTES, Object, Placed, blocking};
use super::reason::{Attempt, translate};
use super::{local, uri};

/// S3 takes at most 10,000 parts.
const MAX_PARTS: u64 = 9_000;
/// How often a conditional write is sent again after its answer was lost and nothing was found.
const MAX_RESENDS: usize = 3;
/// The client's own variables for keys that are fetched: web identity, containers, instance metadata.
const FETCHED_KEYS: &[&str] = &[
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_ENDPOINT_URL_STS",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_METADATA_ENDPOINT",
    "AWS_IMDSV1_FALLBACK",
];

/// One bucket. Clones share their connections.
#[derive(Clone)]
pub(super) struct Bucket {
    shared: Arc<Shared>,
}

struct Shared {
    client: AmazonS3,
    name: String,
    /// Cut out of whatever is told.
    secrets: Vec<String>,
    conditional_put: bool,
    part_bytes: usize,
    max_parts_in_flight: usize,
}

/// Keys and where they go, settled from settings and surroundings.
#[derive(Debug, Default, PartialEq, Eq)]
struct Settled {
    endpoint: Option<String>,
    region: String,
    keys: Option<(Secret, Secret, Option<Secret>)>,
}

fn settle(config: &S3Config, ambient: &Ambient) -> Result<Settled, StoreError> {
    let variable = |name: &str| ambient.variable(name).map(str::to_owned);
    let profile_name = config.profile.clone().or_else(|| variable("AWS_PROFILE"));
    let profile = ambient.profile(profile_name.as_deref().unwrap_or("default"));
    let of_profile = |key: &str| profile.get(key).cloned();
    let keys = match (&config.access_key_id, &config.secret_access_key) {
        (Some(id), Some(key)) => Some((id.clone(), key.clone(), config.session_token.clone())),
        (None, None) => {
            let of_environment = || {
                let (id, key) = (variable("AWS_ACCESS_KEY_ID")?, variable("AWS_SECRET_ACCESS_KEY")?);
                Some((Secret::new(id), Secret::new(key), variable("AWS_SESSION_TOKEN").map(Secret::new)))
            };
            match &config.profile {
                Some(name) => Some(keys_of(&profile).ok_or_else(|| StoreError::Config {
                    why: format!("the AWS profile {name:?} has no aws_access_key_id and aws_secret_access_key"),
                })?),
                None => of_environment().or_else(|| keys_of(&profile)),
            }
        }
        _ => {
            return Err(StoreError::Config {
                why: "access_key_id and secret_access_key are given together or not at all".to_owned(),
            });
        }
    };
    Ok(Settled {
        endpoint: config
            .endpoint
            .clone()
            .or_else(|| variable("AWS_ENDPOINT_URL_S3"))
            .or_else(|| variable("AWS_ENDPOINT_URL"))
            .or_else(|| of_profile("endpoint_url")),
        region: config
            .region
            .clone()
            .or_else(|| variable("AWS_REGION"))
            .or_else(|| variable("AWS_DEFAULT_REGION"))
            .or_else(|| of_profile("region"))
            .unwrap_or_else(|| "us-east-1".to_owned()),
        keys,
    })
}

fn keys_of(profile: &Profile) -> Option<(Secret, Secret, Option<Secret>)> {
    let key = |name: &str| profile.get(name).map(Secret::new);
    Some((key("aws_access_key_id")?, key("aws_secret_access_key")?, key("aws_session_token")))
}

/// Whether requests to `endpoint` may be made, and unencrypted.
fn check_endpoint(endpoint: &str, allow_http: bool) -> Result<bool, StoreError> {
    let refuse = |why: &str| Err(StoreError::Config { why: format!("the S3 endpoint {why}") });
    let Some((scheme, rest)) = endpoint.split_once("://") else {
        return refuse("has no scheme; write https://… or http://…");
    };
    let authority = rest.split('/').next().unwrap_or_default();
    if authority.contains('@') {
        return refuse("has credentials in it; give them as keys");
    }
    match scheme {
        "https" => Ok(false),
        "http" => {
            let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
            let own_machine = host == "localhost" || host == "[::1]" || host.starts_with("127.");
            if allow_http || own_machine {
                Ok(true)
            } else {
                refuse("is http:// and on another machine; use https:// or set allow_http")
            }
        }
        _ => refuse("is neither http:// nor https://"),
    }
}

pub(super) fn connect(name: &str, config: &S3Config, ambient: &Ambient) -> Result<Bucket, StoreError> {
    let settled = settle(config, ambient)?;
    let unencrypted = settled.endpoint.as_deref().map_or(Ok(false), |it| check_endpoint(it, config.allow_http))?;
    let path_style = config.path_style.unwrap_or(settled.endpoint.is_some());
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(name)
        .with_region(&settled.region)
        .with_virtual_hosted_style_request(!path_style)
        .with_conditional_put(if config.conditional_put {
            S3ConditionalPut::ETagMatch
        } else {
            S3ConditionalPut::Disabled
        })
        .with_client_options(
            ClientOptions::new()
                .with_timeout(config.request_timeout)
                .with_connect_timeout(config.connect_timeout)
                .with_allow_http(unencrypted),
        )
        .with_retry(RetryConfig {
            backoff: BackoffConfig { init_backoff: config.first_backoff, max_backoff: config.max_backoff, base: 2.0 },
            max_retries: config.max_retries,
            retry_timeout: config.retry_timeout,
        });
    if let Some(endpoint) = &settled.endpoint {
        builder = builder.with_endpoint(bucket_endpoint(endpoint, name, path_style));
    }
    let mut secrets = Vec::new();
    if let Some((id, key, token)) = &settled.keys {
        builder = builder.with_access_key_id(id.expose()).with_secret_access_key(key.expose());
        secrets.extend([id.expose().to_owned(), key.expose().to_owned()]);
        if let Some(token) = token {
            builder = builder.with_token(token.expose());
            secrets.push(token.expose().to_owned());
        }
    } else {
        for variable in FETCHED_KEYS {
            if let (Some(value), Ok(key)) = (ambient.variable(variable), variable.to_ascii_lowercase().parse()) {
                builder = builder.with_config(key, value);
            }
        }
    }
    let client = builder.build().map_err(|error| {
        let uri = uri::of_key(name, "");
        StoreError::Config { why: translate(&error, Attempt::Read, &uri, &secrets).to_string() }
    })?;
    Ok(Bucket {
        shared: Arc::new(Shared {
            client,
            name: name.to_owned(),
            secrets,
            conditional_put: config.conditional_put,
            part_bytes: config.part_bytes.max(5 << 20),
            max_parts_in_flight: config.max_parts_in_flight.max(1),
        }),
    })
}

/// With the bucket in the host's name, an endpoint has to have it there.
fn bucket_endpoint(endpoint: &str, bucket: &str, path_style: bool) -> String {
    let endpoint = endpoint.trim_end_matches('/');
    match endpoint.split_once("://") {
        Some((scheme, host)) if !path_style && !host.starts_with(&format!("{bucket}.")) => {
            format!("{scheme}://{bucket}.{host}")
        }
        _ => endpoint.to_owned(),
    }
}

impl Bucket {
    fn key(&self, key: &str) -> Result<Key, StoreError> {
        Key::parse(key).map_err(|_| StoreError::Uri {
            uri: self.uri(key),
            why: "S3 keys have no control characters or empty parts",
        })
    }

    fn uri(&self, key: &str) -> String {
        uri::of_key(&self.shared.name, key)
    }

    fn fail(&self, attempt: Attempt, key: &str) -> impl FnOnce(object_store::Error) -> StoreError + '_ {
        let uri = self.uri(key);
        move |error| translate(&error, attempt, &uri, &self.shared.secrets)
    }

    pub(super) async fn get(&self, key: &str) -> Result<Option<Bytes>, StoreError> {
        let answer = match self.shared.client.get(&self.key(key)?).await {
            Ok(answer) => answer,
            Err(error) => return absent_or(self.fail(Attempt::Read, key)(error)),
        };
        if answer.meta.size > MAX_WHOLE_BYTES {
            let size_bytes = answer.meta.size;
            return Err(StoreError::TooLarge { uri: self.uri(key), size_bytes, max_bytes: MAX_WHOLE_BYTES });
        }
        answer.bytes().await.map(Some).map_err(self.fail(Attempt::Read, key))
    }

    pub(super) async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        self.shared.client.get_range(&self.key(key)?, range).await.map_err(self.fail(Attempt::Read, key))
    }

    pub(super) async fn head(&self, key: &str) -> Result<Option<Object>, StoreError> {
        match self.shared.client.head(&self.key(key)?).await {
            Ok(meta) => Ok(Some(Object {
                uri: self.uri(key),
                size_bytes: meta.size,
                modified_ms: meta.last_modified.timestamp_millis(),
            })),
            Err(error) => absent_or(self.fail(Attempt::Read, key)(error)),
        }
    }

    pub(super) async fn put(&self, key: &str, bytes: Bytes) -> Result<(), StoreError> {
        let done = self.shared.client.put(&self.key(key)?, bytes.into()).await;
        done.map(|_| ()).map_err(self.fail(Attempt::Write, key))
    }

    pub(super) async fn put_if_absent(&self, key: &str, bytes: Bytes) -> Result<Placed, StoreError> {
        if !self.shared.conditional_put {
            return match self.get(key).await? {
                Some(there) if there != bytes => Ok(Placed::Taken),
                _ => self.put(key, bytes).await.map(|()| Placed::Ours),
            };
        }
        let location = self.key(key)?;
        let mut resends = 0;
        loop {
            let sent = self.shared.client.put_opts(&location, bytes.clone().into(), PutMode::Create.into()).await;
            let lost = match sent {
                Ok(_) => return Ok(Placed::Ours),
                // Something is there, possibly by an earlier attempt of this very write.
                Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => None,
                Err(error) => match self.fail(Attempt::Write, key)(error) {
                    lost @ StoreError::Ambiguous { .. } => Some(lost),
                    refused => return Err(refused),
                },
            };
            match (self.get(key).await, lost) {
                (Ok(Some(there)), _) => return Ok(if there == bytes { Placed::Ours } else { Placed::Taken }),
                (Ok(None), Some(lost)) if resends == MAX_RESENDS => return Err(lost),
                // It was refused for an object that is gone again: try once more, as after a lost answer.
                (Ok(None), None) if resends == MAX_RESENDS => {
                    return Err(StoreError::Ambiguous { uri: self.uri(key), why: "it comes and goes".to_owned() });
                }
                (Ok(None), _) => resends += 1,
                (Err(_), Some(lost)) => return Err(lost),
                (Err(unreadable), None) => return Err(unreadable),
            }
        }
    }

    pub(super) async fn delete(&self, keys: Vec<String>) -> Result<(), StoreError> {
        if let [key] = keys.as_slice() {
            return match self.shared.client.delete(&self.key(key)?).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
                Err(error) => Err(self.fail(Attempt::Delete, key)(error)),
            };
        }
        let first = keys.first().cloned().unwrap_or_default();
        let locations = keys.iter().map(|key| self.key(key).map(Ok)).collect::<Result<VecDeque<_>, _>>()?;
        let mut deleted = self.shared.client.delete_stream(stream::iter(locations).boxed());
        while let Some(answer) = deleted.next().await {
            match answer {
                Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(self.fail(Attempt::Delete, &first)(error)),
            }
        }
        Ok(())
    }

    pub(super) fn list(&self, prefix: &str) -> Result<Listing, StoreError> {
        let location = if prefix.is_empty() { None } else { Some(self.key(prefix)?) };
        let (this, prefix) = (self.clone(), prefix.to_owned());
        let listed = self.shared.client.list(location.as_ref()).map(move |found| match found {
            Ok(meta) => Ok(Object {
                uri: this.uri(meta.location.as_ref()),
                size_bytes: meta.size,
                modified_ms: meta.last_modified.timestamp_millis(),
            }),
            Err(error) => Err(this.fail(Attempt::List, &prefix)(error)),
        });
        // Asked again after its end, the client's stream panics.
        Ok(Listing::s3(listed.fuse().boxed()))
    }

    pub(super) async fn upload(&self, from: &Path, key: &str) -> Result<u64, StoreError> {
        let read = |source| StoreError::Io { action: "read", uri: format!("file://{}", from.display()), source };
        let mut file = tokio::fs::File::open(from).await.map_err(read)?;
        let size_bytes = file.metadata().await.map_err(read)?.len();
        let part_bytes = (self.shared.part_bytes as u64).max(size_bytes / MAX_PARTS + 1);
        let part_bytes = usize::try_from(part_bytes).unwrap_or(usize::MAX);
        if size_bytes <= part_bytes as u64 {
            let mut bytes = Vec::with_capacity(usize::try_from(size_bytes).unwrap_or(0));
            file.read_to_end(&mut bytes).await.map_err(read)?;
            self.put(key, bytes.into()).await?;
        } else {
            let begun = self.shared.client.put_multipart(&self.key(key)?).await;
            let mut parts =
                WriteMultipart::new_with_chunk_size(begun.map_err(self.fail(Attempt::Write, key))?, part_bytes);
            let sent = self.send_parts(&mut file, &mut parts, part_bytes, key, read).await;
            if let Err(error) = sent {
                // What was sent so far costs money until it is given up.
                let _ = parts.abort().await;
                return Err(error);
            }
            parts.finish().await.map_err(self.fail(Attempt::Write, key))?;
        }
        match self.head(key).await? {
            Some(object) if object.size_bytes == size_bytes => Ok(size_bytes),
            there => Err(StoreError::Ambiguous {
                uri: self.uri(key),
                why: format!(
                    "{size_bytes} bytes were sent, and {} are there",
                    there.map_or_else(|| "none".to_owned(), |object| object.size_bytes.to_string())
                ),
            }),
        }
    }

    async fn send_parts(
        &self,
        file: &mut tokio::fs::File,
        parts: &mut WriteMultipart,
        part_bytes: usize,
        key: &str,
        read: impl Fn(std::io::Error) -> StoreError,
    ) -> Result<(), StoreError> {
        loop {
            let mut part = BytesMut::with_capacity(part_bytes);
            while part.len() < part_bytes {
                // `read_buf` would grow the buffer past the part.
                let wanted = (part_bytes - part.len()) as u64;
                if (&mut *file).take(wanted).read_buf(&mut part).await.map_err(&read)? == 0 {
                    break;
                }
            }
            if part.is_empty() {
                return Ok(());
            }
            parts.wait_for_capacity(self.shared.max_parts_in_flight).await.map_err(self.fail(Attempt::Write, key))?;
            parts.put(part.freeze());
        }
    }

    pub(super) async fn download(&self, key: &str, to: &Path) -> Result<u64, StoreError> {
        let answer = self.shared.client.get(&self.key(key)?).await.map_err(self.fail(Attempt::Read, key))?;
        let size_bytes = answer.meta.size;
        let target = to.to_owned();
        let temporary = blocking(move || local::temporary_for(&target)).await?;
        let write = |source| StoreError::Io { action: "write", uri: format!("file://{}", to.display()), source };
        let filled = async {
            let mut file = tokio::fs::File::create_new(&temporary).await.map_err(write)?;
            let mut chunks = answer.into_stream();
            let mut received = 0;
            while let Some(chunk) = chunks.try_next().await.map_err(self.fail(Attempt::Read, key))? {
                received += chunk.len() as u64;
                file.write_all(&chunk).await.map_err(write)?;
            }
            if received != size_bytes {
                let why = format!("{received} of {size_bytes} bytes came");
                return Err(StoreError::Unavailable { action: "read", uri: self.uri(key), why });
            }
            file.flush().await.map_err(write)?;
            file.sync_all().await.map_err(write)
        };
        if let Err(error) = filled.await {
            let _ = tokio::fs::remove_file(&temporary).await;
            return Err(error);
        }
        let target = to.to_owned();
        blocking(move || local::place(&temporary, &target)).await?;
        Ok(size_bytes)
    }
}

fn absent_or<T>(error: StoreError) -> Result<Option<T>, StoreError> {
    if error.is_not_found() { Ok(None) } else { Err(error) }
}

#[cfg(test)]
#[path = "s3_tests.rs"]
mod tests;

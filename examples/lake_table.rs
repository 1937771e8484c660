//! Works on one table as a test from another program tells it: a JSON object a line on stdin, an answer a line on stdout.
//!
//! `{"op": "create", "location": URI, "schema": ICEBERG SCHEMA, "sort_by": [], "arrow_schema": HEX}`, then `append`,
//! `replace`, `truncate`, `expire`, `sweep`, `retire`, `set`, `files`, `state`, `delete`. Settings of S3 come from the
//! environment.

use std::collections::BTreeMap;
use std::io::BufRead as _;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use streamcast_uring::lake::DataFile;
use streamcast_uring::lake::store::{Store, StoreConfig};
use streamcast_uring::lake::table::{
    Commit, Committed, Expire, Retired, Sweep, Table, TableError, TableSpec, delete_all,
};

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum Request {
    Create {
        location: String,
        schema: Box<iceberg::spec::Schema>,
        #[serde(default)]
        sort_by: Vec<String>,
        arrow_schema: Option<String>,
    },
    Open {
        location: String,
    },
    Append {
        files: Vec<DataFile>,
        issued_through: Option<i64>,
        writer_epoch: Option<u64>,
        now_ms: Option<i64>,
    },
    Replace {
        start: i64,
        end: i64,
        files: Vec<DataFile>,
        now_ms: Option<i64>,
    },
    Truncate {
        floor: i64,
        now_ms: Option<i64>,
    },
    Expire {
        retention_s: u64,
        now_ms: Option<i64>,
    },
    Sweep {
        dry_run: bool,
        min_age_s: u64,
    },
    Retire {
        through: Option<i64>,
        at: String,
    },
    Set {
        properties: BTreeMap<String, Option<String>>,
    },
    Upload {
        from: String,
        to: String,
    },
    Download {
        from: String,
        to: String,
    },
    /// Opens the table anew and lists its files: how long that takes, and what it leaves in memory.
    Measure {
        location: String,
    },
    Files,
    State,
    Delete {
        location: String,
        dry_run: bool,
    },
}

struct Session {
    store: Store,
    table: Option<Table>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let mut session = Session { store: Store::new(StoreConfig::default()), table: None };
    for line in std::io::stdin().lock().lines() {
        let answer = match serde_json::from_str(&line?) {
            Ok(request) => session.answer(request).await.unwrap_or_else(|error| {
                let transient = error.is_transient();
                json!({"error": error.to_string(), "transient": transient})
            }),
            Err(error) => json!({"error": format!("no request: {error}")}),
        };
        println!("{answer}");
    }
    Ok(())
}

impl Session {
    async fn answer(&mut self, request: Request) -> Result<Value, TableError> {
        let now = |now_ms| Commit { now_ms, ..Commit::default() };
        match request {
            Request::Create { location, schema, sort_by, arrow_schema } => {
                let spec = TableSpec { location, schema: *schema, sort_by, arrow_schema, properties: BTreeMap::new() };
                self.table = Some(Table::open_or_create(&self.store, &spec).await?);
                self.state().await
            }
            Request::Open { location } => {
                self.table = Table::open(&self.store, &location).await?;
                if self.table.is_none() { Ok(json!(null)) } else { self.state().await }
            }
            Request::Append { files, issued_through, writer_epoch, now_ms } => {
                let commit = Commit { issued_through, writer_epoch, now_ms, ..Commit::default() };
                Ok(committed(&self.table()?.append(&files, &commit).await?))
            }
            Request::Replace { start, end, files, now_ms } => {
                Ok(committed(&self.table()?.replace(start..end, &files, &now(now_ms)).await?))
            }
            Request::Truncate { floor, now_ms } => Ok(committed(&self.table()?.truncate(floor, &now(now_ms)).await?)),
            Request::Expire { retention_s, now_ms } => {
                let expire = Expire { retention: Duration::from_secs(retention_s), now_ms, ..Expire::default() };
                let expired = self.table()?.expire(&expire).await?;
                Ok(
                    json!({"snapshots": expired.snapshots, "data_files": expired.data_files, "metadata_files": expired.metadata_files}),
                )
            }
            Request::Sweep { dry_run, min_age_s } => {
                let sweep = Sweep { dry_run, min_age: Duration::from_secs(min_age_s), ..Sweep::default() };
                let swept = self.table()?.sweep(&sweep).await?;
                let orphans: Vec<_> = swept.orphans.iter().map(|object| &object.uri).collect();
                Ok(json!({"orphans": orphans, "seen": swept.seen, "more": swept.more}))
            }
            Request::Retire { through, at } => {
                self.table()?.retire(&Retired { through, at }).await?;
                self.state().await
            }
            Request::Set { properties } => {
                self.table()?.set_properties(&properties).await?;
                self.state().await
            }
            Request::Upload { from, to } => Ok(json!(self.store.upload(from.as_ref(), &to).await?)),
            Request::Download { from, to } => Ok(json!(self.store.download(&from, to.as_ref()).await?)),
            Request::Measure { location } => {
                let before = resident_kib();
                let began = std::time::Instant::now();
                let mut table = Table::open(&self.store, &location).await?.ok_or(TableError::Missing { location })?;
                let files = table.files().await?.len();
                let elapsed_ms = began.elapsed().as_secs_f64() * 1000.0;
                drop(table);
                Ok(json!({"files": files, "elapsed_ms": elapsed_ms, "before_kib": before, "after_kib": resident_kib()}))
            }
            Request::Files => Ok(json!(self.table()?.files_with_columns().await?)),
            Request::State => {
                self.table()?.repair().await?;
                self.state().await
            }
            Request::Delete { location, dry_run } => {
                let deletion = delete_all(&self.store, &location, dry_run).await?;
                Ok(json!({"files": deletion.files, "bytes": deletion.bytes}))
            }
        }
    }

    fn table(&mut self) -> Result<&mut Table, TableError> {
        self.table.as_mut().ok_or(TableError::Missing { location: "(none is open)".to_owned() })
    }

    async fn state(&mut self) -> Result<Value, TableError> {
        let table = self.table()?;
        Ok(json!({
            "metadata": table.metadata_uri(),
            "version": table.version_number(),
            "extent": table.extent().await?,
            "rows": table.row_count().await?,
            "issued_through": table.issued_through(),
            "writer_epoch": table.writer_epoch(),
            "retired": table.retired(),
            "sort_by": table.sort_by(),
            "arrow_schema": table.arrow_schema(),
            "snapshots": table.snapshots().len(),
        }))
    }
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
}

fn committed(committed: &Committed) -> Value {
    json!({
        "version": committed.version,
        "snapshot": committed.snapshot_id,
        "added": committed.added,
        "removed": committed.removed,
        "extent": committed.extent,
    })
}

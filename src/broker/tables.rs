//! A stream's documents and its place in the lake, from the configuration.

use std::path::Path;
use std::sync::Arc;

use streamcast_shards::cores::CorePlan;

use super::build;
use super::error::BrokerError;
use crate::config::{self, Config, StreamConfig};
use crate::journal::{JOURNAL_FILE, StreamRecord};
use crate::lake::documents::{self, Declared, Objects};
use crate::lake::life::{Chosen, LifeError, Root};
use crate::lake::mover::{Lake, LakeSettings, LakeStream, MoverSettings};
use crate::lake::store::{S3Config, StoreConfig};
use crate::schema::Schema;
use crate::telemetry::StreamCounters;

/// What the documents of a stream say that its connections have to know.
pub(super) struct StreamDocuments {
    /// Where they are: the plain copy and the hint.
    pub(super) uris: (String, String),
    /// When the stream was retired, in microseconds, and where it ends.
    pub(super) retired: Option<(i64, i64)>,
}

/// Where a stream comes from.
pub(super) struct Place<'a> {
    pub(super) config: &'a Config,
    pub(super) declared: &'a StreamConfig,
    pub(super) root: &'a Path,
}

impl Place<'_> {
    /// Makes sure of the stream's documents and takes it into the lake.
    pub(super) fn settle(
        &self,
        lake: &Lake,
        record: &StreamRecord,
        schema: &Schema,
        counters: &Arc<StreamCounters>,
    ) -> Result<StreamDocuments, BrokerError> {
        let published = self.declared.published.as_deref();
        let bucket = Some(Arc::new(lake.store().clone()) as Arc<dyn Objects>);
        let declared = Declared { published, first_ts_us: lake.first_ts_us(record), bucket };
        let document = documents::ensure(self.root, record, &declared)?;
        let live = &document.live_log;
        let retired = document.retirement.is_some();
        let settings = mover_settings(self.declared.lake.as_ref().unwrap_or(&self.config.lake));
        lake.add(&LakeStream {
            record,
            schema,
            published: live.published.as_deref().unwrap_or_default(),
            start_offset: live.start_offset,
            replay_published: self.declared.replay_published || retired,
            // Nothing of a retired stream moves any more, but what is erased goes.
            settings: MoverSettings { maintain: settings.maintain && !retired, ..settings },
            counters: Arc::clone(counters),
        })?;
        Ok(StreamDocuments {
            uris: documents::uris(self.root, &document),
            retired: document.retirement.map(|retirement| (retirement.at, retirement.end_offset)),
        })
    }
}

/// Migrates the streams that are declared with `migrate = true` to what is declared of them.
pub(super) fn migrate_declared(config: &Config) -> Result<(), BrokerError> {
    let wanted: Vec<_> = config.streams.iter().filter(|declared| declared.migrate && declared.durable).collect();
    if wanted.is_empty() || !config.root.join(JOURNAL_FILE).exists() {
        return Ok(());
    }
    let mut root = open_root(&config.root, config)?;
    let known = root.names();
    for declared in wanted.into_iter().filter(|declared| known.contains(&declared.name)) {
        let Some(schema) = build::compile(declared)? else { continue };
        let migrated = root.migrate(&declared.name, &schema, Some(&declared.sort_by))?;
        if migrated.changed {
            let (log, offset) = (migrated.log, migrated.start_offset);
            tracing::info!(stream = declared.name, log, offset, "migrated to the declared columns");
        }
    }
    Ok(())
}

/// Opens the data root at `root` for work on streams that are not served, with what `config` chooses for them.
///
/// # Errors
/// As [`Root::open`].
pub fn open_root(root: &Path, config: &Config) -> Result<Root, LifeError> {
    let chosen = config.streams.iter().map(|stream| {
        let moving = mover_settings(stream.lake.as_ref().unwrap_or(&config.lake));
        (stream.name.clone(), Chosen { published: stream.published.clone(), moving })
    });
    Ok(Root::open(root, &lake_settings(config, None))?.choosing(chosen.collect(), mover_settings(&config.lake)))
}

/// What is chosen for moving rows.
pub fn mover_settings(lake: &config::Lake) -> MoverSettings {
    MoverSettings {
        maintain: lake.maintain,
        // Whoever moves rows by hand does not erase by hand.
        purge: true,
        flush_every: lake.flush_every,
        seal_every: lake.seal_every,
        publish_every: lake.publish_every,
        compact_every: lake.compact_every,
        clean_every: lake.clean_every,
        target_seal_bytes: lake.target_seal_bytes,
        target_seal_rows: lake.target_seal_rows,
        target_compact_bytes: lake.target_compact_bytes,
        compact_min_files: lake.compact_min_files as usize,
        local_max_bytes: lake.local_max_bytes,
        local_retention: lake.local_retention,
        snapshot_retention: lake.snapshot_retention,
    }
}

/// What is chosen for the lake as a whole. Without a plan nobody else needs the cores.
pub(super) fn lake_settings(config: &Config, plan: Option<&CorePlan>) -> LakeSettings {
    let config::S3 { endpoint, region, profile, path_style, allow_http, conditional_put } = config.s3.clone();
    let s3 = S3Config { endpoint, region, profile, path_style, allow_http, conditional_put, ..S3Config::default() };
    let (cores, shares_cores) =
        plan.map_or_else(Default::default, |plan| (plan.background.clone(), plan.shares_background()));
    LakeSettings { store: StoreConfig { s3 }, cores, shares_cores }
}

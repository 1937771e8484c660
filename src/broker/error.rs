//! Why a broker does not start or did not stop in order.

use crate::auth::AuthError;
use crate::http::HttpError;
use crate::journal::JournalError;
use crate::lake::LakeError;
use crate::lake::columns::ColumnsError;
use crate::lake::life::LifeError;
use crate::lake::mover::MoverError;
use crate::registry::RegistryError;
use crate::schema::SchemaError;
use crate::tls::TlsError;
use streamcast_shards::cores::CoreError;
use streamcast_shards::listen::ListenError;
use streamcast_shards::probe::ProbeError;

/// What can go wrong; every message names the thing and the way out.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// The kernel does not give io_uring.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// The cores that were asked for.
    #[error(transparent)]
    Cores(#[from] CoreError),
    /// The address.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A service manager passed a socket that everybody can reach.
    #[error(
        "the inherited socket listens on {address}, which is not loopback, and nobody is asked for a password; \
             give a --policy, bind it to 127.0.0.1 or [::1], or say --insecure"
    )]
    NotLoopback {
        /// Where it listens.
        address: std::net::SocketAddr,
    },
    /// Who is let in.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// Certificates.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The data root or the journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The documents beside the journal.
    #[error(transparent)]
    Lake(#[from] LakeError),
    /// The registry of streams that are declared at run time.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// What happened to a stream while no broker ran.
    #[error(transparent)]
    Life(#[from] LifeError),
    /// The files and tables behind the journal.
    #[error(transparent)]
    Mover(#[from] MoverError),
    /// What an earlier stream of the name has published is still being deleted.
    #[error(
        "the tables of the stream {name:?} that was deleted are still where this one's are to be; try again when they \
         are gone"
    )]
    Deleting {
        /// Its name.
        name: String,
    },
    /// The address of the control API.
    #[error("the control API cannot listen on {address}: {source}; name another with --control-listen")]
    ControlAddress {
        /// The address.
        address: std::net::SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The HTTP side.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// A stream's schema.
    #[error("stream {name:?}: {source}")]
    Schema {
        /// The stream.
        name: String,
        /// What is wrong with it.
        source: SchemaError,
    },
    /// A durable stream's columns have no form as a table.
    #[error("stream {name:?}: {source}")]
    Table {
        /// The stream.
        name: String,
        /// What is in the way.
        source: ColumnsError,
    },
    /// What the journal records of a stream cannot be read.
    #[error("stream {name:?}: the journal's record of its schema cannot be read: {detail}")]
    Recorded {
        /// The stream.
        name: String,
        /// Why.
        detail: String,
    },
    /// Two streams have one name.
    #[error("stream {name:?} is declared twice; rename one of them")]
    Twice {
        /// The name.
        name: String,
    },
    /// A stream has a name the broker keeps for itself.
    #[error("stream {name:?}: the name is the broker's own; choose another")]
    Reserved {
        /// The name.
        name: String,
    },
    /// A stream of that name is in service.
    #[error("stream {name:?} is served already; stop it first")]
    Served {
        /// The name.
        name: String,
    },
    /// No stream of that name is in service.
    #[error("stream {name:?} is not served; start it first")]
    NotServed {
        /// The name.
        name: String,
    },
    /// The writer has stopped, or is too busy to answer.
    #[error("the writer does not answer; see the log for why, and start the broker again")]
    WriterGone,
    /// The reader threads do not answer.
    #[error("the threads that read the log do not answer; see the log for why, and start the broker again")]
    ReadersGone,
    /// The log could not be read.
    #[error("the log cannot be read: {detail}")]
    Unreadable {
        /// Why.
        detail: String,
    },
    /// More shards than a connection's token can name.
    #[error("{shards} shards are more than the 256 that one process can run; name fewer cores")]
    TooManyShards {
        /// How many.
        shards: usize,
    },
    /// A thread did not start.
    #[error("a thread cannot start: {0}; raise the limit on processes (`ulimit -u`)")]
    Thread(std::io::Error),
    /// A shard ended by itself.
    #[error("shard {shard} ended: {detail}")]
    Shard {
        /// Which.
        shard: usize,
        /// Its last words.
        detail: String,
    },
}

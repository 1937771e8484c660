//! Who a caller is and what it may do (wire.md section 11.1).
//!
//! A [`Gate`] is asked once for every request, before anything of it is looked up: it turns a [`RequestHead`] into an
//! [`Outcome`]. From then on the [`Principal`] answers for itself: [`Principal::allows`].

mod action;
mod cache;
mod credential;
mod error;
mod file;
mod gate;
mod grants;
mod head;
mod keyring;
mod keys;
mod limiter;
mod origin;
mod overview;
mod policy;
mod pool;
mod principal;
mod tickets;
mod token;
mod unverified;

pub use action::{Action, Resource};
pub use credential::without_ticket;
pub use error::AuthError;
pub use file::{GrantsText, OneOrMore, PolicyFile};
pub use gate::{Check, Gate, Glance, Outcome, Pass, Refusal};
pub use grants::{Grants, Pattern};
pub use head::RequestHead;
pub use keys::{Key, KeyFile, unix_s};
pub use overview::{GrantsView, IssuerView, KeyView, Overview, PrincipalView, grants_view};
pub use policy::{PolicySources, hash_password};
pub use principal::{ANONYMOUS, Origin, Principal};
pub use tickets::TICKET_LIFETIME;

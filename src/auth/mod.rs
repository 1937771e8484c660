//! Who a caller is and what it may do (wire.md section 11.1).
//!
//! A [`Gate`] is asked once for every request, before anything of it is looked up: it turns a [`RequestHead`] into an
//! [`Outcome`]. From then on the [`Principal`] answers for itself: [`Principal::allows`].

mod action;
mod gate;
mod grants;
mod head;
mod principal;

pub use action::{Action, Resource};
pub use gate::{Gate, Outcome, Refusal};
pub use grants::{Grants, Pattern};
pub use head::RequestHead;
pub use principal::Principal;

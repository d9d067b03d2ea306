//! Which tokens of which clusters are copied to which namespaces, and the next write for each copy.
//!
//! An agent reports the token of a ManagedServiceAccount into a Secret in the cluster's namespace on the hub (the
//! *source*). Each namespace that the cluster is granted to has a *copy* of it, in a Secret that the cluster's
//! ClusterProfile there owns. The rules:
//!
//! - **Only bindings grant** ([`crate::grant`]). The profile owns the copy, but does not authorize it.
//! - **A copy is deleted if a precondition is known not to hold**: no grant, no account, no source, no profile. **It is
//!   kept if a precondition is unknown**: an incomplete list, an unreadable object, an invalid token.
//! - **A Secret that is not our copy is never changed**, whatever its name.
//! - **Copies of two accounts can have the same name.** The first remains; annotations on the copy identify its
//!   account, and the other account is reported.
//!
//! [`account`], [`source`] and [`copy`] are what is read of the objects, [`index`] stores them, [`backlog`] is what
//! changes concern, [`plan`] decides, and [`state`], [`tally`] and [`report`] describe the result for people.

pub mod account;
pub mod backlog;
pub mod copy;
pub mod index;
pub mod plan;
pub mod reach;
pub mod report;
mod secret_map;
pub mod source;
pub mod state;
pub mod tally;

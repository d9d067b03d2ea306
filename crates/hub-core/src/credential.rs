//! Which token of which cluster belongs in which namespace, and what is left to write for it.
//!
//! An agent reports the token of a ManagedServiceAccount into a Secret in the cluster's namespace on the hub (the
//! *source*). Each namespace that the cluster is granted to has a *copy* of it, in a Secret that the cluster's
//! ClusterProfile there owns. What is decided here:
//!
//! - **Authority is the binding** ([`crate::grant`]). A profile is what a copy hangs on, and no reason for one.
//! - **What is clearly not so takes a copy away**: no grant, no account, no source, no profile. **What is not
//!   known keeps it**: a list that is not complete, an object that cannot be read, a token that is none.
//! - **A Secret that is not a copy of ours is never touched**, whatever its name.
//! - **Two accounts can share the name of their copies.** The first stays; the other is told apart by what is
//!   recorded on the copy, and reported.
//!
//! [`account`], [`source`] and [`copy`] are what is read of the objects, [`index`] holds them, [`plan`] decides, and
//! [`state`] and [`report`] are for people.

pub mod account;
pub mod copy;
pub mod index;
pub mod plan;
pub mod report;
pub mod source;
pub mod state;

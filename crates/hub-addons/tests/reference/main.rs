//! `docs/reference.md` lists everything that scripts, alerts and manifests refer to by name, and nothing else.

#![cfg(test)]

#[path = "../support/building.rs"]
mod building;
#[path = "../support/plugin.rs"]
mod plugin;

mod flags;
mod names;
mod page;
mod record;

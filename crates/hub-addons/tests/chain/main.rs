//! Applications and their clusters from end to end: every controller, the plugin and the clusters.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod one_process;

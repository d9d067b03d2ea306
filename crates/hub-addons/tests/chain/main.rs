//! The whole way of an application to its clusters: every controller, the plugin and the clusters themselves.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod one_process;
mod two_processes;

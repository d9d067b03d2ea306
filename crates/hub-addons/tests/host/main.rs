//! The program around its controllers, on real hubs: command line, election, probes, and trouble.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod bad_days_watches;
mod command;
mod election;
mod probes;
mod trouble;

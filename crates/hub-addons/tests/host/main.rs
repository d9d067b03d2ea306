//! The program around its controllers, on real hubs: command line, leader election, probes, and failures.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod command;
mod election;
mod peers;
mod probes;
mod trouble;
mod watches;

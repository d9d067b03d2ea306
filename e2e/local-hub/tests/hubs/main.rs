//! Hubs on this machine: their guarantees, their Pods, and their cleanup.

#![cfg(test)]

mod support;

mod commands;
mod credentials;
mod hub;
mod leftovers;
mod pods;
mod reuse;
mod user_server;

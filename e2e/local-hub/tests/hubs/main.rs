//! Hubs on this machine: their guarantees, their Pods, and their cleanup.

#![cfg(test)]

mod hub;
mod leftovers;
mod pods;

//! Hubs on this machine: what they are, what runs in them, and what is left of them.

#![cfg(test)]

mod support;

mod commands;
mod credentials;
mod hub;
mod leftovers;
mod pods;
mod user_server;

//! The images, in Pods that Deployments make.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod cp_creds;
mod profiles;

//! The Helm chart: what it renders and refuses, the program installed by it, its alerts and its examples.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod argo_cd;
mod attackers;
mod authors;
mod cluster_permissions;
mod consumers;
mod deployer;
mod examples;
mod follow;
mod guide_commands;
mod guides;
mod helm_test;
mod hubs;
mod install;
mod krew;
mod monitoring;
mod multikueue;
mod own_consumers;
mod plugin_injection;
mod policies;
mod release;
mod render;
mod scraping;
mod subchart;
mod tools;
mod uninstall;
mod upgrade;
mod user_server;
mod values;
mod works;

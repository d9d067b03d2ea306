//! Every rule of the decisions, by tables and properties.

#![cfg(test)]

mod support;

mod access;
mod argo_cd;
mod cluster_access;
mod concerned;
mod consumer_access;
mod consumer_concerned;
mod consumer_role;
mod credential;
mod entry;
mod explain;
mod grant;
mod kueue;
mod laws;
mod member_id;
mod neighbours;
mod own_consumers;
mod permission_faults;
mod permission_kinds;
mod permissions;
mod plan;
mod server;
mod token_names;
mod touched;
mod trust;

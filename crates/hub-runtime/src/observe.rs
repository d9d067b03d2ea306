//! What people and machines see of the process: Events, metrics, and the probes of the kubelet.

pub mod health;
pub mod metrics;
pub mod report;
pub mod review;
pub mod secure_metrics;
mod serving;
pub mod serving_certificate;

//! Flow control: everything that can delay a key or a write. `docs/dev/failures.md` has one table of it.

pub(crate) mod backoff;
pub mod circuit_breaker;
pub(crate) mod failure_groups;
pub mod pace;
pub(crate) mod repeated_writes;
pub mod retry_policy;
pub(crate) mod workers;

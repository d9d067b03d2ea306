//! `docs/reference.md` lists everything that scripts, alerts and manifests refer to by name, and nothing else.
//!
//! Most of its tables are generated: those of flags and gates from `--help`, those of steps, codes, reasons, states,
//! categories and exit statuses from the comments and texts of the enums, and those of metrics from the code that
//! registers them. The tests fail if a table is not current, and write it with `RECORD=1`. Of the other tables, the names
//! are compared.

#![cfg(test)]

#[path = "../support/building.rs"]
mod building;
#[path = "../support/plugin.rs"]
mod plugin;

mod enums;
mod gates;
mod metrics;
mod names;
mod page;
mod table;

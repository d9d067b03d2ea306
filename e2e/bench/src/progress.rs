//! Progress, on standard error.

/// Reports what happens.
#[allow(clippy::print_stderr, reason = "progress for the user")]
pub fn say(what: &str) {
    eprintln!("hub-bench: {what}");
}

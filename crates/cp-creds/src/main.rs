//! `cp-creds`, the client-go exec credential plugin: command line in, `ExecCredential` out.
//!
//! Standard output contains a response or nothing, standard error one line or nothing, since callers put both into
//! messages of their own.

use std::env;
use std::io::{self, Write as _};
use std::panic;
use std::path::PathBuf;
use std::process::{self, ExitCode};

use anyhow::{Context as _, Error, Result};
use cp_creds::cli::{self, Command};
use cp_creds::environment::Environment;
use cp_creds::install::install;
use cp_creds::{credential, in_one_line};

/// Exit code: there is no credential.
const FAILED: u8 = 1;

/// Exit code: the command line is not valid.
const MISUSED: u8 = 2;

fn main() -> ExitCode {
    tell_defects_in_one_line();
    let command = match cli::parse(env::args_os().skip(1)) {
        Ok(command) => command,
        Err(error) => return fail(MISUSED, &error),
    };
    match run(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(FAILED, &error),
    }
}

fn run(command: Command) -> Result<()> {
    let text = match command {
        Command::Help => cli::HELP.to_owned(),
        Command::Version => format!("cp-creds {}\n", cli::VERSION),
        Command::Install(directory) => {
            // Without /proc, fall back to the path of the call.
            let this = env::current_exe()
                .or_else(|error| env::args_os().next().map(PathBuf::from).ok_or(error))?;
            format!("installed {}\n", install(&this, &directory)?.display())
        }
        Command::Credential(arguments) => credential(arguments, Environment::of_process())? + "\n",
    };
    print(&text).context("cannot write to standard output")
}

/// A single write: a reader gets everything or an error.
fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

fn fail(code: u8, error: &Error) -> ExitCode {
    tell(&in_one_line(error));
    ExitCode::from(code)
}

fn tell(line: &str) {
    // A closed standard error cannot be reported.
    let _ = io::stderr().write_all(format!("cp-creds: {line}\n").as_bytes());
}

/// A panic's message has several lines, and may contain the input that caused it.
fn tell_defects_in_one_line() {
    panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        tell(&format!("internal error at {place}; please report it"));
        process::exit(i32::from(FAILED));
    }));
}

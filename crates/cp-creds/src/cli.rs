//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use jiff::SignedDuration;
use lexopt::prelude::*;

use crate::names::excerpt;
use crate::own_token::DEFAULT_AUDIENCE;
use crate::server_url::ServerUrl;

pub const HELP: &str = include_str!("help.txt");

/// The version, which `hack/version.sh` sets for what is released or run in Pods.
pub const VERSION: &str = match option_env!("HUB_ADDONS_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_VERSION"),
};

/// The default of `--timeout`.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// The placeholder of the cluster's name in `--server`.
pub const CLUSTER: &str = "{cluster}";

/// Longest timeout: the caller blocks that long.
const MAX_TIMEOUT: Duration = Duration::from_mins(5);

/// The requested command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Print a token.
    Credential(Arguments),
    /// Copy this program into a directory.
    Install(PathBuf),
    /// Print the usage.
    Help,
    /// Print the version.
    Version,
}

/// The arguments of a request for a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    pub source: Source,
    /// `--cluster-name`, which takes precedence over the request.
    pub cluster: Option<String>,
    /// `--server`: the server to which the caller must send the token, with [`CLUSTER`] in place of the cluster's name.
    pub server: Option<String>,
    /// `--timeout`.
    pub timeout: Duration,
}

/// Where the token comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The synced Secret of a `ManagedServiceAccount`.
    Synced {
        /// `--managed-serviceaccount`.
        account: String,
        /// `--namespace`, which takes precedence over the environment.
        namespace: Option<String>,
    },
    /// The application's own token.
    Own {
        /// `--own-token`: the file.
        path: PathBuf,
        /// `--own-token-audience`: whom the token has to be for.
        audience: String,
    },
}

/// Parses the command line, without the program's name.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command> {
    read(arguments).map_err(|error| match error.downcast::<lexopt::Error>() {
        Ok(error) => anyhow!("{error}; see cp-creds --help"),
        Err(error) => error,
    })
}

fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Command> {
    let (mut account, mut cluster, mut namespace) = (None, None, None);
    let (mut server, mut timeout) = (None, DEFAULT_TIMEOUT);
    let (mut own_token, mut audience) = (None, None);
    let mut parser = lexopt::Parser::from_args(arguments);
    let mut is_first = true;
    while let Some(argument) = parser.next()? {
        match argument {
            Long("help") | Short('h') => return Ok(Command::Help),
            Long("version") | Short('V') => return Ok(Command::Version),
            Long("managed-serviceaccount") => account = Some(parser.value()?.string()?),
            Long("cluster-name") => cluster = Some(parser.value()?.string()?),
            Long("namespace") => namespace = Some(parser.value()?.string()?),
            Long("server") => server = Some(parse_server(parser.value()?.string()?)?),
            Long("own-token") => own_token = Some(PathBuf::from(parser.value()?)),
            Long("own-token-audience") => audience = Some(parser.value()?.string()?),
            Long("timeout") => timeout = parse_timeout(&parser.value()?.string()?)?,
            Value(word) if is_first && word == "install" => return parse_install(parser),
            other => return Err(other.unexpected().into()),
        }
        is_first = false;
    }
    let source = if let Some(path) = own_token {
        let useless =
            [("--managed-serviceaccount", account.is_some()), ("--namespace", namespace.is_some())];
        if let Some((flag, _)) = useless.into_iter().find(|(_, is_set)| *is_set) {
            bail!("--own-token returns the application's own token, so {flag} cannot be set");
        }
        let audience = audience.filter(|audience: &String| !audience.is_empty());
        Source::Own { path, audience: audience.unwrap_or_else(|| DEFAULT_AUDIENCE.to_owned()) }
    } else {
        ensure!(audience.is_none(), "--own-token-audience cannot be set without --own-token");
        // An empty value is that of a template without the value.
        let account = account.filter(|name: &String| !name.is_empty());
        let account = account.context("--managed-serviceaccount flag is required")?;
        Source::Synced { account, namespace }
    };
    Ok(Command::Credential(Arguments { source, cluster, server, timeout }))
}

fn parse_install(mut parser: lexopt::Parser) -> Result<Command> {
    const NO_DIRECTORY: &str = "install needs one directory: cp-creds install DIR";
    let mut directory = None;
    while let Some(argument) = parser.next()? {
        match argument {
            Long("help") | Short('h') => return Ok(Command::Help),
            Value(path) if directory.is_none() && !path.is_empty() => {
                directory = Some(PathBuf::from(path));
            }
            Value(_) => bail!(NO_DIRECTORY),
            other => return Err(other.unexpected().into()),
        }
    }
    directory.map(Command::Install).context(NO_DIRECTORY)
}

/// A URL that is the same for every cluster would allow the token of one cluster to be sent to another.
fn parse_server(text: String) -> Result<String> {
    ensure!(
        text.contains(CLUSTER) && ServerUrl::parse(&text.replace(CLUSTER, "cluster")).is_ok(),
        "--server {} must be an https URL with {CLUSTER} in place of the cluster's name",
        excerpt(&text)
    );
    Ok(text)
}

fn parse_timeout(text: &str) -> Result<Duration> {
    text.parse::<SignedDuration>()
        .ok()
        .and_then(|duration| Duration::try_from(duration).ok())
        .filter(|duration| (Duration::from_millis(1)..=MAX_TIMEOUT).contains(duration))
        .with_context(|| {
            format!(
                "--timeout {} is not a duration from 1ms to 5m, such as 5s or 500ms",
                excerpt(text)
            )
        })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use super::{Arguments, Command, DEFAULT_TIMEOUT, Result, Source, parse};

    fn parsed(words: &[&str]) -> Result<Command> {
        parse(words.iter().map(Into::into))
    }

    fn refused(words: &[&str]) -> String {
        parsed(words).unwrap_err().to_string()
    }

    #[test]
    fn the_pages_own_call_is_enough() {
        let arguments = Arguments {
            source: Source::Synced { account: "multikueue".to_owned(), namespace: None },
            cluster: None,
            server: None,
            timeout: DEFAULT_TIMEOUT,
        };
        for words in [
            &["--managed-serviceaccount=multikueue"][..],
            &["--managed-serviceaccount", "multikueue"],
        ] {
            assert_eq!(parsed(words).unwrap(), Command::Credential(arguments.clone()));
        }
    }

    #[test]
    fn flags_say_what_the_caller_cannot() {
        let words = [
            "--namespace=argocd",
            "--cluster-name=c",
            "--server=https://proxy:9092/{cluster}",
            "--timeout=500ms",
            "--managed-serviceaccount=m",
        ];
        let expected = Arguments {
            source: Source::Synced {
                account: "m".to_owned(),
                namespace: Some("argocd".to_owned()),
            },
            cluster: Some("c".to_owned()),
            server: Some("https://proxy:9092/{cluster}".to_owned()),
            timeout: Duration::from_millis(500),
        };
        assert_eq!(parsed(&words).unwrap(), Command::Credential(expected));
    }

    #[test]
    fn the_account_is_required_and_its_absence_has_a_known_wording() {
        for words in [&[][..], &["--managed-serviceaccount="], &["--cluster-name=c"]] {
            assert_eq!(refused(words), "--managed-serviceaccount flag is required");
        }
    }

    #[test]
    fn the_own_token_needs_no_account() {
        let expected = |audience: &str, server: Option<&str>| {
            Command::Credential(Arguments {
                source: Source::Own {
                    path: PathBuf::from("/run/token"),
                    audience: audience.to_owned(),
                },
                cluster: None,
                server: server.map(str::to_owned),
                timeout: DEFAULT_TIMEOUT,
            })
        };
        assert_eq!(parsed(&["--own-token=/run/token"]).unwrap(), expected("hub-addons", None));
        let words = [
            "--own-token",
            "/run/token",
            "--own-token-audience=mine",
            "--server=https://u:9092/{cluster}",
        ];
        assert_eq!(parsed(&words).unwrap(), expected("mine", Some("https://u:9092/{cluster}")));
        for flag in ["--managed-serviceaccount", "--namespace"] {
            assert!(
                refused(&["--own-token=/run/token", &format!("{flag}=a")]).contains(flag),
                "{flag}"
            );
        }
        let alone = ["--managed-serviceaccount=m", "--own-token-audience=a"];
        assert!(refused(&alone).contains("without --own-token"));
    }

    #[test]
    fn a_timeout_is_a_duration_within_bounds() {
        for (text, milliseconds) in
            [("5s", 5000), ("500ms", 500), ("1m30s", 90_000), ("1.5s", 1500), ("5m", 300_000)]
        {
            let Ok(Command::Credential(arguments)) =
                parsed(&["--managed-serviceaccount=m", &format!("--timeout={text}")])
            else {
                panic!("{text} is a duration");
            };
            assert_eq!(arguments.timeout, Duration::from_millis(milliseconds), "{text}");
        }
        for text in ["", "5", "0s", "-1s", "5m1s", "1h", "soon", "99999999999999999999s"] {
            assert!(
                refused(&[&format!("--timeout={text}")]).contains("is not a duration"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_server_is_an_https_url_of_each_cluster_its_own() {
        for text in [
            "",
            "https://proxy:9092",
            "http://proxy:9092/{cluster}",
            "{cluster}",
            "https://u@p/{cluster}",
        ] {
            assert!(
                refused(&["--managed-serviceaccount=m", &format!("--server={text}")])
                    .contains("--server"),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_not_known_is_not_passed_over() {
        for words in [&["--managed-service-account=m"][..], &["-m", "m"], &["run"], &["--timeout"]]
        {
            assert!(parsed(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn install_takes_one_directory() {
        assert_eq!(
            parsed(&["install", "/plugins"]).unwrap(),
            Command::Install(PathBuf::from("/plugins"))
        );
        for words in [&["install"][..], &["install", ""], &["install", "a", "b"]] {
            assert!(refused(words).contains("install needs one directory"), "{words:?}");
        }
        assert!(parsed(&["--managed-serviceaccount=m", "install", "a"]).is_err());
    }

    #[test]
    fn help_and_version_need_nothing_else() {
        for words in
            [&["--help"][..], &["-h"], &["--namespace=n", "--help"], &["install", "--help"]]
        {
            assert_eq!(parsed(words).unwrap(), Command::Help);
        }
        assert_eq!(parsed(&["--version"]).unwrap(), Command::Version);
    }
}

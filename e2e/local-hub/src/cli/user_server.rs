//! `local-hub user-server`: a proxy to managed clusters in the foreground.

use std::path::PathBuf;

use clap::Args;
use local_hub::{HubError, ServingAuthority, Upstream, UserServer};

use super::end::{self, End};
use super::pods::file_of;
use super::ready::ReadyFile;

/// Forward requests to the API servers of managed clusters, like cluster-proxy's user server
///
///     https://ADDRESS:PORT/NAME/PATH
///
/// is PATH at the API server of cluster NAME. Your own token identifies you to the
/// cluster, which authorizes you: only server and authority of the kubeconfigs below
/// are used. It supports everything that kubectl does, including --watch and exec.
///
/// While it is ready, the ready file is
///
///     export USER_SERVER_URL='https://127.0.0.1:PORT'
///     export USER_SERVER_CA='the certificate of its authority, as text'
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Options {
    /// A cluster, and a kubeconfig with its API server; can be repeated
    #[arg(long = "cluster", value_name = "NAME=KUBECONFIG", required = true, value_parser = file_of)]
    clusters: Vec<(String, PathBuf)>,

    /// A file with variables for a shell, which exists while the server is ready
    #[arg(long, value_name = "FILE")]
    ready_file: PathBuf,

    /// Also end when standard input is closed, for example because the parent process ends
    #[arg(long)]
    until_stdin_closes: bool,
}

impl Options {
    /// Starts the server, and returns when it has ended.
    pub async fn run(self) -> Result<(), HubError> {
        let end = End::of(self.until_stdin_closes)?;
        let ready_file = ReadyFile::new(self.ready_file)?;
        let mut clusters = Vec::new();
        for (name, kubeconfig) in &self.clusters {
            clusters.push((name, Upstream::from_kubeconfig(kubeconfig).await?));
        }
        let authority = ServingAuthority::new("local-hub user-server")?;
        let serving = authority.issue(["127.0.0.1"])?;
        let server = UserServer::start(&serving, ([127, 0, 0, 1], 0).into(), clusters)?;
        let (url, ca) = (server.url(), authority.ca_pem());
        let variables = [("USER_SERVER_URL", &*url), ("USER_SERVER_CA", &ca)];
        end::serve(end, &ready_file, &variables, "the user server is").await
    }
}

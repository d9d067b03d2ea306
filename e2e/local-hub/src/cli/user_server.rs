//! `local-hub user-server`: a proxy to managed clusters in the foreground.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use local_hub::{
    HubError, ServingAuthority, ServingCertificate, Upstream, UserServer, write_private,
};

use super::end::{self, End};
use super::pods::file_of;
use super::ready::{Ready, ReadyFile};

/// Files in the serving directory, named as in cluster-proxy's Secret.
const AUTHORITY: &str = "ca.crt";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// Forward requests to the API servers of managed clusters, like cluster-proxy's user server
///
///     https://ADDRESS:PORT/NAME/PATH
///
/// is PATH at the API server of cluster NAME. Your own token identifies you to the
/// cluster, which authorizes you: only server and authority of the kubeconfigs below
/// are used. It supports everything that kubectl does, including --watch and exec.
///
/// It creates an authority and a certificate in the serving directory.
///
///     ca.crt    the authority, which clients must trust
///     tls.crt   the certificate, followed by the authority
///     tls.key   its key
///
/// tls.crt and tls.key are what cluster-proxy keeps in the Secret
/// cluster-proxy-user-serving-cert.
///
/// When it is ready, the last lines of the output are
///
///     export USER_SERVER_URL='https://127.0.0.1:PORT'
///     export USER_SERVER_CA='DIR/ca.crt'
///     export USER_SERVER_CERT='DIR/tls.crt'
///     export USER_SERVER_KEY='DIR/tls.key'
///     ready url=https://127.0.0.1:PORT ca=DIR/ca.crt
///
/// and the ready file contains the exports. It is removed when the server ends.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Options {
    /// The directory of the certificate; created if it does not exist
    #[arg(long, value_name = "DIR")]
    serving_dir: PathBuf,

    /// A cluster, and a kubeconfig with its API server; can be repeated
    #[arg(long = "cluster", value_name = "NAME=KUBECONFIG", required = true, value_parser = file_of)]
    clusters: Vec<(String, PathBuf)>,

    /// A file with variables for a shell, which exists while the server is ready
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,

    /// Also end when standard input is closed, for example because the parent process ends
    #[arg(long)]
    until_stdin_closes: bool,
}

impl Options {
    /// Starts the server, and returns when it has ended.
    pub async fn run(self) -> Result<(), HubError> {
        let end = End::of(self.until_stdin_closes)?;
        let ready_file = self.ready_file.as_deref().map(ReadyFile::new).transpose()?;
        let mut clusters = Vec::new();
        for (name, kubeconfig) in &self.clusters {
            clusters.push((name, Upstream::from_kubeconfig(kubeconfig).await?));
        }
        let directory = absolute(&self.serving_dir)?;
        let serving = Self::certificate(&directory)?;
        let server = UserServer::start(&serving, ([127, 0, 0, 1], 0).into(), clusters)?;

        let file = |name| directory.join(name).display().to_string();
        let ready = Ready::default()
            .export("USER_SERVER_URL", &server.url())
            .export("USER_SERVER_CA", &file(AUTHORITY))
            .export("USER_SERVER_CERT", &file(CERTIFICATE))
            .export("USER_SERVER_KEY", &file(KEY));
        let summary = format!("url={} ca={}", server.url(), file(AUTHORITY));
        end::serve(
            end,
            ready_file.as_ref(),
            (&ready, &summary),
            "the user server is ready; stop it with ^C",
        )
        .await?;
        drop(server);
        Ok(())
    }

    /// A new certificate, in the directory.
    fn certificate(directory: &Path) -> Result<ServingCertificate, HubError> {
        std::fs::create_dir_all(directory).map_err(failed("make", directory))?;
        let authority = ServingAuthority::new("local-hub user-server")?;
        let serving = authority.issue(["127.0.0.1", "localhost"])?;
        for (name, contents) in [
            (AUTHORITY, authority.ca_pem().as_str()),
            (CERTIFICATE, serving.tls_crt()),
            (KEY, serving.tls_key()),
        ] {
            write_private(&directory.join(name), contents)?;
        }
        Ok(serving)
    }
}

fn absolute(path: &Path) -> Result<PathBuf, HubError> {
    std::path::absolute(path).map_err(failed("use", path))
}

fn failed(doing: &str, path: &Path) -> impl FnOnce(io::Error) -> HubError {
    let doing = format!("{doing} {}", path.display());
    move |source| HubError::Io { doing, source }
}

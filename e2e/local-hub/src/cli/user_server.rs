//! `local-hub user-server`: the way to managed clusters, in the foreground.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use local_hub::{HubError, ServingAuthority, ServingCertificate, Upstream, UserServer};

use super::end::End;
use super::ready::{Ready, ReadyFile};
use super::say;

/// Files in the serving directory, called as in the Secret that cluster-proxy has.
const AUTHORITY: &str = "ca.crt";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// Lead to the API servers of managed clusters, as cluster-proxy's user server does
///
///     https://ADDRESS:PORT/NAME/PATH
///
/// is PATH at the API server of cluster NAME. Who you are, your own token says,
/// and the cluster decides what you may do there: of the kubeconfigs below only
/// server and authority are used. Everything passes that kubectl can do, --watch
/// and exec too.
///
/// The first start makes an authority and a certificate in the serving
/// directory, and later ones use them again: remove the files for new ones.
///
///     ca.crt    the authority, which clients have to trust
///     tls.crt   the certificate, and behind it the authority
///     tls.key   its key
///
/// tls.crt and tls.key are what cluster-proxy keeps in the Secret
/// cluster-proxy-user-serving-cert.
///
/// When it listens, the last lines of the output are
///
///     export USER_SERVER_URL='https://127.0.0.1:PORT'
///     export USER_SERVER_CA='DIR/ca.crt'
///     export USER_SERVER_CERT='DIR/tls.crt'
///     export USER_SERVER_KEY='DIR/tls.key'
///     ready url=https://127.0.0.1:PORT ca=DIR/ca.crt
///
/// and the ready file holds the exports. It goes when the server does. A bash
/// script starts one that ends when the script does, waits for that file and
/// sources it:
///
///     exec 4> >(exec local-hub user-server --serving-dir "$dir/proxy" \
///         --cluster one="$dir/one/admin.kubeconfig" \
///         --ready-file "$dir/proxy-ready" --until-stdin-closes)
///     until [ -e "$dir/proxy-ready" ]; do kill -0 $! || exit 1; sleep 0.1; done
///     . "$dir/proxy-ready"
///     kubectl --server "$USER_SERVER_URL/one" \
///         --certificate-authority "$USER_SERVER_CA" --token "$token" get pods
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Options {
    /// Where to listen; port 0 is any that is free
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// Where the certificate is, or will be; made if it is not there
    #[arg(long, value_name = "DIR")]
    serving_dir: PathBuf,

    /// One more name that clients may use for the server, such as a Service's; for a new certificate
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,

    /// A cluster, and a kubeconfig that knows its API server; can be repeated
    #[arg(long = "cluster", value_name = "NAME=KUBECONFIG", required = true, value_parser = cluster)]
    clusters: Vec<(String, PathBuf)>,

    /// A file that is there while the server is, with variables for a shell
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,

    /// Also end when standard input does, and so with whoever holds its other end
    #[arg(long)]
    until_stdin_closes: bool,
}

fn cluster(argument: &str) -> Result<(String, PathBuf), String> {
    match argument.split_once('=') {
        Some((name, kubeconfig)) if !name.is_empty() && !kubeconfig.is_empty() => {
            Ok((name.to_owned(), PathBuf::from(kubeconfig)))
        }
        _ => Err("say NAME=KUBECONFIG".to_owned()),
    }
}

impl Options {
    /// Starts the server, and returns when it has ended.
    pub async fn run(self) -> Result<(), HubError> {
        let mut end = End::of(self.until_stdin_closes)?;
        let ready_file = self.ready_file.as_deref().map(ReadyFile::new).transpose()?;
        let mut clusters = Vec::new();
        for (name, kubeconfig) in &self.clusters {
            clusters.push((name, Upstream::from_kubeconfig(kubeconfig).await?));
        }
        let directory = absolute(&self.serving_dir)?;
        let serving = self.certificate(&directory)?;
        let server = UserServer::start(&serving, self.listen, clusters)?;

        let file = |name| directory.join(name).display().to_string();
        let ready = Ready::default()
            .export("USER_SERVER_URL", &server.url())
            .export("USER_SERVER_CA", &file(AUTHORITY))
            .export("USER_SERVER_CERT", &file(CERTIFICATE))
            .export("USER_SERVER_KEY", &file(KEY));
        if let Some(ready_file) = &ready_file {
            ready_file.write(&ready)?;
        }
        ready.print(&format!("url={} ca={}", server.url(), file(AUTHORITY)));
        say("the user server is ready; ^C ends it");
        end.comes().await;
        say("stopping");
        drop(server);
        Ok(())
    }

    /// The certificate in the directory, made if there is none.
    fn certificate(&self, directory: &Path) -> Result<ServingCertificate, HubError> {
        let files = [AUTHORITY, CERTIFICATE, KEY].map(|name| directory.join(name));
        if files.iter().all(|file| file.exists()) {
            return Ok(ServingCertificate::from_pem(read(&files[1])?, read(&files[2])?));
        }
        // Two files of one and one of another make no pair.
        if let Some(left) = files.iter().find(|file| file.exists()) {
            let doing =
                format!("make a certificate in {}: others of its files are gone", directory.display());
            return Err(HubError::Io { doing, source: exists(left) });
        }
        std::fs::create_dir_all(directory).map_err(failed("make", directory))?;
        let authority = ServingAuthority::new("local-hub user-server")?;
        let own = ["127.0.0.1".to_owned(), "localhost".to_owned(), self.listen.ip().to_string()];
        let names: BTreeSet<String> = own.into_iter().chain(self.names.clone()).collect();
        let serving = authority.issue(names)?;
        for (file, contents) in
            files.iter().zip([authority.ca_pem().as_str(), serving.tls_crt(), serving.tls_key()])
        {
            OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(file)
                .and_then(|mut file| file.write_all(contents.as_bytes()))
                .map_err(failed("write", file))?;
        }
        Ok(serving)
    }
}

fn absolute(path: &Path) -> Result<PathBuf, HubError> {
    std::path::absolute(path).map_err(failed("use", path))
}

fn read(path: &Path) -> Result<String, HubError> {
    std::fs::read_to_string(path).map_err(failed("read", path))
}

fn exists(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, format!("{} is there", path.display()))
}

fn failed(doing: &str, path: &Path) -> impl FnOnce(io::Error) -> HubError {
    let doing = format!("{doing} {}", path.display());
    move |source| HubError::Io { doing, source }
}

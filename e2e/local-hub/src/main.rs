//! `local-hub`: a hub in the foreground, for the demo and for looking around.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use local_hub::{CrdSet, HubBuilder, HubError, ListFlavour, LocalHub};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

/// Run Kubernetes control planes on this machine: no containers, no nodes, nothing left behind
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Up(Up),
}

/// Start a hub and keep it until it is interrupted
///
/// A hub is etcd, kube-apiserver and kube-controller-manager, with the CRDs of
/// Open Cluster Management and ClusterProfile. The first start on a machine
/// builds them, which takes minutes; every other takes seconds.
///
/// When the hub is ready, the last lines of the output are
///
///     export KUBECONFIG='DIR/admin.kubeconfig'
///     export LOCAL_HUB_BIN='the directory of kubectl'
///     export LOCAL_HUB_URL='https://127.0.0.1:PORT'
///     ready kubeconfig=DIR/admin.kubeconfig bin=DIRECTORY
///
/// and the file DIR/ready holds the exports. A bash script starts a hub that
/// ends when the script does, waits for that file and sources it:
///
///     exec 3> >(exec local-hub up --dir "$dir" --until-stdin-closes)
///     until [ -e "$dir/ready" ]; do kill -0 $! || exit 1; sleep 0.1; done
///     . "$dir/ready"
///
/// Beside it is a kubeconfig for every user. admin and ocm may do everything;
/// projector, provisioner, syncer, addons and consumer may do what RBAC grants
/// them, at first nothing. DIR/audit.log has a line for each request.
///
/// At the end, however it comes, all programs are killed and DIR is removed.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
struct Up {
    /// How the lists in a ClusterProfile's status merge
    #[arg(long, value_enum, default_value_t)]
    lists: Lists,

    /// The hub's directory, empty or not there yet; by default a new one among the temporary files
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// One more user, or other groups for one of the default users; can be repeated
    #[arg(long = "user", value_name = "NAME[=GROUP,...]")]
    users: Vec<String>,

    /// Install no CRDs: a managed cluster
    #[arg(long)]
    no_crds: bool,

    /// Start no kube-controller-manager: nothing is garbage collected, no namespace ends
    #[arg(long)]
    no_controller_manager: bool,

    /// Also end when standard input does, and so with whoever holds its other end
    #[arg(long)]
    until_stdin_closes: bool,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Lists {
    /// Entry by entry, as cluster-inventory-api ships the CRD
    #[default]
    Map,
    /// As a whole, as Open Cluster Management installs it
    Atomic,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Command::Up(up) = Cli::parse().command;
    match run(up).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("{error:?}"));
            ExitCode::FAILURE
        }
    }
}

async fn run(up: Up) -> Result<(), HubError> {
    let mut end = End::of(up.until_stdin_closes)?;
    say("starting a hub");
    let hub = tokio::select! {
        // Ending while it starts: what has been started is gone when the future is dropped.
        () = end.comes() => return Ok(()),
        hub = up.builder().start() => hub?,
    };
    announce(&hub)?;
    say("the hub is ready; ^C ends it");
    end.comes().await;
    say("stopping");
    drop(hub);
    Ok(())
}

impl Up {
    fn builder(self) -> HubBuilder {
        let lists = match self.lists {
            Lists::Map => ListFlavour::Map,
            Lists::Atomic => ListFlavour::Atomic,
        };
        let mut builder = LocalHub::builder().lists(lists);
        if self.no_crds {
            builder = builder.crds(CrdSet::None);
        }
        if self.no_controller_manager {
            builder = builder.without_controller_manager();
        }
        if let Some(directory) = self.dir {
            builder = builder.directory(directory);
        }
        self.users.iter().fold(builder, |builder, user| {
            let (name, groups) = user.split_once('=').unwrap_or((user, ""));
            let groups: Vec<&str> = groups.split(',').filter(|group| !group.is_empty()).collect();
            builder.user(name, &groups)
        })
    }
}

/// What ends the hub.
struct End {
    interrupt: Signal,
    terminate: Signal,
    stdin: Option<oneshot::Receiver<()>>,
}

impl End {
    fn of(stdin: bool) -> Result<Self, HubError> {
        let listen = |kind| {
            signal(kind).map_err(|source| HubError::Io { doing: "listen for signals".to_owned(), source })
        };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            stdin: stdin.then(stdin_closes),
        })
    }

    async fn comes(&mut self) {
        let stdin = async {
            match &mut self.stdin {
                Some(closed) => drop(closed.await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            () = stdin => {}
        }
    }
}

/// Resolves, by losing its sender, when standard input ends. In a thread that nobody waits for, because a read
/// cannot be cancelled.
fn stdin_closes() -> oneshot::Receiver<()> {
    let (sender, receiver) = oneshot::channel();
    std::thread::spawn(move || {
        // An error is an end as well: nothing more will come.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        drop(sender);
    });
    receiver
}

#[allow(clippy::print_stdout, reason = "this is the program's output")]
fn announce(hub: &LocalHub) -> Result<(), HubError> {
    let kubeconfig = hub.kubeconfig_for(local_hub::ADMIN)?;
    let exports = format!(
        "export KUBECONFIG={}\nexport LOCAL_HUB_BIN={}\nexport LOCAL_HUB_URL={}\n",
        quoted(&kubeconfig.display().to_string()),
        quoted(&hub.bin_dir().display().to_string()),
        quoted(&hub.url()),
    );
    write_at_once(&hub.directory().join("ready"), &exports)
        .map_err(|source| HubError::Io { doing: "write the file `ready`".to_owned(), source })?;
    println!("{exports}ready kubeconfig={} bin={}", kubeconfig.display(), hub.bin_dir().display());
    Ok(())
}

/// Who waits for the file finds all of it.
fn write_at_once(path: &Path, contents: &str) -> io::Result<()> {
    let draft = path.with_extension("draft");
    std::fs::write(&draft, contents)?;
    std::fs::rename(draft, path)
}

/// For a POSIX shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[allow(clippy::print_stderr, reason = "progress, for whoever watches")]
fn say(what: &str) {
    eprintln!("local-hub: {what}");
}

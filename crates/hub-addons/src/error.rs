//! Errors of the commands that run until a signal.

use hub_process::process::ProcessError;
use hub_runtime::observe::health::BindError;
use hub_runtime::observe::secure_metrics::SecureMetricsError;
use hub_runtime::observe::serving_certificate::CertificateError;

use crate::connect::ConnectError;

/// Why a command that runs until a signal ended without one.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("no controller to run: every feature gate is disabled")]
    NothingToRun,
    /// A gate is enabled without a required flag.
    #[error(
        "the feature gate {} requires --credential-rights-subject, the ServiceAccount that receives permissions",
        credential_rights::GATE
    )]
    NoRightsSubject,
    /// Two controllers would write the same entry.
    #[error(
        "--access-provider-name={0:?} is the name of another access provider that is enabled: the names must differ"
    )]
    OneProviderName(String),
    /// A gate is enabled without where its entry leads.
    #[error(
        "the feature gate {} requires --user-server-url and --user-server-ca, where the user server is reached",
        access_provisioner::OWN_IDENTITY_GATE
    )]
    NoUserServer,
    /// Neither a directory nor an authority is set.
    #[error("--certificate-directory or --authority is required")]
    NoCertificate,
    /// A certificate is given but not used.
    #[error(
        "--metrics-certificate-directory is set without --metrics-secure: metrics would be served without TLS"
    )]
    CertificateWithoutTls,
    /// An address cannot be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The certificate for applications cannot be read.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// Metrics over TLS cannot be served.
    #[error(transparent)]
    SecureMetrics(#[from] SecureMetricsError),
    /// The hub cannot be connected to.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Signals cannot be received.
    #[error("cannot listen for signals: {0}")]
    Signal(#[source] std::io::Error),
    /// The process cannot continue.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

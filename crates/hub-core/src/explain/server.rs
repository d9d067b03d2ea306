//! Whether the published server presents a certificate that clients accept.

use super::{CheckResult, Code, Pair, Step};
use crate::access::{PublishedServer, ServerState, Sighting};

impl Pair<'_> {
    /// What a TLS handshake with the published server has shown, if there was one.
    pub(super) fn server_step(&self) -> Option<CheckResult> {
        if self.hub.servers.is_empty() {
            return None;
        }
        let provider = self.hub.access.provider();
        let server = PublishedServer::of_profile(&self.profile()?.observed, provider)?;
        let (_, sighting) = self.hub.servers.iter().find(|(known, _)| *known == server)?;
        let (state, detail) = server.judge(sighting);
        let code = match state {
            ServerState::Ok => Code::ServerChecked,
            ServerState::Unreachable => Code::ServerNotReached,
            _ => Code::ServerCheckFailed,
        };
        let field = format!("status.accessProviders[{provider}].cluster.server");
        let address = format!("{}:{}", server.address.host, server.address.port);
        let step = self.finding(Step::Server, code, self.profile_object());
        Some(match (state, sighting) {
            (ServerState::Ok, Sighting::Presented(presented)) => step
                .field(field, format!("{address}, certificate expires {:.0}", presented.expires)),
            _ => step
                .field(field, address)
                .message(format!("the published server {}: {detail}", state.text()))
                .fix(format!("kubectl clusterprofile test {}", self.key)),
        })
    }
}

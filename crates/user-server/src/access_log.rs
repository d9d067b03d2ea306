//! The access log: one line of JSON for each request, on standard output.

use std::io::Write as _;

use http::Method;
use hub_core::entry::{Caller, Route};
use jiff::Timestamp;
use serde::Serialize;

/// Writes the access log, if it is enabled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AccessLog(pub(crate) bool);

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<&'a str>,
    method: &'a str,
    /// Without the query: that of an exec contains the command, which may contain secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a str>,
    code: u16,
}

impl AccessLog {
    /// Writes the line of a request, as far as it was understood.
    pub(crate) fn write(
        self,
        method: &Method,
        caller: Option<&Caller>,
        route: Option<&Route>,
        code: u16,
    ) {
        if !self.0 {
            return;
        }
        let line = Line {
            time: Timestamp::now().to_string(),
            user: caller.map(|caller| {
                format!("system:serviceaccount:{}:{}", caller.namespace, caller.name)
            }),
            cluster: route.map(|route| route.cluster.as_str()),
            method: method.as_str(),
            path: route.map(|route| route.target.split('?').next().unwrap_or_default()),
            code,
        };
        if let Ok(mut line) = serde_json::to_vec(&line) {
            line.push(b'\n');
            let _ = std::io::stdout().lock().write_all(&line);
        }
    }
}

//! The requests to a hub's API server, from its audit log.
//!
//! The API server's own metrics have no user and count a watch when it ends. The audit log has a line per request,
//! written before the response is complete, so every request with a response is in it. A [`Mark`] is a request that
//! divides the log: requests whose response came before it are in front of it, requests sent after it are behind it.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::access::Access;
use crate::eventually::try_eventually;
use crate::requests::{AuditRequest, Requests};
use crate::{HubError, users};

const PATIENCE: Duration = Duration::from_mins(2);

/// A query parameter that identifies a mark's request, with a number.
const PARAMETER: &str = "local-hub-mark";

/// The state of a hub's audit log.
#[derive(Debug)]
pub(crate) struct Journal {
    file: PathBuf,
    marks: AtomicU64,
    /// The position after the last mark that was found. The next mark is not before it.
    position: AtomicU64,
}

impl Journal {
    pub(crate) fn new(file: PathBuf) -> Self {
        Self { file, marks: AtomicU64::new(0), position: AtomicU64::new(0) }
    }

    fn read_from(&self, position: u64) -> Result<Vec<u8>, HubError> {
        let read = || {
            let mut file = File::open(&self.file)?;
            file.seek(SeekFrom::Start(position))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        read().map_err(|source| HubError::io(format!("read {}", self.file.display()), source))
    }
}

/// A hub's audit log: see [`LocalHub::audit`](crate::LocalHub::audit).
#[derive(Debug)]
pub struct AuditLog<'hub> {
    journal: &'hub Journal,
    access: &'hub Access,
}

/// A position in the audit log.
#[derive(Clone, Copy, Debug)]
pub struct Mark(u64);

impl<'hub> AuditLog<'hub> {
    pub(crate) fn new(journal: &'hub Journal, access: &'hub Access) -> Self {
        Self { journal, access }
    }

    /// Marks the current position. The API server must be running.
    pub async fn mark(&self) -> Result<Mark, HubError> {
        // Read before the request is sent: another task may find a later mark first.
        let from = self.journal.position.load(Ordering::Acquire);
        let number = self.journal.marks.fetch_add(1, Ordering::Relaxed);

        // As a user who is exempt from priority and fairness and not counted.
        let uri = format!("/version?{PARAMETER}={number}");
        let doing = || format!("mark the audit log with {uri}");
        let request = http::Request::get(&uri)
            .body(Vec::new())
            .map_err(|error| HubError::api(doing())(kube::Error::HttpError(error)))?;
        self.access.harness()?.request_text(request).await.map_err(HubError::api(doing()))?;

        // The end of the line is part of the needle: a line may be half written.
        let needle = format!("{uri}\"");
        let behind = try_eventually(&format!("{uri} is in the audit log"), PATIENCE, async || {
            let log = self.journal.read_from(from)?;
            let mut lines = log.split_inclusive(|byte| *byte == b'\n');
            let mut behind = from;
            let found = lines.any(|line| {
                behind += line.len() as u64;
                line.ends_with(b"\n") && contains(line, needle.as_bytes())
            });
            Ok::<_, HubError>(found.then_some(behind))
        })
        .await?;
        self.journal.position.fetch_max(behind, Ordering::Release);
        Ok(Mark(behind))
    }

    /// All requests since the hub was started.
    pub async fn requests(&self) -> Result<Requests, HubError> {
        self.since(&Mark(0)).await
    }

    /// The requests between a mark and now.
    pub async fn since(&self, mark: &Mark) -> Result<Requests, HubError> {
        let now = self.mark().await?;
        self.between(mark, &now)
    }

    /// The requests between two marks.
    pub fn between(&self, from: &Mark, to: &Mark) -> Result<Requests, HubError> {
        let mut log = self.journal.read_from(from.0)?;
        log.truncate(usize::try_from(to.0.saturating_sub(from.0)).unwrap_or(usize::MAX));
        let mut requests = Vec::new();
        for line in log.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let request = serde_json::from_slice(line).and_then(|event| request_of(&event));
            requests.extend(request.map_err(|error| {
                let line = String::from_utf8_lossy(line);
                HubError::Failed(format!("cannot read the audit log: {error} in {line}"))
            })?);
        }
        Ok(Requests::new(requests))
    }
}

fn contains(line: &[u8], needle: &[u8]) -> bool {
    line.windows(needle.len()).any(|window| window == needle)
}

/// The request of an event, <https://kubernetes.io/docs/reference/config-api/apiserver-audit.v1/>, if this is the one
/// by which it is counted: each has exactly one.
fn request_of(event: &Value) -> Result<Option<AuditRequest>, serde_json::Error> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (user, verb) = (text(&event["user"]["username"]), text(&event["verb"]));
    let stage = event["stage"].as_str().unwrap_or_default();
    let counts = match stage {
        // A watch is counted when it starts, not when it ends. An unauthenticated request has this event and no other.
        "ResponseStarted" => verb == "watch" || user.is_empty(),
        // A panic takes the place of completion: a handler gave up, because the client is gone or the server failed.
        "ResponseComplete" | "Panic" => verb != "watch",
        _ => false,
    };
    if !counts || user == users::HARNESS {
        return Ok(None);
    }
    let object = &event["objectRef"];
    let code = event["responseStatus"]["code"].as_u64().and_then(|code| code.try_into().ok());
    Ok(Some(AuditRequest {
        user,
        verb,
        group: text(&object["apiGroup"]),
        resource: text(&object["resource"]),
        subresource: text(&object["subresource"]),
        namespace: text(&object["namespace"]),
        name: text(&object["name"]),
        code: if stage == "Panic" { 500 } else { code.unwrap_or_default() },
        uri: text(&event["requestURI"]),
        user_agent: text(&event["userAgent"]),
        timestamp: serde_json::from_value(event["stageTimestamp"].clone())?,
    }))
}

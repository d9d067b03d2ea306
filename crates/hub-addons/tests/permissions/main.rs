//! Each permission that the chart renders is used: the audit logs of the tests that run the installed program show by
//! which role the API server allowed each request. A permission that none of them used is unnecessary, or untested.
//!
//! `hack/test.sh chart` runs this after those tests, which keep the logs in a directory ([`LOGS`]).

#![cfg(test)]

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

/// The variable with the directory of the audit logs.
const LOGS: &str = "LOCAL_HUB_AUDIT_LOGS";

/// For people, and not for a process of the chart.
const OF_PEOPLE: [&str; 3] = [
    "hub-addons-view-clusterprofiles",
    "hub-addons-clusteraccess-admin",
    "hub-addons-clusteraccess-editor",
];

/// A verb on a resource, allowed by a role. Values decide the names of objects, so only whether there are any counts.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Permission {
    role: String,
    verb: String,
    /// `resource.group`, or `resource/subresource.group`.
    resource: String,
    is_named: bool,
}

impl Permission {
    fn is_used_by(&self, request: &Self) -> bool {
        // The API server checks these beside another permission, and its log does not name them: when a role is bound or
        // changed, and when an object is created by server-side apply, which is the only way to create one by its name.
        let (verb, resource) = match self.verb.as_str() {
            "bind" => ("create", "rolebindings.rbac.authorization.k8s.io"),
            "escalate" => ("patch", self.resource.as_str()),
            "create" if self.is_named => ("patch", self.resource.as_str()),
            verb => (verb, self.resource.as_str()),
        };
        request.role == self.role
            && request.verb == verb
            && request.resource == resource
            // The log of a create has no name.
            && (!self.is_named || request.is_named || self.verb == "bind")
    }
}

/// The part of a role in the chart: credential rights run with the controllers of profiles or alone, and a Role for a
/// consumer has its name.
fn part(role: &str) -> String {
    let role = role.rsplit('/').next().unwrap_or(role);
    let of_consumer = role.split(':').take(2).collect::<Vec<_>>().join(":");
    of_consumer.replace("hub-addons-rights", "hub-addons-profiles")
}

/// Reads what `hack/render.sh` has recorded: titles of objects, and indented rules.
fn rendered(record: &str) -> BTreeSet<Permission> {
    let mut permissions = BTreeSet::new();
    let mut holder = None;
    for line in record.lines() {
        let Some(rule) = line.strip_prefix("  ") else {
            let title = line.strip_prefix("ClusterRole ").or_else(|| line.strip_prefix("Role "));
            holder = title.map(part);
            continue;
        };
        let Some(holder) = holder.as_ref().filter(|it| !OF_PEOPLE.contains(&it.as_str())) else {
            continue;
        };
        let (rule, is_named) =
            rule.split_once(" named ").map_or((rule, false), |(rule, _)| (rule, true));
        let (verbs, resources) = rule.split_once(' ').unwrap();
        let (resources, group) = resources.split_once('.').unwrap_or((resources, ""));
        for verb in verbs.split(',') {
            for resource in resources.split(',') {
                permissions.insert(Permission {
                    role: holder.clone(),
                    verb: verb.to_owned(),
                    resource: format!("{resource}.{group}"),
                    is_named,
                });
            }
        }
    }
    permissions
}

/// Reads a line of an audit log: by which permission RBAC has allowed the request; `None` if it has not.
fn allowed(line: &str) -> Option<Permission> {
    let event: Value = serde_json::from_str(line).unwrap();
    // RBAC: allowed by ClusterRoleBinding "BINDING" of ClusterRole "ROLE" to ServiceAccount "NAME/NAMESPACE"
    let reason = event["annotations"]["authorization.k8s.io/reason"].as_str()?;
    let role = part(reason.split_once(" of ")?.1.split('"').nth(1)?);
    let object = |field: &str| event["objectRef"][field].as_str().unwrap_or_default().to_owned();
    let resource = match object("subresource") {
        none if none.is_empty() => object("resource"),
        subresource => format!("{}/{subresource}", object("resource")),
    };
    let verb = event["verb"].as_str()?.to_owned();
    let resource = format!("{resource}.{}", object("apiGroup"));
    Some(Permission { role, verb, resource, is_named: !object("name").is_empty() })
}

#[test]
fn each_permission_of_the_chart_is_used() {
    let logs = std::env::var_os(LOGS)
        .expect("the audit logs of the tests: set LOCAL_HUB_AUDIT_LOGS, or run hack/test.sh chart");
    let mut requests = BTreeSet::new();
    for log in std::fs::read_dir(logs).unwrap() {
        // A hub that is killed leaves a line unfinished.
        let log = std::fs::read_to_string(log.unwrap().path()).unwrap();
        let lines = log.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        requests.extend(lines.filter_map(allowed));
    }
    let record =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/hub-addons/tests/rendered.txt");
    let permissions = rendered(&std::fs::read_to_string(record).unwrap());
    assert!(permissions.len() > 80, "{permissions:#?}");
    let unused: Vec<_> = permissions
        .iter()
        .filter(|it| !requests.iter().any(|request| it.is_used_by(request)))
        .collect();
    assert!(unused.is_empty(), "no test has used these permissions: {unused:#?}");
}

#[test]
fn a_permission_is_used_by_a_request_that_its_own_role_has_allowed() {
    let permissions = rendered(
        "# default\n\nClusterRole hub-addons-rights\n  list,watch pods/log.group named c\n\
         ClusterRole hub-addons-view-clusterprofiles\n  get x\nDeployment n/a-b\n  run\nRole n/d:e:f\n  create pods\n",
    );
    let shown: Vec<_> =
        permissions.iter().map(|it| format!("{} {} {}", it.role, it.verb, it.resource)).collect();
    let profiles = "hub-addons-profiles";
    assert_eq!(
        shown,
        [
            "d:e create pods.",
            &format!("{profiles} list pods/log.group"),
            &format!("{profiles} watch pods/log.group")
        ]
    );
    let request = |role: &str, verb: &str, name: &str| {
        let reason = format!(
            "RBAC: allowed by RoleBinding \"x/n\" of ClusterRole \"{role}\" to ServiceAccount \"s/n\""
        );
        let object = serde_json::json!({ "resource": "pods", "subresource": "log", "apiGroup": "group", "name": name });
        let annotations = serde_json::json!({ "authorization.k8s.io/reason": reason });
        let event =
            serde_json::json!({ "verb": verb, "objectRef": object, "annotations": annotations });
        allowed(&event.to_string()).unwrap()
    };
    let list = permissions.iter().nth(1).unwrap();
    assert!(list.is_used_by(&request(profiles, "list", "c")));
    for other in
        [request("a", "list", "c"), request(profiles, "watch", "c"), request(profiles, "list", "")]
    {
        assert!(!list.is_used_by(&other), "{other:?}");
    }
    assert_eq!(allowed("{\"annotations\":{\"authorization.k8s.io/decision\":\"forbid\"}}"), None);
}

//! The order of pending writes, as the API server's audit log shows it.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use local_hub::{AuditRequest, LocalHub, ocm};

use super::stage::{self, ARGUMENTS, cluster, converges, joins, team, token};
use crate::support::proxy::addon;
use crate::support::{Addons, USER, WHOLE_FLEET};

/// The number of clusters in the set, which is bound in two namespaces.
const CLUSTERS: usize = 150;
/// The maximum number of status writes for the change of CA before the end of the grant: those in flight, and those
/// until the watch shows that the cluster has left.
const AHEAD: usize = CLUSTERS / 2;

#[tokio::test]
async fn a_cluster_that_leaves_loses_profiles_and_credentials_before_a_change_of_ca_is_written_to_all_others()
{
    let hub = stage::start(LocalHub::builder().without_controller_manager()).await;
    let names: Vec<String> = (0..CLUSTERS).map(|number| format!("c{number}")).collect();
    team(&hub.ocm, "red").await;
    for object in [ocm::namespace("more"), ocm::bound("more", "red")] {
        object.create(&hub.ocm).await.unwrap();
    }
    ocm::create_all(&hub.ocm, names.iter().map(|name| ocm::namespace(name))).await.unwrap();
    ocm::create_all(&hub.ocm, names.iter().map(|name| addon(name))).await.unwrap();
    ocm::create_all(&hub.ocm, names.iter().map(|name| cluster(name, "red"))).await.unwrap();
    joins(&hub.ocm, "leaving", "red").await;
    let process = Addons::beside(&hub, &ARGUMENTS).await;
    converges(&hub.ocm, WHOLE_FLEET).await;

    // The process finds both changes at the same time, however slow this machine is.
    process.signal("STOP").await;
    let mark = hub.audit().mark().await.unwrap();
    stage::renews_certificate(&hub.ocm).await.unwrap();
    cluster("leaving", "").update(&hub.ocm).await.unwrap();
    process.signal("CONT").await;
    converges(&hub.ocm, WHOLE_FLEET).await;

    let writes = hub.audit().since(&mark).await.unwrap().of_user(USER).writes();
    let writes = writes.matching(|request| (200..300).contains(&request.code));
    let is_status = |request: &AuditRequest| request.target() == "clusterprofiles/status";
    let copy = format!("leaving-{}", token("leaving").account().name());
    for namespace in ["red", "more"] {
        for (resource, name) in [("clusterprofiles", "leaving"), ("secrets", &copy)] {
            let end = writes.iter().position(|request| {
                request.verb == "delete"
                    && (&*request.resource, &*request.name, &*request.namespace)
                        == (resource, name, namespace)
            });
            let before = writes[..end.unwrap()].iter().filter(|request| is_status(request)).count();
            assert!(before <= AHEAD, "{before} status writes came before {resource} {namespace}/{name}");
        }
    }
    assert!(writes.count(is_status) >= 2 * CLUSTERS, "every profile was to be written: {writes}");
    process.stop().await;
}

//! How the syncer handles unknown state, and an API server or a namespace that is unavailable, on a real hub.

use crate::support::credentials::{
    cluster, copied, copy, rotated, secrets, token, withdrawn, withheld,
};
use crate::support::shown::sees;
use crate::support::world::{self, create, delete, get, told};
use crate::support::{Addons, Hub, SOON, USER, rights};
use local_hub::eventually;
use local_hub::ocm;
use std::time::Duration;

/// Bindings can no longer be read: what rests on them is unknown after a minute.
#[tokio::test]
async fn while_bindings_cannot_be_read_no_token_and_no_profile_is_written_and_then_everything_converges()
 {
    const BINDINGS: &str = "managedclustersetbindings";
    let mut rules = rights::syncer();
    rules.extend(rights::projector());
    for rule in &mut rules {
        rule.resources
            .iter_mut()
            .for_each(|resources| resources.retain(|resource| resource != BINDINGS));
    }
    let hub = Hub::of(rules).await;
    let permission = hub.grant(USER, rights::bindings()).await.unwrap();
    let gates = "--feature-gates=ClusterProfileAccessProvider=false";
    let (relay, addons) = Addons::relayed(&hub, &[gates]).await;
    let [first, second, third] = ["age-1", "age-2", "age-3"].map(|name| cluster(name, "age"));
    create(&hub.ocm, [ocm::namespace("age"), ocm::cluster_set("age"), ocm::bound("age", "age")])
        .await;
    create(&hub.ocm, [first, second.clone()]).await;
    let (app, leaving) = (token("age-1", "app"), token("age-2", "app"));
    ocm::create_tokens(&hub.ocm, [app.clone(), leaving.clone()]).await.unwrap();
    copied(&hub.ocm, "age", &leaving).await;
    let before = copied(&hub.ocm, "age", &app).await;

    let removed = hub.kubectl(&["delete", "clusterrolebinding", &permission]).await.unwrap();
    assert!(removed.status.success(), "{}", String::from_utf8_lossy(&removed.stderr));
    // The open watches would go on.
    relay.end();
    let unread =
        format!("hub_addons_unread_watches{{controller=\"fleet\",resource=\"{BINDINGS}\"}}");
    addons.measures_within(&unread, 1.0, Duration::from_mins(4)).await;
    let (status, text) = addons.probe("/readyz").await;
    assert_eq!(status, 503);
    assert!(
        text.contains(&format!("[-] fleet: {BINDINGS}: neither listed nor watched since 20")),
        "{text}"
    );
    let crd = world::object(
        "CustomResourceDefinition",
        None,
        &format!("{BINDINGS}.cluster.open-cluster-management.io"),
    );
    let told = told(&hub.ocm, &crd, "KindUnreadable").await;
    assert!(
        told.contains("fleet: managedclustersetbindings") && told.contains("(forbidden)"),
        "{told}"
    );
    // For `explain`, as long as it lasts.
    let lease = world::object("Lease", Some("default"), "hub-addons-credential-syncer");
    let unreadable = async || {
        let lease = get(&hub.ocm, &lease).await.unwrap();
        lease["metadata"]["annotations"]["hub-addons/unreadable"].as_str().map(str::to_owned)
    };
    eventually("the Lease names the kind", SOON, async || {
        unreadable()
            .await
            .is_some_and(|it| it.contains("fleet: managedclustersetbindings: neither listed"))
    })
    .await;

    delete(&hub.ocm, &ocm::bound("age", "age")).await;
    create(&hub.ocm, [third]).await;
    let new = token("age-3", "app");
    new.create(&hub.ocm).await.unwrap();
    rotated(&app, 1).report(&hub.ocm).await.unwrap();
    withheld(&hub.ocm, &new, "NoProfile").await;
    // What other kinds show still ends a grant.
    delete(&hub.ocm, &second).await;
    withdrawn(&hub.ocm, "age", &leaving).await;
    sees(&hub.ocm, "age", &["age-1"]).await;
    assert_eq!(get(&hub.ocm, &copy("age", &app)).await, Some(before));
    assert_eq!(secrets(&hub.ocm, "age").await, ["age-1-app"]);

    hub.grant(USER, rights::bindings()).await.unwrap();
    withdrawn(&hub.ocm, "age", &app).await;
    sees(&hub.ocm, "age", &[]).await;
    addons.measures(&unread, 0.0).await;
    assert_eq!(addons.probe("/readyz").await.0, 200);
    eventually("the Lease names no kind", SOON, async || unreadable().await.is_none()).await;
    create(&hub.ocm, [ocm::bound("age", "age")]).await;
    copied(&hub.ocm, "age", &rotated(&app, 1)).await;
    copied(&hub.ocm, "age", &new).await;
    addons.stop().await;
}

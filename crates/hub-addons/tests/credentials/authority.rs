//! Where tokens are copied: only where a binding grants the cluster and the account opts in, on a real hub.

use crate::support::credentials::{
    copied, hub, narrow, secrets, syncer, team, token, withdrawn, withheld,
};
use local_hub::ocm;

#[tokio::test]
async fn where_accounts_must_name_their_namespaces_one_that_does_not_is_copied_nowhere() {
    let hub = hub().await;
    let _addons = syncer(&hub, &["--require-sync-namespaces"]).await;
    team(&hub.ocm, "strict", &["strict-1"]).await;
    let [silent, named] = ["silent", "named"].map(|account| token("strict-1", account));
    let named = named.annotation(ocm::SYNC_NAMESPACES_ANNOTATION, "strict");
    ocm::create_tokens(&hub.ocm, [silent.clone(), named.clone()]).await.unwrap();
    copied(&hub.ocm, "strict", &named).await;
    let message = withheld(&hub.ocm, &silent, "OutOfScope").await;
    assert!(message.contains("sync-to-namespaces"), "{message}");
    assert_eq!(secrets(&hub.ocm, "strict").await, ["strict-1-named"]);

    narrow(&hub.ocm, &silent, Some("strict")).await;
    copied(&hub.ocm, "strict", &silent).await;
    narrow(&hub.ocm, &named, None).await;
    withdrawn(&hub.ocm, "strict", &named).await;
}

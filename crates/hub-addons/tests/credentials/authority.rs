//! Where tokens are copied: only where a binding grants the cluster and the account opts in, on a real hub.

use crate::support::credentials::{copied, narrow, secrets, strict_scene, team, token, withdrawn};
use local_hub::ocm;

#[tokio::test]
async fn where_accounts_must_name_their_namespaces_one_that_does_not_is_copied_nowhere() {
    let scene = strict_scene().await;
    team(&scene.ocm, "strict", &["strict-1"]).await;
    let [silent, named] = ["silent", "named"].map(|account| token("strict-1", account));
    let named = named.annotation(ocm::SYNC_NAMESPACES_ANNOTATION, "strict");
    ocm::create_tokens(&scene.ocm, [silent.clone(), named.clone()]).await.unwrap();
    copied(&scene.ocm, "strict", &named).await;
    let message = crate::support::credentials::withheld(&scene.ocm, &silent, "OutOfScope").await;
    assert!(message.contains("sync-to-namespaces"), "{message}");
    assert_eq!(secrets(&scene.ocm, "strict").await, ["strict-1-named"]);

    narrow(&scene.ocm, &silent, Some("strict")).await;
    copied(&scene.ocm, "strict", &silent).await;
    narrow(&scene.ocm, &named, None).await;
    withdrawn(&scene.ocm, "strict", &named).await;
}

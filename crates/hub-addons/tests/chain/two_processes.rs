//! An application and its clusters, with profiles and credentials in separate processes, as they run beside OCM's own
//! counterpart of the other; connections use cluster-proxy under the names of its addon.

use crate::support::SOON;
use crate::support::chain::{CLUSTERS, UNAUTHORIZED, fails, in_two_processes, lists, locked_out};
use local_hub::ocm;

#[tokio::test]
async fn a_token_is_copied_wherever_its_cluster_is_granted_and_works_through_cluster_proxy_s_own_name() {
    let stage = in_two_processes().await;
    stage.account("everywhere", None).await;
    for namespace in ["first", "second"] {
        let application = stage.application(namespace, "everywhere").await;
        stage.bind(namespace, &CLUSTERS).await;
        for cluster in CLUSTERS {
            let kubectl = application.reaches(cluster).await;
            let server = &application.stanza(cluster).await["server"];
            let name = "cluster-proxy-addon-user.open-cluster-management-addon:9092";
            assert_eq!(*server, format!("https://{name}/{cluster}"));
            fails(&kubectl, &["get", "configmaps"], "Forbidden").await;
        }
    }
}

#[tokio::test]
async fn a_watch_and_a_rotation_know_nothing_of_the_processes() {
    let stage = in_two_processes().await;
    let application = stage.bound_application("rotates", &CLUSTERS).await;
    let kubectl = application.reaches("one").await;
    let mut watch = kubectl.start(&["get", "namespaces", "--watch", "--output=name"]).await.unwrap();
    watch.line("what is there", SOON, |line| line == "namespace/only-in-one").await.unwrap();
    let at_cluster = stage.cluster("one").client_as("ocm").await.unwrap();
    ocm::namespace("new").create(&at_cluster).await.unwrap();
    watch.line("the new namespace", SOON, |line| line == "namespace/new").await.unwrap();

    stage.agent("one").await.delete_service_account(application.account()).await.unwrap();
    fails(&kubectl, &["get", "namespaces"], UNAUTHORIZED).await;
    stage.rotate("one", application.account()).await;
    lists(&kubectl, "one").await;
}

#[tokio::test]
async fn an_application_whose_binding_is_deleted_is_locked_out_by_two_processes_that_each_do_their_part() {
    let stage = in_two_processes().await;
    stage.account("leaver", Some("leaves")).await;
    let application = stage.application("leaves", "leaver").await;
    let binding = stage.bind("leaves", &CLUSTERS).await;
    let kubectl = application.reaches("one").await;
    application.reaches("two").await;
    locked_out(&stage, &application, &kubectl, &binding).await;

    // And again, as before.
    binding.create(&stage.ocm).await.unwrap();
    lists(&kubectl, "one").await;

    let requests = stage.chain.hub.audit().requests().await.unwrap();
    for (user, writes) in [
        (stage.chain.profiles, "clusterprofiles, rolebindings, clusterroles"),
        (stage.chain.syncer, "secrets, managedserviceaccounts"),
    ] {
        let of_user = requests.of_user(user);
        let writes = format!("{writes}, leases, events");
        let others = of_user.writes().matching(|request| !writes.contains(&request.resource));
        assert!(others.is_empty(), "{others}");
        // A watch may start a moment before its permission is effective.
        assert_eq!(of_user.writes().count(|request| request.code == 403), 0, "{of_user}");
    }
}

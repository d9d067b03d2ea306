//! Which names of accounts tokens are watched by.

use hub_api::names::AccountKey;
use hub_core::fleet::Fleet;
use hub_core::token_names::{MAX, MAX_OF_A_CLUSTER, token_names};

use crate::support::credential::account_key;
use crate::support::{arrive, binding, exclusive, member};

fn fleet(clusters: &[String]) -> Fleet {
    let mut fleet = Fleet::default();
    for object in [exclusive("prod"), binding("team", "prod"), member("elsewhere", "dev")] {
        arrive(&mut fleet, &object);
    }
    for cluster in clusters {
        arrive(&mut fleet, &member(cluster, "prod"));
    }
    fleet
}

fn accounts(cluster: &str, count: usize) -> Vec<AccountKey> {
    (0..count).map(|number| account_key(cluster, &format!("{cluster}-{number:04}"))).collect()
}

#[test]
fn only_accounts_of_granted_clusters_add_names() {
    let asking =
        [account_key("c1", "app"), account_key("c2", "app"), account_key("elsewhere", "other")];
    let found = token_names(&fleet(&["c1".to_owned(), "c2".to_owned()]), &asking);
    assert_eq!(found.names, ["app".into()].into());
    assert_eq!(found.left_out, [].into());
    assert_eq!(token_names(&Fleet::default(), &asking).names, [].into());
}

#[test]
fn a_cluster_with_many_names_takes_none_from_another() {
    let mut asking = accounts("a", 1000);
    asking.extend([account_key("b", "a-0999"), account_key("b", "app")]);
    let found = token_names(&fleet(&["a".to_owned(), "b".to_owned()]), &asking);
    assert_eq!(found.names.len(), MAX_OF_A_CLUSTER + 2);
    assert!(found.names.contains("app"));
    assert_eq!(
        found.left_out.len(),
        1000 - MAX_OF_A_CLUSTER - 1,
        "one is watched for the other cluster"
    );
}

#[test]
fn names_are_limited_and_the_accounts_beyond_the_limit_are_known() {
    let clusters: Vec<String> = (0..20).map(|number| format!("c{number:02}")).collect();
    let asking: Vec<_> =
        clusters.iter().flat_map(|cluster| accounts(cluster, MAX_OF_A_CLUSTER)).collect();
    let found = token_names(&fleet(&clusters), &asking);
    assert_eq!(found.names.len(), MAX);
    assert_eq!(found.left_out.len(), asking.len() - MAX);
}

//! Why a namespace cannot see or reach a cluster.

mod laws;
mod recorded;
mod scene;

use hub_core::explain::{Status, Step};

use self::scene::Scene;

#[test]
fn where_everything_is_in_order_every_step_says_so() {
    let explanation = Scene::in_order().explained();
    assert_eq!(explanation.mark(), Status::Ok, "{explanation:#?}");
    let mut steps: Vec<_> = explanation.findings.iter().map(|finding| finding.step).collect();
    steps.dedup();
    // No object asks for access there, and no application has an identity of its own.
    let left_out = [Step::ClusterAccess, Step::OwnIdentity];
    let of_copies: Vec<_> =
        Step::ALL.iter().copied().filter(|step| !left_out.contains(step)).collect();
    assert_eq!(steps, of_copies);
    assert!(explanation.findings.iter().all(|finding| !finding.object.name.is_empty()));
}

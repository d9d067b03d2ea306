//! The syncer beside the garbage collector and the projector, on a real hub.

use crate::support::credentials::{collected_scene, copied, profile, team, token};
use crate::support::world::delete;

#[tokio::test]
async fn a_profile_recreated_at_once_owns_the_copy_again_though_others_collect_it() {
    let scene = collected_scene().await;
    team(&scene.ocm, "collected", &["collected-1"]).await;
    let token = token("collected-1", "app");
    token.create(&scene.ocm).await.unwrap();
    copied(&scene.ocm, "collected", &token).await;
    for _ in 0..8 {
        delete(&scene.ocm, &profile("collected", "collected-1")).await;
        profile("collected", "collected-1").create(&scene.ocm).await.unwrap();
        copied(&scene.ocm, "collected", &token).await;
    }
    // A further copy, garbage-collected late, would be recreated as well: the final state is right.
    scene.caught_up().await;
    copied(&scene.ocm, "collected", &token).await;
}

//! Whom the user server and a cluster take a caller for. Which requests are refused is in `rules/entry`.

use std::time::Duration;

use local_hub::eventually;

use super::{AUDIENCE, Application, HOUR, Scene};
use crate::support::SOON;

/// A path on a cluster that the application may list.
const PATH: &str = "one/api/v1/namespaces";

pub async fn refused(scene: &Scene, application: &Application<'_>) {
    let asks = async |path: &str, token: &str, lines: &str| {
        let response = application.raw().await.asks(path, token, lines).await;
        let code = response.split(' ').nth(1).unwrap_or_default().to_owned();
        (code, response)
    };
    let (code, response) = asks(PATH, &application.token, "").await;
    assert!(code == "200" && response.contains("only-in-one"), "{response}");
    tokens(scene, application, &asks).await;
    let token = &application.token;
    // A user with all permissions would be allowed to.
    let (code, response) = asks(
        "one/api/v1/secrets",
        token,
        "X-Remote-User: admin\r\nX-Remote-Group: system:masters\r\n",
    )
    .await;
    assert_eq!(code, "403", "{response}");
    let user = "cluster:hub:system:serviceaccount:own-team:application";
    assert!(response.contains(user), "the cluster names the caller: {response}");
}

/// Every token but the application's own for this audience.
async fn tokens(
    scene: &Scene,
    application: &Application<'_>,
    asks: &impl AsyncFn(&str, &str, &str) -> (String, String),
) {
    let hub = scene.hub();
    let other = hub.service_account("own-other", "application").await.unwrap();
    let others = other.token_for(AUDIENCE, HOUR).await.unwrap();
    let (code, response) = asks(PATH, others.expose(), "").await;
    assert!(code == "403" && response.contains("namespace own-other"), "{response}");
    for (what, token) in [
        ("for the API server", application.access.token().expose().to_owned()),
        (
            "for another audience",
            application.access.token_for("other", HOUR).await.unwrap().expose().to_owned(),
        ),
        ("that nobody issued", "a.b.c".to_owned()),
    ] {
        let (code, response) = asks(PATH, &token, "").await;
        assert_eq!(code, "401", "a token {what}: {response}");
        assert!(!response.contains(&token), "{response}");
    }
    // After the time for which a review counts.
    let leaver = hub.service_account("own-team", "leaver").await.unwrap();
    let token = leaver.token_for(AUDIENCE, HOUR).await.unwrap();
    let reviewed = |code: &str| code == "200" || code == "403";
    assert!(reviewed(&asks(PATH, token.expose(), "").await.0));
    leaver.delete().await.unwrap();
    let long = SOON.max(Duration::from_secs(30));
    eventually("the token of a deleted ServiceAccount is refused", long, async || {
        asks(PATH, token.expose(), "").await.0 == "401"
    })
    .await;
}

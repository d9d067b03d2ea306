//! What the user server refuses.

use std::time::Duration;

use local_hub::eventually;
use tokio::net::TcpStream;

use super::super::tunnel::{PARTS, lists_all};
use super::{AUDIENCE, Application, HOUR, Scene};
use crate::support::SOON;
use crate::support::chain::CLUSTERS;

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

    for (path, expected) in [
        ("one/../two/api/v1/namespaces", "400"),
        ("one/%2e%2e/two/api/v1/namespaces", "400"),
        ("one%2Fapi/v1/namespaces", "400"),
        ("one:443/api/v1/namespaces", "400"),
        ("", "404"),
        ("three/api/v1/namespaces", "403"),
    ] {
        let (code, response) = asks(path, token, "").await;
        assert_eq!(code, expected, "{path}: {response}");
        assert!(response.contains("hub-addons user server: "), "{response}");
    }
    for (lines, expected) in [
        ("Impersonate-User: system:admin\r\n", "400"),
        ("Impersonate-Group: system:masters\r\n", "400"),
        ("Connection: Impersonate-User\r\nImpersonate-User: system:admin\r\n", "400"),
        (&format!("Authorization: Bearer {token}\r\n"), "400"),
        // It is not the caller's to say: the cluster sees the caller.
        ("X-Remote-User: system:admin\r\nX-Remote-Group: system:masters\r\n", "200"),
    ] {
        let (code, response) = asks(PATH, token, lines).await;
        assert_eq!(code, expected, "{lines}: {response}");
    }
    // A user with all permissions would be allowed to.
    let (code, response) =
        asks("one/api/v1/secrets", token, "X-Remote-User: admin\r\nX-Remote-Group: system:masters\r\n").await;
    assert_eq!(code, "403", "{response}");
    let user = "cluster:hub:system:serviceaccount:own-team:application";
    assert!(response.contains(user), "the cluster names the caller: {response}");
    for head in [
        format!("CONNECT one:443 HTTP/1.1\r\nAuthorization: Bearer {token}\r\n"),
        format!("GET https://two/one/api/v1/namespaces HTTP/1.1\r\nAuthorization: Bearer {token}\r\n"),
        format!("GET http://169.254.169.254/one/api HTTP/1.1\r\nAuthorization: Bearer {token}\r\n"),
    ] {
        let response = application.raw().await.sends(&head).await;
        assert!(response.starts_with("HTTP/1.1 400 "), "{head}: {response}");
    }
}

/// Clients that hold what they do not use delay no other.
pub async fn selfish(scene: &Scene, application: &Application<'_>) {
    let mut idle = Vec::new();
    for _ in 0..10_000 {
        idle.push(TcpStream::connect(scene.address).await.unwrap());
    }
    // Each response has several megabytes.
    let mut unread = Vec::new();
    for _ in 0..20 {
        unread.push(application.raw().await.starts("one/api/v1/configmaps", &application.token).await);
    }
    for cluster in CLUSTERS {
        let path = format!("{cluster}/api/v1/namespaces");
        let response = application.raw().await.asks(&path, &application.token, "").await;
        assert!(response.contains(&format!("only-in-{cluster}")), "{response}");
    }
    lists_all(&application.kubectl("one"), PARTS).await;
    drop((idle, unread));
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

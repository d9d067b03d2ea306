//! Events are repeated while their findings persist.

use std::time::Duration;

use http::Method;
use hub_core::priority::Priority;

use crate::api::{Api, failure};
use crate::profiles::{exists, key, one};
use crate::{Running, eventually};

const EVENTS: &str = "POST /apis/events.k8s.io/v1/namespaces/app/events";

fn is_create_of_profile(method: &Method, path: &str) -> bool {
    *method == Method::POST && path.ends_with("/clusterprofiles")
}

#[tokio::test(start_paused = true)]
async fn an_event_is_repeated_for_as_long_as_its_finding_persists() {
    let api = Api::default();
    api.refuse(|method, path| is_create_of_profile(method, path).then(|| (403, failure(403, "Forbidden"))));
    let running = Running::start(&api, None, &[one()]);
    eventually("it is published", || api.requests(EVENTS).len() == 1).await;
    for hour in 1..=6 {
        let before = api.requests(EVENTS).len();
        tokio::time::sleep(Duration::from_hours(1)).await;
        let published = api.requests(EVENTS).len() - before;
        assert!((1..=3).contains(&published), "{published} in hour {hour}");
    }
    api.allow();
    running.shared.profiles.queue.add_with(key("c1"), Priority::Start);
    eventually("the finding is over", || exists(&api)).await;
    let before = api.requests(EVENTS).len();
    tokio::time::sleep(Duration::from_hours(2)).await;
    assert_eq!(api.requests(EVENTS).len(), before);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_event_that_cannot_be_published_for_an_hour_is_published_afterwards() {
    for code in [403, 503] {
        let api = Api::default();
        api.refuse(move |method, path| {
            let refused = (403, failure(403, "Forbidden"));
            let event = (code, failure(code, "Trouble"));
            if is_create_of_profile(method, path) {
                Some(refused)
            } else {
                path.ends_with("/events").then_some(event)
            }
        });
        let running = Running::start(&api, None, &[one()]);
        eventually("it is tried", || !api.requests(EVENTS).is_empty()).await;
        tokio::time::sleep(Duration::from_hours(1)).await;
        let tried = api.requests(EVENTS).len();
        assert!((3..=70).contains(&tried), "{tried} requests");
        api.refuse(|method, path| {
            is_create_of_profile(method, path).then(|| (403, failure(403, "Forbidden")))
        });
        tokio::time::sleep(Duration::from_hours(1)).await;
        let text = running.shared.host.metrics.text();
        let is_zero = text.contains("hub_addons_events_total{result=\"published\"} 0");
        assert!(!is_zero, "{code}");
        running.stop().await.unwrap();
    }
}

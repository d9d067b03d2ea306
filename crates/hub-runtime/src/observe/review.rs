//! Reviews on the hub: of the tokens that clients send, and of what their users may do. Anyone can send tokens, and each
//! review costs the hub a request.

use std::fmt::Debug;
use std::time::Duration;

use kube::api::PostParams;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::flow::pace::Pace;
use crate::write::error::summary;

/// Timeout of a review.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The pace of reviews of tokens that are not known to be valid.
pub const UNKNOWN_TOKENS: Pace = Pace::new(10, Duration::from_millis(250));

/// Creates a review, and returns it with its result.
///
/// # Errors
///
/// The hub has not reviewed it: the cause.
pub async fn review<K>(client: &Client, review: &K) -> Result<K, String>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    let api = Api::<K>::all(client.clone());
    match timeout(TIMEOUT, api.create(&PostParams::default(), review)).await {
        Ok(reviewed) => reviewed.map_err(|error| summary(&error)),
        Err(_) => Err("timed out".to_owned()),
    }
}

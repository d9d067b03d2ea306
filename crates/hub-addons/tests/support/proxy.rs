//! The inputs of the access-provider provisioner from OCM's cluster-proxy: its configuration, addons, and the Secret
//! with its serving certificate; and the entries that profiles publish.

use std::collections::BTreeSet;

use k8s_openapi::ByteString;
use kube::Client;
use kube::api::ListParams;
use local_hub::{Flavour, LocalHub, Requests, ocm};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use serde_json::{Value, json};

use super::shown::{profile, profiles, provider};
use super::{Addons, Hub, WHOLE_FLEET, credentials, rights, world};

/// The name of our entry.
pub const NAME: &str = "open-cluster-management";
/// The default namespace of the proxy.
pub const HOME: &str = "proxy";
/// The namespace of the profiles.
pub const TEAM: &str = "team";
/// Starts the provisioner without the projector.
pub const ALONE: &str = "--feature-gates=ClusterProfile=false,ClusterProfileCredSyncer=false";
/// The number of successful status writes.
pub const WRITTEN: &str =
    "hub_addons_writes_total{resource=\"clusterprofiles\",verb=\"patch_status\",result=\"ok\"}";

/// A certificate authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// An authority with this name and a new key.
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_after = rcgen::date_time_ymd(4000, 1, 1);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Its certificate.
    pub fn pem(&self) -> String {
        self.0.pem().replace('\r', "")
    }

    /// A new serving certificate followed by this authority's, as the addon writes them.
    pub fn chain(&self) -> String {
        let mut params = CertificateParams::new(["proxy.example".to_owned()]).unwrap();
        params.use_authority_key_identifier_extension = true;
        let leaf = params.signed_by(&KeyPair::generate().unwrap(), &self.0).unwrap();
        format!("{}{}", leaf.pem(), self.pem())
    }
}

/// The cluster-proxy's configuration.
pub fn configuration(namespace: &str) -> ocm::Object {
    let gvk = ("proxy.open-cluster-management.io", "v1alpha1", "ManagedProxyConfiguration");
    let spec = json!({
        "authentication": { "signer": { "type": "SelfSigned" } },
        "proxyServer": { "namespace": namespace, "image": "server" },
        "proxyAgent": { "image": "agent" },
    });
    ocm::Object::new(gvk, "managedproxyconfigurations", None, "cluster-proxy").field("spec", spec)
}

/// The addon on a cluster.
pub fn addon(cluster: &str) -> ocm::Object {
    let gvk = ("addon.open-cluster-management.io", "v1alpha1", "ManagedClusterAddOn");
    ocm::Object::new(gvk, "managedclusteraddons", Some(cluster), "cluster-proxy")
        .field("spec", json!({}))
}

/// The Secret with the proxy's serving certificate.
pub fn serving(namespace: &str, certificates: &str) -> ocm::Object {
    world::object("Secret", Some(namespace), "cluster-proxy-user-serving-cert")
        .field("type", json!("Opaque"))
        .field("stringData", json!({ "tls.crt": certificates }))
}

/// A profile as another process's projector creates it, without irrelevant parts.
pub fn projected(namespace: &str, cluster: &str) -> ocm::Object {
    credentials::profile(namespace, cluster).status("version", json!({ "kubernetes": "v1.36.3" }))
}

/// A hub for the provisioner alone.
pub async fn hub(lists: Flavour) -> Hub {
    let builder = LocalHub::builder().without_controller_manager().flavour(lists);
    Hub::start(builder, rights::provisioner()).await
}

/// Installs the proxy in its default namespace, with a certificate of this authority, and the addon on these clusters.
pub async fn install(hub: &Hub, authority: &Authority, clusters: &[&str]) {
    world::ensure_namespace(&hub.ocm, HOME).await;
    world::create(&hub.ocm, [serving(HOME, &authority.chain()), configuration(HOME)]).await;
    ocm::create_all(&hub.ocm, clusters.iter().map(|cluster| ocm::namespace(cluster)))
        .await
        .unwrap();
    ocm::create_all(&hub.ocm, clusters.iter().map(|cluster| addon(cluster))).await.unwrap();
}

/// The profiles of these clusters, in the team's namespace.
pub async fn project(hub: &Hub, clusters: &[&str]) {
    ocm::namespace(TEAM).create(&hub.ocm).await.unwrap();
    ocm::create_all(&hub.ocm, clusters.iter().map(|cluster| projected(TEAM, cluster)))
        .await
        .unwrap();
}

/// Starts the provisioner alone, and waits until it works.
pub async fn provisioner(hub: &Hub, arguments: &[&str]) -> Addons {
    Addons::start(hub, &[&[ALONE], arguments].concat()).await
}

/// The server of a cluster behind a proxy in this namespace.
pub fn server(namespace: &str, cluster: &str) -> String {
    format!("https://cluster-proxy-addon-user.{namespace}:9092/{cluster}")
}

/// Our whole entry without its trust anchors.
pub fn entry(server: &str, cluster: &str) -> Value {
    json!({ "name": NAME, "cluster": {
        "server": server,
        "extensions": [
            { "name": "client.authentication.k8s.io/exec", "extension": { "clusterName": cluster } },
        ],
    } })
}

/// The certificates of these authorities.
pub fn anchors_of(authorities: &[&Authority]) -> BTreeSet<String> {
    authorities.iter().map(|authority| authority.pem()).collect()
}

/// Removes the trust anchors from an entry, and checks that each is unique.
pub fn take_anchors(entry: &mut Value) -> BTreeSet<String> {
    let Some(cluster) = entry["cluster"].as_object_mut() else { return BTreeSet::new() };
    let data = cluster.remove("certificate-authority-data").unwrap_or_default();
    let text = String::from_utf8(serde_json::from_value::<ByteString>(data).unwrap_or_default().0)
        .unwrap();
    let list: Vec<String> =
        text.split_inclusive("-----END CERTIFICATE-----\n").map(str::to_owned).collect();
    let set: BTreeSet<String> = list.iter().cloned().collect();
    assert_eq!(set.len(), list.len(), "duplicate trust anchor: {text}");
    set
}

/// The trust anchors that a profile publishes.
pub fn anchors_in(profile: &Value) -> BTreeSet<String> {
    take_anchors(&mut provider(profile, NAME).clone())
}

/// Whether a profile has our entry, exactly this one.
pub fn has_entry(profile: &Value, server: &str, cluster: &str, authorities: &[&Authority]) -> bool {
    let mut shown = provider(profile, NAME).clone();
    let anchors = take_anchors(&mut shown);
    anchors == anchors_of(authorities) && shown == entry(server, cluster)
}

/// Waits until the team's profile of a cluster has exactly the entry of a proxy in this namespace.
pub async fn publishes(hub: &Hub, cluster: &str, home: &str, authorities: &[&Authority]) -> Value {
    let server = server(home, cluster);
    profile(&hub.ocm, (TEAM, cluster), "has its entry", |profile| {
        has_entry(profile, &server, cluster, authorities)
    })
    .await
}

/// Waits until the team's profile of a cluster has no entry of ours.
pub async fn publishes_nothing(hub: &Hub, cluster: &str) -> Value {
    profile(&hub.ocm, (TEAM, cluster), "has no entry", |profile| provider(profile, NAME).is_null())
        .await
}

/// All profiles of a namespace.
pub async fn all(client: &Client, namespace: &str) -> Vec<Value> {
    let list = profiles(client, namespace).list(&ListParams::default()).await.unwrap();
    list.into_iter().map(|profile| serde_json::to_value(profile).unwrap()).collect()
}

/// The requests of a user, without those for its Lease and Events.
pub fn requests_of(user: &str, requests: &Requests) -> Requests {
    requests
        .of_user(user)
        .matching(|request| !["leases", "events"].contains(&request.resource.as_str()))
}

/// Waits until the program has made this many status writes since it started.
pub async fn has_written(addons: &Addons, writes: u32) {
    addons.measures_within(WRITTEN, f64::from(writes), WHOLE_FLEET).await;
}

/// The series of the gauge that counts profiles by the state of our entry.
pub fn state(source: &str, state: &str) -> String {
    format!("hub_addons_access_providers{{source=\"{source}\",state=\"{state}\"}}")
}

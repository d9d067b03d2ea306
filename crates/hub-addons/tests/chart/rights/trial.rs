//! A hub with the chart and its programs running, from whose roles one permission after the other is removed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use local_hub::ocm::ServiceAccountToken;
use local_hub::{Flavour, LocalHub, Mark, eventually, ocm};
use serde_json::{Value, json};

use super::right::{self, Right, rendered};
use crate::support::chart::{self, NAMESPACE, RELEASE, in_force, install};
use crate::support::credentials::{copied, copy, rotated, token, withheld};
use crate::support::proxy::{self, Authority, HOME, NAME, TEAM, addon, anchors_in};
use crate::support::shown::{profile, provider};
use crate::support::world::{self, get, merge};
use crate::support::{Addons, Hub, SOON};

/// The set that is bound in the team's namespace.
pub const FLEET: &str = "fleet";
/// A cluster that exists from the beginning, with a token.
pub const BASE: &str = "base";
/// The name of the direct access provider.
const DIRECT: &str = "open-cluster-management-direct";
/// The ConfigMap of a static source.
const FRONT: &str = "front";

/// An installation, compared with the default one.
#[derive(Default)]
pub struct Installation {
    pub values: &'static [&'static str],
    pub components: &'static [&'static str],
    /// Policies to wait for: a test that ran before them would not notice that they allow the writes.
    pub policies: &'static [&'static str],
    pub direct: bool,
    pub from_config_map: bool,
}

/// The removal of a permission and its restoration.
pub struct Trial {
    pub hub: Hub,
    installation: Installation,
    rights: Vec<Right>,
    running: BTreeMap<&'static str, Addons>,
    base: ServiceAccountToken,
    names: usize,
    /// The component and permission of this trial.
    pub component: &'static str,
    pub right: Right,
    /// When it was removed.
    mark: Mark,
    /// A prefix for this trial's own objects.
    pub name: String,
}

impl Trial {
    /// Installs the chart and starts everything.
    pub async fn of(installation: Installation) -> Self {
        let builder = LocalHub::builder().without_controller_manager().flavour(Flavour::Map);
        let hub = Hub::start(builder, Vec::new()).await;
        let authority = Authority::new("first");
        proxy::install(&hub, &authority, &[BASE]).await;
        config_map(&authority).create(&hub.ocm).await.unwrap();
        // The user of Open Cluster Management here also makes the invalid changes of users.
        let home = "accessProvider.clusterProxy.namespace=proxy";
        let values = [&[home, "policies.clusterManagers.users={ocm}"], installation.values].concat();
        install(&hub, &values).await;
        in_force(&hub, installation.policies).await;
        let rights = rendered(&hub.ocm).await;
        let mut this = Self {
            mark: hub.audit().mark().await.unwrap(),
            hub,
            running: BTreeMap::new(),
            base: token(BASE, "app"),
            names: 0,
            component: installation.components[0],
            right: rights[0].clone(),
            name: String::new(),
            rights,
            installation,
        };
        let ocm = &this.hub.ocm;
        world::create(ocm, [ocm::namespace(TEAM), ocm::cluster_set(FLEET), this.cluster(BASE, FLEET)]).await;
        this.base.create(ocm).await.unwrap();
        ocm::bound(TEAM, FLEET).create(ocm).await.unwrap();
        for component in this.installation.components {
            let addons = chart::start(&this.hub, component).await;
            this.running.insert(component, addons);
        }
        if !this.runs("rights") {
            this.has_entry(BASE).await;
        }
        if this.runs("credentials") {
            copied(&this.hub.ocm, TEAM, &this.base).await;
        }
        if this.rights.iter().any(|right| right.verb == "bind") {
            this.is_granted(TEAM).await;
            this.becomes_named("app").await;
        }
        this
    }

    /// The Lease by which one replica of the component leads.
    pub fn lease(&self) -> ocm::Object {
        let rights = self.rights_of(self.component).into_iter();
        let name = rights.filter(|right| right.resource == "leases").find_map(|right| right.name).unwrap();
        ocm::Object::new(("coordination.k8s.io", "v1", "Lease"), "leases", Some(NAMESPACE), &name)
    }

    /// Returns the time of the last renewal of the syncer's Lease, after renewing it if no syncer runs.
    pub async fn syncer_renews(&self) -> Value {
        const NAME: &str = "hub-addons-credential-syncer";
        let lease = ("coordination.k8s.io", "v1", "Lease");
        let lease = ocm::Object::new(lease, "leases", Some(NAMESPACE), NAME);
        if !self.runs("credentials") {
            let now = MicroTime(Timestamp::now());
            let spec = json!({ "holderIdentity": "syncer", "leaseDurationSeconds": 15, "renewTime": now });
            if get(&self.hub.ocm, &lease).await.is_none() {
                lease.clone().field("spec", json!({})).create(&self.hub.ocm).await.unwrap();
            }
            let metadata = json!({ "annotations": { "hub-addons/cleared-namespaces": self.name } });
            merge(&self.hub.ocm, &lease, &json!({ "metadata": metadata, "spec": spec })).await;
        }
        get(&self.hub.ocm, &lease).await.unwrap_or_default()["spec"]["renewTime"].clone()
    }

    /// Waits until the syncer has renewed its Lease several times.
    pub async fn syncer_runs(&self) {
        let renewals = Mutex::new(BTreeSet::new());
        eventually("the syncer runs", SOON, async || {
            let renewal = self.syncer_renews().await.to_string();
            let mut renewals = renewals.lock().unwrap();
            renewals.insert(renewal);
            renewals.len() > 3
        })
        .await;
    }

    /// Whether a component runs.
    fn runs(&self, component: &str) -> bool {
        self.installation.components.contains(&component)
    }

    /// The permissions of a component.
    pub fn rights_of(&self, component: &str) -> Vec<Right> {
        self.rights.iter().filter(|right| right.is_of(component)).cloned().collect()
    }

    /// A new name.
    pub fn fresh(&mut self) -> String {
        self.names += 1;
        format!("n{}", self.names)
    }

    /// Begins the trial of a permission.
    pub fn begin(&mut self, component: &'static str, right: Right) {
        (self.component, self.right, self.name) = (component, right, self.fresh());
    }

    pub fn process(&self) -> &Addons {
        &self.running[self.component]
    }

    /// Removes the permission.
    pub async fn take(&mut self) {
        right::take(&self.hub.ocm, &self.rights, &self.right, self.component).await;
        self.mark = self.hub.audit().mark().await.unwrap();
    }

    /// Stops the process, if it runs.
    pub async fn stop(&mut self) {
        if let Some(running) = self.running.remove(self.component) {
            running.stop().await;
        }
    }

    /// Removes the permission before the process starts.
    pub async fn take_before_start(&mut self) {
        self.stop().await;
        self.take().await;
        self.start_with(&[]).await;
    }

    /// Starts the process with additional arguments.
    pub async fn start_with(&mut self, more: &[&str]) {
        let addons = chart::start_with(&self.hub, self.component, more).await;
        self.running.insert(self.component, addons);
    }

    /// Removes the permission before the process starts, and waits until it works all the same.
    pub async fn take_and_restart(&mut self) {
        self.take_before_start().await;
        self.process().works().await;
        self.is_refused().await;
    }

    /// Waits until the API server has refused a request that requires the permission, and checks that it has allowed
    /// none.
    pub async fn is_refused(&self) {
        let (component, right) = (self.component, &self.right);
        eventually(&format!("{component} is refused to {right}"), SOON, async || {
            let asked = self.asked().await;
            asked.count(|request| request.code == 403) > 0
        })
        .await;
    }

    /// Waits until the API server has refused the watch on the copies of the first namespace, which have been listed by
    /// then.
    pub async fn is_refused_copies(&self) {
        eventually("copies are not watched", SOON, async || {
            let asked = self.asked().await;
            asked.count(|request| {
                let here = request.namespace.is_empty() || request.namespace == TEAM;
                request.code == 403 && here && request.uri.contains("synced-from")
            }) > 0
        })
        .await;
    }

    async fn asked(&self) -> local_hub::Requests {
        let requests = self.hub.audit().since(&self.mark).await.unwrap();
        requests.of_user(&chart::user(self.component)).matching(|request| self.right.is_asked_by(request))
    }

    /// Restores the permission, after a check that the API server has refused all requests that need it and no others.
    pub async fn give(&mut self) {
        self.is_refused().await;
        let requests = self.hub.audit().since(&self.mark).await.unwrap();
        let requests = requests.of_user(&chart::user(self.component));
        let passed = requests.matching(|request| self.right.is_asked_by(request) && request.code < 300);
        assert!(passed.is_empty(), "without {}: {passed}", self.right);
        let others = requests.matching(|request| {
            // A permission for a token, or for a namespace's copies, is granted when needed: it may be requested first.
            let early = request.resource == "secrets" && ["list", "watch"].contains(&&*request.verb);
            request.code == 403 && !self.right.is_asked_by(request) && !early
        });
        assert!(others.is_empty(), "without {}: {others}", self.right);
        right::give(&self.hub.ocm, &self.rights, &self.right, self.component).await;
    }

    /// Waits until the permission is effective and has been used.
    pub async fn end(&self) {
        let (component, right) = (self.component, &self.right);
        eventually(&format!("{component} is let {right}"), SOON, async || {
            self.asked().await.count(|request| request.code < 300) > 0
        })
        .await;
    }

    /// A cluster in a set, with everything that its profile shows.
    pub fn cluster(&self, name: &str, set: &str) -> ocm::Object {
        let cluster: ocm::Object = ocm::ManagedCluster::named(name).in_set(set).into();
        if self.installation.direct { cluster.field("spec", spec(&address(name))) } else { cluster }
    }

    /// A cluster of the fleet that has the addon.
    pub async fn joins(&self, name: &str) {
        let objects = [ocm::namespace(name), addon(name), self.cluster(name, FLEET)];
        world::create(&self.hub.ocm, objects).await;
    }

    /// A new cluster with an opted-in token.
    pub async fn has_token(&self, name: &str) -> ServiceAccountToken {
        let token = token(name, "app");
        token.create(&self.hub.ocm).await.unwrap();
        token
    }

    /// Makes the cluster report another version.
    pub async fn changes(&self, name: &str) {
        let status = json!({ "version": { "kubernetes": "v1.37.0" } });
        world::merge_status(&self.hub.ocm, &self.cluster(name, FLEET), &status).await;
    }

    /// An object is written, and says what it said.
    pub async fn touch(&self, object: &ocm::Object) {
        merge(&self.hub.ocm, object, &json!({ "metadata": { "annotations": { "touched": "1" } } })).await;
    }

    /// Waits until a cluster has its profile, with the fields that do not depend on the proxy.
    pub async fn has_profile(&self, namespace: &str, name: &str) {
        profile(&self.hub.ocm, (namespace, name), "has its status", |profile| {
            profile["status"]["version"].is_object()
                && (!self.installation.direct || !provider(profile, DIRECT).is_null())
        })
        .await;
    }

    /// Waits until a cluster of the fleet has a profile, with the projector's fields.
    pub async fn is_projected(&self, name: &str) {
        profile(&self.hub.ocm, (TEAM, name), "says its version", |profile| {
            profile["status"]["version"].is_object()
        })
        .await;
    }

    /// Waits until the profile of a cluster of the fleet publishes how to reach it.
    pub async fn has_entry(&self, name: &str) {
        profile(&self.hub.ocm, (TEAM, name), "has its entry", |profile| !provider(profile, NAME).is_null())
            .await;
    }

    /// The access provider that the profile of a cluster of the fleet publishes.
    pub async fn entry(&self, name: &str) -> Value {
        let found = get(&self.hub.ocm, &shown(name)).await.unwrap_or_default();
        provider(&found, NAME).clone()
    }

    /// Waits until the profile of the first cluster publishes this address, without the proxy.
    pub async fn leads_to(&self, url: &str) {
        profile(&self.hub.ocm, (TEAM, BASE), "leads there", |shown| {
            provider(shown, DIRECT)["cluster"]["server"] == url
        })
        .await;
    }

    /// Makes the first cluster's agent report another address.
    pub async fn moves_to(&self, url: &str) {
        merge(&self.hub.ocm, &self.cluster(BASE, FLEET), &json!({ "spec": spec(url) })).await;
    }

    /// The address without the proxy that the profile of the first cluster publishes.
    pub async fn address(&self) -> Value {
        let found = get(&self.hub.ocm, &shown(BASE)).await.unwrap();
        provider(&found, DIRECT)["cluster"]["server"].clone()
    }

    /// Replaces the proxy's certificate by that of another authority; returns the authority.
    pub async fn renews_certificate(&self) -> Authority {
        let authority = Authority::new("next");
        let (holder, patch) = if self.installation.from_config_map {
            (config_map(&authority), json!({ "data": { "ca.crt": authority.pem() } }))
        } else {
            (proxy::serving(HOME, ""), json!({ "stringData": { "tls.crt": authority.chain() } }))
        };
        merge(&self.hub.ocm, &holder, &patch).await;
        authority
    }

    /// Waits until the profile of the first cluster publishes an authority.
    pub async fn publishes(&self, authority: &Authority) {
        profile(&self.hub.ocm, (TEAM, BASE), "has the new anchor", |profile| {
            anchors_in(profile).contains(&authority.pem())
        })
        .await;
    }

    /// Whether the profile of the first cluster publishes an authority.
    pub async fn has_published(&self, authority: &Authority) -> bool {
        anchors_in(&get(&self.hub.ocm, &shown(BASE)).await.unwrap()).contains(&authority.pem())
    }

    /// Waits until the syncer has its permission for copies in a namespace.
    pub async fn is_granted(&self, namespace: &str) {
        let grant = grant(namespace);
        eventually(&format!("{grant} is right"), SOON, async || {
            get(&self.hub.ocm, &grant).await.is_some_and(|grant| grant["subjects"].is_array())
        })
        .await;
    }

    /// Creates a namespace in which a set of its own is bound.
    pub async fn binds(&self, name: &str) {
        let objects = [ocm::namespace(name), ocm::cluster_set(name), ocm::bound(name, name)];
        world::create(&self.hub.ocm, objects).await;
    }

    /// An account that opts in and is the only one of its name.
    pub async fn asks(&self, name: &str) {
        let account = ocm::managed_service_account(BASE, name).label(ocm::SYNC_LABEL, "true");
        account.create(&self.hub.ocm).await.unwrap();
    }

    /// Whether the syncer may read the tokens of accounts of a name.
    pub async fn is_named(&self, name: &str) -> bool {
        let role = get(&self.hub.ocm, &tokens_role()).await.unwrap();
        let names = role["rules"][0]["resourceNames"].as_array();
        names.is_some_and(|names| names.contains(&json!(name)))
    }

    /// Waits until the syncer may read the tokens of accounts of a name.
    pub async fn becomes_named(&self, name: &str) {
        eventually(&format!("tokens of {name} may be read"), SOON, async || self.is_named(name).await).await;
    }

    /// Waits until there is an Event that a write was refused.
    pub async fn tells_refusal(&self, about: &ocm::Object) {
        let note = world::told(&self.hub.ocm, about, "WriteRefused").await;
        let user = chart::user(self.component);
        assert!(note.contains(&user), "{note}");
    }

    /// Replaces the first cluster's token.
    pub async fn rotates(&mut self) -> ServiceAccountToken {
        self.names += 1;
        self.base = rotated(&self.base, self.names);
        self.base.report(&self.hub.ocm).await.unwrap();
        self.base.clone()
    }

    /// The first cluster's token.
    pub fn base(&self) -> &ServiceAccountToken {
        &self.base
    }

    /// The current copy of a token.
    pub async fn copy(&self, token: &ServiceAccountToken) -> Option<Value> {
        get(&self.hub.ocm, &copy(TEAM, token)).await
    }

    /// Whether the first cluster's copy still has a manual change.
    pub async fn is_edited(&self) -> bool {
        self.copy(&self.base).await.unwrap()["data"]["more"].is_string()
    }

    // Later work of a process, which proves that it has not merely been slow with earlier work.

    /// The projector repairs an existing profile.
    pub async fn later_mends(&self) {
        let drift = json!({ "spec": { "displayName": "drift" } });
        merge(&self.hub.ocm, &shown(BASE), &drift).await;
        self.is_mended().await;
    }

    /// Waits until the profile of the first cluster has its name again.
    pub async fn is_mended(&self) {
        profile(&self.hub.ocm, (TEAM, BASE), "has its name", |profile| {
            profile["spec"]["displayName"] == BASE
        })
        .await;
    }

    /// A profile is created. Without a watch on profiles no more may happen, since later writes of others are not
    /// observed.
    pub async fn later_makes(&mut self) {
        let name = self.fresh();
        self.joins(&name).await;
        profile(&self.hub.ocm, (TEAM, &name), "is there", |_| true).await;
    }

    /// A profile is created and shows its cluster; returns the name of the cluster.
    pub async fn later_shows(&mut self) -> String {
        let name = self.fresh();
        self.joins(&name).await;
        self.has_profile(TEAM, &name).await;
        name
    }

    /// Another authority is published.
    pub async fn later_publishes(&self) {
        let authority = self.renews_certificate().await;
        self.publishes(&authority).await;
    }

    /// Another namespace receives its permission.
    pub async fn later_grants(&mut self) {
        let name = self.fresh();
        self.binds(&name).await;
        self.is_granted(&name).await;
    }

    /// The permission to read another account's tokens is granted.
    pub async fn later_names(&mut self) {
        let name = self.fresh();
        self.asks(&name).await;
        self.becomes_named(&name).await;
    }

    /// A rotated token is copied.
    pub async fn later_copies(&mut self) {
        let token = self.rotates().await;
        copied(&self.hub.ocm, TEAM, &token).await;
    }

    /// An account without a granted cluster gets the condition.
    pub async fn later_reports(&mut self) {
        let name = self.fresh();
        let token = self.has_token(&name).await;
        withheld(&self.hub.ocm, &token, "NotGranted").await;
    }
}

/// The profile of a cluster of the fleet.
pub fn shown(name: &str) -> ocm::Object {
    world::profile_of(NAME, TEAM, name)
}

/// The RoleBinding that grants the syncer its permission for copies in a namespace.
pub fn grant(namespace: &str) -> ocm::Object {
    chart::role_binding(namespace, &format!("{RELEASE}-credentials-copies"))
}

/// The role that lists the tokens by name.
pub fn tokens_role() -> ocm::Object {
    chart::cluster_role(&format!("{RELEASE}-credentials-tokens"))
}

/// The address that the agent of a cluster reports.
fn address(cluster: &str) -> String {
    format!("https://{cluster}.example:6443")
}

fn spec(url: &str) -> Value {
    let authority = Authority::new("direct").pem();
    let config = json!({ "url": url, "caBundle": ByteString(authority.into_bytes()) });
    json!({
        "hubAcceptsClient": true, "leaseDurationSeconds": 60, "managedClusterClientConfigs": [config],
    })
}

fn config_map(authority: &Authority) -> ocm::Object {
    ocm::Object::new(("", "v1", "ConfigMap"), "configmaps", Some(HOME), FRONT)
        .field("data", json!({ "ca.crt": authority.pem() }))
}

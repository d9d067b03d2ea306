//! Reads the state of the hub once. What the hub refuses to show stays unknown; a kind that the hub does not serve is
//! known to be absent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use hub_api::Unreadable;
use hub_api::cluster_access::{ClusterAccess, IdentityKind};
use hub_api::labels;
use hub_api::managed_cluster::ManagedCluster;
use hub_api::managed_cluster_addon::ManagedClusterAddOn;
use hub_api::managed_cluster_set::ManagedClusterSet;
use hub_api::managed_cluster_set_binding::ManagedClusterSetBinding;
use hub_api::managed_proxy_configuration::ManagedProxyConfiguration;
use hub_api::managed_service_account::ManagedServiceAccount;
use hub_api::names::{
    AccountKey, AccountName, ClusterName, ClusterSetName, Namespace, ProfileKey, SecretKey,
};
use hub_api::secret::Secret;
use hub_api::workloads::Deployment;
use hub_core::access::{AccessIndex, AccessSource, CLUSTER_PROXY, serving_certificate};
use hub_core::consumer_access::{AccessName, DecisionKind, PlacementName};
use hub_core::credential::account::Account;
use hub_core::credential::copy::ObservedCopy;
use hub_core::credential::index::{CredentialIndex, Listed};
use hub_core::credential::source::TokenSource;
use hub_core::explain::observed::{CONTROLLERS, Lease, NO_KUBE_API_PROXY, Observed};
use hub_core::explain::{Object, Question};
use hub_core::fleet::{Fleet, ObservedBinding, ObservedCluster, ObservedClusterSet};
use hub_core::known::Known;
use hub_core::trust::{self, CaKind, CaReference, TrustBundle, TrustError};
use k8s_openapi::api::coordination::v1::Lease as LeaseObject;
use k8s_openapi::api::core::v1::{ConfigMap, Secret as SecretObject};
use kube::api::{DynamicObject, ListParams};
use kube::core::{DeserializeGuard, NamespaceScope};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use crate::CommandError;
use crate::args::{ControllerArgs, Setup};
use crate::hub::{Hub, HubError};
use crate::release::Releases;
use crate::requests::{get, list, profile_version};

/// The Deployment that starts the agents of cluster-proxy.
const PROXY_MANAGER: &str = "cluster-proxy-addon-manager";
/// Where OCM and its addons are installed by clusteradm, by their charts' guides, and by Advanced Cluster Management.
const OCM_NAMESPACES: [&str; 4] = [
    "open-cluster-management",
    "open-cluster-management-hub",
    "open-cluster-management-addon",
    "multicluster-engine",
];

/// Objects in namespaces, and the namespaces of which all were read.
struct Spread<K> {
    objects: Vec<K>,
    complete: Listed<Namespace>,
}

impl<K> Spread<K> {
    /// Whether every object in the given namespaces, or with `None` in all, was read.
    fn is_complete(&self, named: Option<BTreeSet<Namespace>>) -> bool {
        self.complete == Listed::All
            || named.is_some_and(|named| named.iter().all(|namespace| self.complete.has(namespace)))
    }
}

/// The reader of a hub for one question.
pub(crate) struct Reading<'a> {
    hub: &'a Hub,
    question: &'a Question,
}

impl<'a> Reading<'a> {
    pub(crate) fn new(hub: &'a Hub, question: &'a Question) -> Self {
        Self { hub, question }
    }

    fn client(&self) -> Client {
        self.hub.client.clone()
    }

    /// The namespaces to read if lists of the whole hub are refused.
    fn namespaces(&self) -> BTreeSet<Namespace> {
        self.named().unwrap_or_else(|| [Namespace::from(self.hub.namespace.as_str())].into())
    }

    async fn all<K>(&self) -> Result<Option<Vec<DeserializeGuard<K>>>, HubError>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        list(&Api::<DeserializeGuard<K>>::all(self.client()), &ListParams::default()).await
    }

    /// Lists a namespaced kind in the given namespaces, or in all; if that is refused, in each namespace.
    async fn spread<K>(
        &self,
        named: Option<BTreeSet<Namespace>>,
        fallback: BTreeSet<Namespace>,
        api: Api<K>,
        params: ListParams,
    ) -> Result<Spread<K>, HubError>
    where
        K: Resource<Scope: NamespaceScope> + Clone + DeserializeOwned + Debug,
    {
        if named.is_none()
            && let Some(objects) = list(&api, &params).await?
        {
            return Ok(Spread { objects, complete: Listed::All });
        }
        let mut spread = Spread { objects: Vec::new(), complete: Listed::default() };
        for namespace in named.unwrap_or(fallback) {
            if let Some(objects) = list(&api.clone().constrain(namespace.as_str()), &params).await?
            {
                spread.objects.extend(objects);
                spread.complete.set(Some(&namespace), true);
            }
        }
        Ok(spread)
    }

    /// The namespaces that the question is limited to.
    fn named(&self) -> Option<BTreeSet<Namespace>> {
        let namespaces = &self.question.namespaces;
        (!namespaces.is_empty()).then(|| namespaces.iter().cloned().collect())
    }

    /// The namespaces of the clusters that the question is limited to.
    fn of_clusters(&self) -> Option<BTreeSet<Namespace>> {
        let clusters = &self.question.clusters;
        (!clusters.is_empty())
            .then(|| clusters.iter().map(|it| Namespace::from(it.as_str())).collect())
    }

    /// Reads the objects that the question depends on. What no flag sets is as the controllers run.
    pub(crate) async fn observe(
        &self,
        controllers: &ControllerArgs,
    ) -> Result<Observed, CommandError> {
        let now = self.hub.now().await?;
        let releases = Releases::read(self.hub).await?;
        let unread = releases
            .arguments
            .is_none()
            .then(|| Object::cluster_scoped("Deployment", "hub-addons-*"));
        let setup = Setup::new(releases.arguments.unwrap_or_default(), &controllers.flags)
            .map_err(|error| CommandError::Refused(error.to_string()))?;
        let (decisions, provider) = (&setup.decisions, &setup.decisions.provider);
        let source = match provider.access_provider_server.clone() {
            Some(server) => AccessSource::Static(server),
            None => AccessSource::ClusterProxy {
                require_addon: provider.cluster_proxy_require_addon,
                ca: provider.access_provider_ca.clone(),
            },
        };
        let is_static = matches!(source, AccessSource::Static(_));
        let mut hub = Observed::new(
            now,
            decisions.projection(),
            Fleet::new(decisions.bound_source()),
            AccessIndex::new(&provider.access_provider_name, source, true),
            CredentialIndex::new(decisions.sync()),
        );
        hub.unread_settings = unread;
        self.fleet(&mut hub).await?;
        self.leases(&mut hub, &releases.namespaces).await?;
        self.accesses(&mut hub).await?;
        let has_own_identity =
            hub.accesses.values().any(|access| access.spec.identity == IdentityKind::Own);
        if !is_static || has_own_identity {
            let proxies: Api<ManagedProxyConfiguration> = Api::all(self.client());
            let proxy = get(&proxies, CLUSTER_PROXY).await?;
            let proxy = proxy.map(|it| Namespace::from(it.spec.proxy_server.namespace()));
            if !is_static {
                self.proxy(&mut hub, &proxy).await?;
            }
            if has_own_identity {
                hub.no_kube_api_proxy = self.agents(&proxy).await?;
            }
        }
        self.profiles(&mut hub).await?;
        self.accounts(&mut hub).await?;
        self.secrets(&mut hub).await?;
        Ok(hub)
    }

    /// The Deployment of cluster-proxy whose agents do not connect under the names of their clusters. Tenants can
    /// create Deployments with any name, so only those in the namespaces of OCM count, and in that of the proxy.
    async fn agents(&self, proxy: &Known<Namespace>) -> Result<Known<Object>, HubError> {
        let api: Api<Deployment> = Api::all(self.client());
        let params = ListParams::default().fields(&format!("metadata.name={PROXY_MANAGER}"));
        let Some(found) = list(&api, &params).await? else { return Ok(Known::Unknown) };
        let is_without = |deployment: &&Deployment| {
            let containers = deployment.spec.template.spec.containers.iter();
            let mut arguments =
                containers.flat_map(|it| it.command.iter().chain(&it.args)).flatten();
            arguments.any(|argument| argument == NO_KUBE_API_PROXY)
        };
        let is_trusted = |namespace: &String| {
            let is_of_proxy = proxy.present().is_some_and(|it| it.as_str() == namespace);
            OCM_NAMESPACES.contains(&namespace.as_str()) || is_of_proxy
        };
        let mut namespaces = found.iter().filter(is_without).filter_map(ResourceExt::namespace);
        Ok(match namespaces.find(is_trusted) {
            Some(namespace) => {
                Known::Present(Object::namespaced("Deployment", namespace, PROXY_MANAGER))
            }
            None => Known::Absent,
        })
    }

    async fn accesses(&self, hub: &mut Observed) -> Result<(), HubError> {
        let api: Api<DeserializeGuard<ClusterAccess>> = Api::all(self.client());
        let found =
            self.spread(self.named(), self.namespaces(), api, ListParams::default()).await?;
        for object in found.objects.into_iter().filter_map(|object| object.0.ok()) {
            let namespace = Namespace::new(object.namespace().unwrap_or_default());
            let name = AccessName { namespace, name: object.name_any() };
            hub.accesses.insert(name, object);
        }
        let placements = hub.accesses.iter().filter_map(|(name, access)| {
            let placement = access.spec.clusters.placement_ref.as_ref()?;
            Some((name.namespace.clone(), placement.name.clone()))
        });
        for (namespace, name) in placements.collect::<BTreeSet<PlacementName>>() {
            let mut decided = Some(BTreeSet::new());
            for decisions in DecisionKind::ALL {
                let api = self
                    .hub
                    .api::<DynamicObject>(&decisions.api().resource(), Some(namespace.as_str()));
                let params = ListParams::default().labels(&decisions.selector(&name));
                let objects = list(&api, &params).await?;
                decided = decided.zip(objects).map(|(decided, objects)| {
                    let clusters = objects
                        .iter()
                        .flat_map(|object| decisions.clusters(namespace.as_str(), &object.data));
                    decided.into_iter().chain(clusters).collect()
                });
            }
            if let Some(clusters) = decided {
                hub.decisions.insert((namespace, name), clusters);
            }
        }
        Ok(())
    }

    async fn fleet(&self, hub: &mut Observed) -> Result<(), HubError> {
        let bindings: Api<DeserializeGuard<ManagedClusterSetBinding>> = Api::all(self.client());
        let (clusters, sets, bindings) = futures::try_join!(
            self.all::<ManagedCluster>(),
            self.all::<ManagedClusterSet>(),
            self.spread(None, self.namespaces(), bindings, ListParams::default()),
        )?;
        hub.knows_clusters = clusters.is_some();
        for object in clusters.into_iter().flatten() {
            let name = ClusterName::new(object.name_any());
            hub.fleet
                .apply_cluster(name, ObservedCluster::read(object.0.map_err(Unreadable::from)));
        }
        hub.knows_sets = sets.is_some();
        for object in sets.into_iter().flatten() {
            let name = ClusterSetName::new(object.name_any());
            hub.fleet.apply_set(name, ObservedClusterSet::read(object.0.map_err(Unreadable::from)));
        }
        hub.bindings_of = bindings.complete;
        for object in bindings.objects {
            let name = ClusterSetName::new(object.name_any());
            let namespace = Namespace::new(object.namespace().unwrap_or_default());
            let binding = ObservedBinding::read(object.0.map_err(Unreadable::from));
            hub.fleet.apply_binding(namespace, name, binding);
        }
        Ok(())
    }

    async fn leases(
        &self,
        hub: &mut Observed,
        releases: &BTreeSet<String>,
    ) -> Result<(), HubError> {
        let api: Api<LeaseObject> = Api::all(self.client());
        // A tenant can create a Lease of that name, so only those in the namespaces of releases count. Controllers that
        // the chart did not install are recognized by the name alone.
        let is_theirs = |lease: &Lease| releases.is_empty() || releases.contains(&lease.namespace);
        let mut leases: BTreeMap<String, Lease> = BTreeMap::new();
        for controller in CONTROLLERS {
            let params =
                ListParams::default().fields(&format!("metadata.name=hub-addons-{controller}"));
            let Some(found) = list(&api, &params).await? else { return Ok(()) };
            for object in found {
                let spec = object.spec.unwrap_or_default();
                let lease = Lease {
                    namespace: object.metadata.namespace.clone().unwrap_or_default(),
                    name: object.metadata.name.clone().unwrap_or_default(),
                    holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
                    renewed: spec.renew_time.map(|time| time.0),
                    seconds: spec.lease_duration_seconds.map_or(15, i64::from),
                    unreadable: labels::annotation(&object.metadata, labels::UNREADABLE)
                        .map(str::to_owned),
                };
                if !is_theirs(&lease) {
                    continue;
                }
                let controllers = labels::annotation(&object.metadata, labels::CONTROLLERS);
                for name in controllers.unwrap_or(controller).split(',') {
                    // With several installations, the Lease of the one that works.
                    let rank = |lease: &Lease| (lease.holder.is_some(), lease.renewed);
                    if leases.get(name).is_none_or(|other| rank(other) < rank(&lease)) {
                        leases.insert(name.to_owned(), lease.clone());
                    }
                }
            }
        }
        hub.leases = Some(leases);
        Ok(())
    }

    /// Reads the inputs of access providers. Their trust anchors are applied before the profiles.
    async fn proxy(&self, hub: &mut Observed, proxy: &Known<Namespace>) -> Result<(), HubError> {
        let addons: Api<ManagedClusterAddOn> = Api::all(self.client());
        let params = ListParams::default().fields(&format!("metadata.name={CLUSTER_PROXY}"));
        if let Some(addons) = list(&addons, &params).await? {
            for addon in addons {
                hub.access
                    .set_addon(&ClusterName::new(addon.namespace().unwrap_or_default()), true);
            }
            hub.access.set_addons_read(true);
        }
        hub.access.set_configuration(proxy.clone());
        let Known::Present(namespace) = proxy else { return Ok(()) };
        let ca =
            hub.access.configured_ca().cloned().unwrap_or_else(|| serving_certificate(namespace));
        let place = hub.access.place();
        let reading = match self.certificates(&ca).await? {
            Known::Present(text) => {
                hub.access.set_served(place, &text);
                hub.access.set_serving_names(place, trust::serving_names(&text));
                TrustBundle::from_pem(&text)
            }
            Known::Absent => Err(TrustError::NoCertificate),
            Known::Unknown => return Ok(()),
        };
        hub.knows_anchors = true;
        hub.access.set_anchors(place, reading);
        Ok(())
    }

    /// The text with the trust anchors; empty if its key is missing.
    async fn certificates(&self, ca: &CaReference) -> Result<Known<Vec<u8>>, HubError> {
        let (namespace, key) = (Some(ca.namespace.as_str()), &ca.key);
        let text = match ca.kind {
            CaKind::Secret => {
                let found = get(&self.hub.api::<SecretObject>(&(), namespace), &ca.name).await?;
                found.map(|secret| {
                    secret.data.and_then(|mut data| data.remove(key)).map(|text| text.0)
                })
            }
            CaKind::ConfigMap => {
                let found = get(&self.hub.api::<ConfigMap>(&(), namespace), &ca.name).await?;
                found.map(|map| {
                    map.data.and_then(|mut data| data.remove(key)).map(String::into_bytes)
                })
            }
        };
        Ok(text.map(Option::unwrap_or_default))
    }

    async fn profiles(&self, hub: &mut Observed) -> Result<(), HubError> {
        let Some(version) = profile_version(&self.hub.client).await? else {
            hub.profiles_of.set(None, true);
            return Ok(());
        };
        let api: Api<DynamicObject> = Api::all_with(self.client(), &version.resource());
        let profiles =
            self.spread(self.named(), self.namespaces(), api, ListParams::default()).await?;
        hub.profiles_of = profiles.complete;
        for object in profiles.objects {
            let key = ProfileKey {
                namespace: Namespace::new(object.namespace().unwrap_or_default()),
                cluster: ClusterName::new(object.name_any()),
            };
            hub.apply_profile(key, &object.metadata, &object.data);
        }
        Ok(())
    }

    async fn accounts(&self, hub: &mut Observed) -> Result<(), HubError> {
        let api: Api<DeserializeGuard<ManagedServiceAccount>> = Api::all(self.client());
        let accounts =
            self.spread(self.of_clusters(), BTreeSet::new(), api, ListParams::default()).await?;
        if accounts.is_complete(self.of_clusters()) {
            hub.credentials.knows_accounts = true;
        }
        for object in accounts.objects {
            let key = AccountKey {
                cluster: ClusterName::new(object.namespace().unwrap_or_default()),
                account: AccountName::new(object.name_any()),
            };
            hub.credentials.apply_account(key, Account::read(object.0.map_err(Unreadable::from)));
        }
        Ok(())
    }

    /// Reads tokens and their copies. Their data are never shown.
    async fn secrets(&self, hub: &mut Observed) -> Result<(), HubError> {
        let api: Api<Secret> = Api::all(self.client());
        let agents = format!("{}={}", labels::IS_MANAGED_SERVICE_ACCOUNT, labels::TRUE);
        let tokens = ListParams::default().labels(&agents);
        let copies = ListParams::default().labels(labels::SYNCED_FROM);
        let (tokens, copies) = futures::try_join!(
            self.spread(self.of_clusters(), BTreeSet::new(), api.clone(), tokens),
            self.spread(self.named(), self.namespaces(), api, copies),
        )?;
        if tokens.is_complete(self.of_clusters()) {
            hub.credentials.listed_sources.set(None, true);
        }
        for secret in &tokens.objects {
            let key = AccountKey {
                cluster: ClusterName::new(secret.namespace().unwrap_or_default()),
                account: AccountName::new(secret.name_any()),
            };
            hub.credentials.set_source(&key, Some(TokenSource::read(secret)));
        }
        let mut seen = BTreeSet::new();
        for secret in &copies.objects {
            let key = secret_key(secret);
            hub.credentials.apply_copy(&key, ObservedCopy::read(&key, Ok(secret)));
            seen.insert(key);
        }
        hub.credentials.listed_copies = copies.complete;
        self.unlabelled(hub, &seen).await
    }

    /// Reads the Secrets that have the name of a copy but not its label, for the clusters that the question names.
    async fn unlabelled(
        &self,
        hub: &mut Observed,
        seen: &BTreeSet<SecretKey>,
    ) -> Result<(), HubError> {
        let accounts: Vec<_> = hub.credentials.accounts().collect();
        for namespace in &self.question.namespaces {
            for account in accounts.iter().filter(|it| self.question.clusters.contains(&it.cluster))
            {
                let place = account.copy_in(namespace);
                if seen.contains(&place) || !hub.credentials.listed_copies.has(namespace) {
                    continue;
                }
                let api = self.hub.api::<Secret>(&(), Some(namespace.as_str()));
                if let Known::Present(secret) = get(&api, &place.name).await? {
                    hub.credentials.apply_copy(&place, ObservedCopy::read(&place, Ok(&secret)));
                }
            }
        }
        Ok(())
    }
}

fn secret_key(secret: &Secret) -> SecretKey {
    SecretKey {
        namespace: Namespace::new(secret.namespace().unwrap_or_default()),
        name: secret.name_any().into(),
    }
}

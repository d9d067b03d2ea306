//! Reads the state of the hub once. What the hub refuses to show stays unknown; a kind that the hub does not serve is
//! known to be absent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use hub_api::Unreadable;
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
use hub_core::access::{AccessIndex, AccessSource, CLUSTER_PROXY, Known, serving_certificate};
use hub_core::consumer_access::{AccessKind, permissions_name};
use hub_core::credential::account::Account;
use hub_core::credential::copy::ObservedCopy;
use hub_core::credential::index::{CredentialIndex, SyncSettings};
use hub_core::credential::source::TokenSource;
use hub_core::explain::Question;
use hub_core::explain::observed::{AccountPermission, Lease, Observed, Rbac, Readers};
use hub_core::fleet::{BoundSource, Fleet, ObservedBinding, ObservedCluster, ObservedClusterSet};
use hub_core::project::ProjectionSettings;
use hub_core::trust::{CaKind, CaReference, TrustBundle, TrustError};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::coordination::v1::Lease as LeaseObject;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace as NamespaceObject, Secret as SecretObject};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::{DeserializeGuard, GroupVersionKind};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::args::SetupArgs;
use crate::hub::{Hub, HubError};
use crate::ocm;
use crate::release::release_namespaces;
use crate::requests::{Got, Listing, get, list, profile_version};

/// The controllers whose Leases are read.
const CONTROLLERS: [&str; 3] = ["profile-projector", "access-provisioner", "credential-syncer"];

/// Objects in namespaces, and the namespaces of which all were read.
struct Spread<K> {
    objects: Vec<K>,
    /// `None`: all namespaces.
    complete: Option<BTreeSet<String>>,
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
    fn namespaces(&self) -> BTreeSet<String> {
        let asked: BTreeSet<_> = self.question.namespaces.iter().map(ToString::to_string).collect();
        if asked.is_empty() { [self.hub.namespace.clone()].into() } else { asked }
    }

    async fn all<K>(&self) -> Result<Listing<DeserializeGuard<K>>, HubError>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        list(&Api::<DeserializeGuard<K>>::all(self.client()), &ListParams::default()).await
    }

    /// Lists a namespaced kind in the given namespaces, or in all; if that is refused, in each namespace.
    async fn spread<K>(
        &self,
        named: Option<BTreeSet<String>>,
        fallback: &BTreeSet<String>,
        api: impl Fn(Option<&str>) -> Api<K>,
        params: &ListParams,
    ) -> Result<Spread<K>, HubError>
    where
        K: Resource + Clone + DeserializeOwned + Debug,
    {
        if named.is_none()
            && let Listing::All(objects) = list(&api(None), params).await?
        {
            return Ok(Spread { objects, complete: None });
        }
        let mut spread = Spread { objects: Vec::new(), complete: Some(BTreeSet::new()) };
        for namespace in named.as_ref().unwrap_or(fallback) {
            if let Listing::All(objects) = list(&api(Some(namespace)), params).await? {
                spread.objects.extend(objects);
                spread.complete.get_or_insert_default().insert(namespace.clone());
            }
        }
        Ok(spread)
    }

    /// The namespaces that the question is limited to.
    fn named(&self) -> Option<BTreeSet<String>> {
        (!self.question.namespaces.is_empty()).then(|| self.namespaces())
    }

    /// The namespaces of the clusters that the question is limited to.
    fn of_clusters(&self) -> Option<BTreeSet<String>> {
        let clusters = &self.question.clusters;
        (!clusters.is_empty()).then(|| clusters.iter().map(ToString::to_string).collect())
    }

    /// Reads the objects that the question depends on.
    pub(crate) async fn observe(&self, setup: &SetupArgs) -> Result<Observed, HubError> {
        let now = self.hub.now().await?;
        let bound = if setup.compute_bound { BoundSource::Computed } else { BoundSource::Status };
        let manager = setup.cluster_manager_name.clone();
        let settings = ProjectionSettings { manager: manager.clone(), ..ProjectionSettings::default() };
        let sync = SyncSettings {
            manager,
            protected: setup.protected_namespaces.clone(),
            ..SyncSettings::default()
        };
        let source = match &setup.access_provider_server {
            Some(server) => AccessSource::Static(server.clone()),
            None => AccessSource::ClusterProxy {
                service: setup.cluster_proxy_service.clone(),
                port: setup.cluster_proxy_port,
                require_addon: setup.cluster_proxy_require_addon,
                ca: setup.access_provider_ca.clone(),
            },
        };
        let access = AccessIndex::new(&setup.access_provider_name, source, true);
        let mut hub = Observed::new(now, settings, Fleet::new(bound), access, CredentialIndex::new(sync));
        self.fleet(&mut hub).await?;
        self.leases(&mut hub).await?;
        hub.ocm_gates = ocm::gates(self.hub).await?;
        if setup.access_provider_server.is_none() {
            self.proxy(&mut hub).await?;
        }
        self.profiles(&mut hub).await?;
        self.missing_namespaces(&mut hub).await?;
        self.accounts(&mut hub).await?;
        self.secrets(&mut hub).await?;
        self.permissions(&mut hub).await?;
        Ok(hub)
    }

    async fn fleet(&self, hub: &mut Observed) -> Result<(), HubError> {
        let api = |namespace: Option<&str>| {
            namespaced::<DeserializeGuard<ManagedClusterSetBinding>>(self.client(), namespace)
        };
        let (params, fallback) = (ListParams::default(), self.namespaces());
        let (clusters, sets, bindings) = futures::try_join!(
            self.all::<ManagedCluster>(),
            self.all::<ManagedClusterSet>(),
            self.spread(None, &fallback, api, &params),
        )?;
        hub.knows_clusters = matches!(clusters, Listing::All(_));
        for object in clusters.objects().into_iter().flatten() {
            hub.apply_finalizers("ManagedCluster", object.meta());
            let name = ClusterName::new(object.name_any());
            hub.fleet.apply_cluster(name, ObservedCluster::read(object.0.map_err(Unreadable::from)));
        }
        hub.knows_sets = matches!(sets, Listing::All(_));
        for object in sets.objects().into_iter().flatten() {
            hub.apply_finalizers("ManagedClusterSet", object.meta());
            let name = ClusterSetName::new(object.name_any());
            hub.fleet.apply_set(name, ObservedClusterSet::read(object.0.map_err(Unreadable::from)));
        }
        mark_listed(bindings.complete.as_ref(), |namespace| {
            hub.bindings_of.add(namespace);
        });
        for object in bindings.objects {
            hub.apply_finalizers("ManagedClusterSetBinding", object.meta());
            let name = ClusterSetName::new(object.name_any());
            let namespace = Namespace::new(object.namespace().unwrap_or_default());
            let binding = ObservedBinding::read(object.0.map_err(Unreadable::from));
            hub.fleet.apply_binding(namespace, name, binding);
        }
        Ok(())
    }

    /// The namespaces of the question that do not exist. One in which an object was read exists, and one that the user
    /// may not get counts as existing.
    async fn missing_namespaces(&self, hub: &mut Observed) -> Result<(), HubError> {
        let api: Api<NamespaceObject> = Api::all(self.client());
        for namespace in &self.question.namespaces {
            let has_bindings = hub.fleet.bindings_in(namespace).next().is_some();
            if has_bindings || hub.profiles.keys().any(|key| key.namespace == *namespace) {
                continue;
            }
            if matches!(get(&api, namespace.as_str()).await?, Got::Absent) {
                hub.missing_namespaces.insert(namespace.clone());
            }
        }
        Ok(())
    }

    async fn leases(&self, hub: &mut Observed) -> Result<(), HubError> {
        let api: Api<LeaseObject> = Api::all(self.client());
        // A tenant can create a Lease of that name, so only those in the namespaces of releases count. Controllers that
        // the chart did not install are recognized by the name alone.
        let releases = release_namespaces(self.hub).await?.unwrap_or_default();
        let is_theirs = |lease: &Lease| releases.is_empty() || releases.contains(&lease.namespace);
        let mut leases = BTreeMap::new();
        for controller in CONTROLLERS {
            let params = ListParams::default().fields(&format!("metadata.name=hub-addons-{controller}"));
            let Listing::All(found) = list(&api, &params).await? else { return Ok(()) };
            let found = found.into_iter().map(|lease| {
                let spec = lease.spec.unwrap_or_default();
                Lease {
                    namespace: lease.metadata.namespace.unwrap_or_default(),
                    holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
                    renewed: spec.renew_time.map(|time| time.0),
                    seconds: spec.lease_duration_seconds.map_or(15, i64::from),
                }
            });
            // With several installations, the Lease of the one that works.
            if let Some(lease) =
                found.filter(is_theirs).max_by_key(|lease| (lease.holder.is_some(), lease.renewed))
            {
                leases.insert(controller.to_owned(), lease);
            }
        }
        hub.leases = Some(leases);
        Ok(())
    }

    /// Reads the inputs of access providers. Their trust anchors are applied before the profiles.
    async fn proxy(&self, hub: &mut Observed) -> Result<(), HubError> {
        let configurations: Api<ManagedProxyConfiguration> = Api::all(self.client());
        let addons: Api<ManagedClusterAddOn> = Api::all(self.client());
        let params = ListParams::default().fields(&format!("metadata.name={CLUSTER_PROXY}"));
        let (configuration, addons) =
            futures::try_join!(get(&configurations, CLUSTER_PROXY), list(&addons, &params))?;
        if let Listing::All(addons) = addons {
            for addon in addons {
                hub.access.set_addon(&ClusterName::new(addon.namespace().unwrap_or_default()), true);
            }
            hub.access.addons_listed();
        }
        let namespace = match configuration {
            Got::Found(configuration) => Namespace::from(configuration.spec.proxy_server.namespace()),
            Got::Absent => {
                hub.access.set_configuration(Known::Absent);
                return Ok(());
            }
            Got::Refused => return Ok(()),
        };
        hub.access.set_configuration(Known::Present(namespace.clone()));
        let ca = hub.access.configured_ca().cloned().unwrap_or_else(|| serving_certificate(&namespace));
        let place = hub.access.place();
        let reading = match self.certificates(&ca).await? {
            Got::Found(text) => {
                hub.access.set_served(place, &text);
                TrustBundle::from_pem(&text)
            }
            Got::Absent => Err(TrustError::NoCertificate),
            Got::Refused => return Ok(()),
        };
        hub.knows_anchors = true;
        hub.access.set_anchors(place, reading);
        Ok(())
    }

    /// The text with the trust anchors; empty if its key is missing.
    async fn certificates(&self, ca: &CaReference) -> Result<Got<Vec<u8>>, HubError> {
        let (client, namespace, key) = (self.client(), ca.namespace.as_str(), &ca.key);
        let text = match ca.kind {
            CaKind::Secret => {
                let found = get(&Api::<SecretObject>::namespaced(client, namespace), &ca.name).await?;
                found.map(|secret| secret.data.and_then(|mut data| data.remove(key)).map(|text| text.0))
            }
            CaKind::ConfigMap => {
                let found = get(&Api::<ConfigMap>::namespaced(client, namespace), &ca.name).await?;
                found.map(|map| map.data.and_then(|mut data| data.remove(key)).map(String::into_bytes))
            }
        };
        Ok(text.map(Option::unwrap_or_default))
    }

    async fn profiles(&self, hub: &mut Observed) -> Result<(), HubError> {
        let Some(version) = profile_version(&self.hub.client).await? else {
            hub.profiles_of.add(None);
            return Ok(());
        };
        let kind = version.resource();
        let api = |namespace: Option<&str>| match namespace {
            Some(namespace) => Api::<DynamicObject>::namespaced_with(self.client(), namespace, &kind),
            None => Api::all_with(self.client(), &kind),
        };
        let params = ListParams::default();
        let profiles = self.spread(self.named(), &self.namespaces(), api, &params).await?;
        mark_listed(profiles.complete.as_ref(), |namespace| {
            hub.profiles_of.add(namespace);
        });
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
        let api = |namespace: Option<&str>| {
            namespaced::<DeserializeGuard<ManagedServiceAccount>>(self.client(), namespace)
        };
        let accounts = self.spread(self.of_clusters(), &BTreeSet::new(), api, &ListParams::default()).await?;
        let is_complete = match &accounts.complete {
            None => true,
            Some(complete) => self.of_clusters().is_some_and(|asked| complete.is_superset(&asked)),
        };
        for object in accounts.objects {
            hub.apply_finalizers("ManagedServiceAccount", object.meta());
            let key = AccountKey {
                cluster: ClusterName::new(object.namespace().unwrap_or_default()),
                account: AccountName::new(object.name_any()),
            };
            hub.credentials.apply_account(key, Account::read(object.0.map_err(Unreadable::from)));
        }
        if is_complete {
            hub.credentials.accounts_listed();
        }
        Ok(())
    }

    /// Reads tokens and their copies. Their data are never shown.
    async fn secrets(&self, hub: &mut Observed) -> Result<(), HubError> {
        let api = |namespace: Option<&str>| namespaced::<Secret>(self.client(), namespace);
        let agents = format!("{}={}", labels::IS_MANAGED_SERVICE_ACCOUNT, labels::TRUE);
        let tokens = ListParams::default().labels(&agents);
        let copies = ListParams::default().labels(labels::SYNCED_FROM);
        let (nowhere, fallback) = (BTreeSet::new(), self.namespaces());
        let (tokens, copies) = futures::try_join!(
            self.spread(self.of_clusters(), &nowhere, api, &tokens),
            self.spread(self.named(), &fallback, api, &copies),
        )?;
        let knows_tokens = tokens
            .complete
            .as_ref()
            .is_none_or(|complete| self.of_clusters().is_some_and(|asked| complete.is_superset(&asked)));
        for secret in tokens.objects.iter().chain(&copies.objects) {
            hub.apply_finalizers("Secret", secret.meta());
        }
        for secret in &tokens.objects {
            let key = AccountKey {
                cluster: ClusterName::new(secret.namespace().unwrap_or_default()),
                account: AccountName::new(secret.name_any()),
            };
            hub.credentials.apply_source(key, TokenSource::read(secret));
        }
        if knows_tokens {
            hub.credentials.sources_listed(None);
        }
        let mut seen = BTreeSet::new();
        for secret in &copies.objects {
            let key = secret_key(secret);
            hub.credentials.apply_copy(&key, ObservedCopy::read(&key, secret));
            seen.insert(key);
        }
        mark_listed(copies.complete.as_ref(), |namespace| {
            hub.credentials.copies_listed(namespace);
        });
        self.unlabelled(hub, &seen).await
    }

    /// Reads the Secret that has the name of a copy but not its label, if the question names single clusters.
    async fn unlabelled(&self, hub: &mut Observed, seen: &BTreeSet<SecretKey>) -> Result<(), HubError> {
        if self.question.clusters.is_empty() {
            return Ok(());
        }
        let accounts: Vec<_> = hub.credentials.accounts().collect();
        for namespace in &self.question.namespaces {
            for account in accounts.iter().filter(|it| self.question.clusters.contains(&it.cluster)) {
                let place = SecretKey { namespace: namespace.clone(), name: account.copy_name().into() };
                if seen.contains(&place) || !hub.credentials.knows_copies(namespace) {
                    continue;
                }
                let api: Api<Secret> = Api::namespaced(self.client(), namespace.as_str());
                if let Got::Found(secret) = get(&api, &place.name).await? {
                    hub.apply_finalizers("Secret", secret.meta());
                    hub.credentials.apply_copy(&place, ObservedCopy::read(&place, &secret));
                }
            }
        }
        Ok(())
    }

    async fn permissions(&self, hub: &mut Observed) -> Result<(), HubError> {
        let namespaces: BTreeSet<Namespace> = if self.question.namespaces.is_empty() {
            hub.fleet.namespaces().chain(hub.profiles.keys().map(|key| &key.namespace)).cloned().collect()
        } else {
            self.question.namespaces.iter().cloned().collect()
        };
        let params = ListParams::default();
        let (cluster_roles, cluster_role_bindings) = (Api::all(self.client()), Api::all(self.client()));
        let (cluster_roles, cluster_role_bindings) = futures::try_join!(
            list::<ClusterRole>(&cluster_roles, &params),
            list::<ClusterRoleBinding>(&cluster_role_bindings, &params),
        )?;
        let (cluster_roles, cluster_role_bindings) =
            (cluster_roles.objects(), cluster_role_bindings.objects());
        for namespace in namespaces {
            let roles: Api<Role> = Api::namespaced(self.client(), namespace.as_str());
            let bindings: Api<RoleBinding> = Api::namespaced(self.client(), namespace.as_str());
            let (roles, bindings) = futures::try_join!(list(&roles, &params), list(&bindings, &params))?;
            let (roles, bindings) = (roles.objects(), bindings.objects());
            let rbac = Rbac {
                roles: roles.as_deref(),
                role_bindings: bindings.as_deref(),
                cluster_roles: cluster_roles.as_deref(),
                cluster_role_bindings: cluster_role_bindings.as_deref(),
            };
            let readers = Readers::of(&namespace, &rbac);
            hub.readers.insert(namespace, readers);
        }
        // Only for the named clusters, since ManifestWorks are many and large.
        for cluster in &self.question.clusters {
            let mut permissions = Vec::new();
            let mut refused = false;
            for access in AccessKind::PERMISSIONS {
                let (group, version, kind) = access.gvk();
                let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
                let api: Api<DynamicObject> =
                    Api::namespaced_with(self.client(), cluster.as_str(), &resource);
                let objects = match list(&api, &params).await? {
                    Listing::All(objects) => objects,
                    Listing::Refused => {
                        refused = true;
                        let names = hub.credentials.accounts().filter(|it| it.cluster == *cluster);
                        let names: Vec<_> = names.map(|it| permissions_name(&it.account)).collect();
                        named(&api, &names).await?
                    }
                };
                for object in objects {
                    hub.apply_finalizers(kind, object.meta());
                    let value = serde_json::to_value(&object).unwrap_or(Value::Null);
                    permissions.extend(match access {
                        AccessKind::ClusterPermission => AccountPermission::of_cluster_permission(&value),
                        AccessKind::Account | AccessKind::ManifestWork => {
                            AccountPermission::of_manifest_work(&value)
                        }
                    });
                }
            }
            if refused {
                hub.permissions_not_listed.insert(cluster.clone());
            }
            hub.permissions.insert(cluster.clone(), permissions);
        }
        Ok(())
    }
}

/// The objects of these names that the user may get: ManifestWorks of others can contain Secrets, so a role for viewers
/// names ours.
async fn named(api: &Api<DynamicObject>, names: &[String]) -> Result<Vec<DynamicObject>, HubError> {
    let mut objects = Vec::new();
    for name in names {
        if let Got::Found(object) = get(api, name).await? {
            objects.push(object);
        }
    }
    Ok(objects)
}

fn namespaced<K>(client: Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::all(client),
    }
}

fn mark_listed(complete: Option<&BTreeSet<String>>, mut mark: impl FnMut(Option<Namespace>)) {
    match complete {
        None => mark(None),
        Some(namespaces) => namespaces.iter().for_each(|it| mark(Some(Namespace::from(it.as_str())))),
    }
}

fn secret_key(secret: &Secret) -> SecretKey {
    SecretKey {
        namespace: Namespace::new(secret.namespace().unwrap_or_default()),
        name: secret.name_any().into(),
    }
}

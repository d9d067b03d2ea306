//! A fleet on a hub: its creation, and what users, agents and Open Cluster Management's controllers do to it.

use std::collections::BTreeMap;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::ByteString;
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams};
use local_hub::ocm::{self, ManagedCluster, Object, SET_LABEL, ServiceAccountToken};
use local_hub::{HubError, ServingAuthority};
use serde_json::{Value, json};

use crate::model::{Member, Model, Part};
use crate::place::{SENTINEL, SENTINEL_CLUSTER};
use crate::progress::say;
use crate::size::Size;
use crate::view::{certificates, hash};

/// The set of the fleet.
pub const SET: &str = "fleet";

/// Another set, which is bound in one namespace of the same name and has no clusters at first.
pub const OTHER: &str = "other";

/// The namespace of cluster-proxy.
const PROXY: &str = "proxy";

/// The version of Kubernetes of the clusters at first.
const VERSION: &str = "v1.36.3";

/// Concurrent requests.
const PARALLEL: usize = 32;

/// How many clusters are created between two reports of progress.
const REPORT: usize = 500;

/// A fleet, and what the hub should show of it.
pub struct Fleet {
    /// What the hub should show.
    pub model: Model,
    size: Size,
    client: Client,
    authority: ServingAuthority,
    /// How often something has been changed: each change differs from all earlier ones.
    changes: usize,
}

impl Fleet {
    /// Creates a fleet, the other set, the sentinel and cluster-proxy.
    pub async fn create(client: Client, size: Size, without: Vec<Part>) -> Result<Self, HubError> {
        let authority = ServingAuthority::new("first")?;
        let model =
            Model { anchors: certificates(&authority.ca_pem()), without, ..Model::default() };
        let mut fleet = Self { model, size, client, authority, changes: 0 };
        let client = fleet.client.clone();
        ocm::create_all(&client, [PROXY, SENTINEL, OTHER].map(ocm::namespace)).await?;
        // Those of the chart for the syncer, in either process, which credential rights bind, and fill.
        for syncer in ["controllers-0", "controllers-1"] {
            let roles = ["copies", "tokens"].map(|role| cluster_role(&format!("{syncer}-{role}")));
            ocm::create_all(&client, roles).await?;
        }
        ocm::create_all(&client, [SET, OTHER, SENTINEL].map(ocm::cluster_set)).await?;
        let selector = json!({ "matchLabels": { SET_LABEL: SET } });
        let more = fleet.more_sets().map(|name| ocm::selecting_cluster_set(&name, &selector));
        ocm::create_all(&client, more.collect::<Vec<_>>()).await?;
        serving(&fleet.authority)?.create(&client).await?;
        proxy_configuration().create(&client).await?;

        let names: Vec<String> =
            (0..size.clusters).map(|number| format!("cluster-{number:04}")).collect();
        for (number, names) in names.chunks(REPORT).enumerate() {
            say(&format!("creating the fleet: {} of {} clusters", number * REPORT, size.clusters));
            fleet.create_clusters(names).await?;
        }
        let ungranted: Vec<String> =
            (0..size.ungranted).map(|number| format!("ungranted-{number:04}")).collect();
        fleet.create_clusters(&ungranted).await?;
        fleet.create_clusters(&[SENTINEL_CLUSTER.to_owned()]).await?;
        fleet.join(&[SENTINEL_CLUSTER.to_owned()], SENTINEL).await?;
        fleet.join(&names, SET).await?;
        // Last, so that the controllers see complete clusters first.
        let namespaces = (0..size.namespaces).map(|number| format!("fleet-{number:02}"));
        let namespaces: Vec<String> = namespaces.collect();
        ocm::create_all(&client, namespaces.iter().map(|namespace| ocm::namespace(namespace)))
            .await?;
        for namespace in &namespaces {
            fleet.bind(namespace, SET).await?;
        }
        for number in 0..size.consumers {
            let (name, namespace) =
                (format!("consumer-{number:03}"), &namespaces[number % namespaces.len()]);
            ocm::cluster_access(namespace, &name, &asked()).create(&client).await?;
            fleet.model.consumers.insert(name, namespace.clone());
        }
        fleet.bind(OTHER, OTHER).await?;
        fleet.bind(SENTINEL, SENTINEL).await?;
        // The sentinel is not in the model: nothing about it is counted.
        fleet.model.bindings.remove(SENTINEL);
        fleet.model.clusters.remove(SENTINEL_CLUSTER);
        say("the fleet is created");
        Ok(fleet)
    }

    /// The sets that select the clusters of [`SET`] by labels.
    fn more_sets(&self) -> impl Iterator<Item = String> + use<> {
        (1..self.size.sets).map(|number| format!("{SET}-{number:02}"))
    }

    /// What binds a set in a namespace.
    fn bindings(&self, namespace: &str, set: &str) -> Vec<Object> {
        let more = self.more_sets().filter(|_| set == SET);
        [set.to_owned()].into_iter().chain(more).map(|set| ocm::bound(namespace, &set)).collect()
    }

    /// The names of the first clusters of the fleet.
    pub fn first(&self, count: usize) -> Vec<String> {
        let mut names = self.of_set(SET);
        names.truncate(count);
        names
    }

    /// The names of the clusters of a set.
    pub fn of_set(&self, set: &str) -> Vec<String> {
        let members = self.model.clusters.iter().filter(|(_, member)| member.set == set);
        members.map(|(name, _)| name.clone()).collect()
    }

    /// Creates clusters with their addons, accounts and tokens, in no set.
    pub async fn create_clusters(&mut self, names: &[String]) -> Result<(), HubError> {
        let (client, size) = (self.client.clone(), self.size);
        let created = each(names, async |name: &String| {
            ocm::namespace(name).create(&client).await?;
            cluster(name, size.claims).create(&client).await?;
            addon(name).create(&client).await?;
            lease(name).create(&client).await?;
            let mut tokens = BTreeMap::new();
            // After the cluster: older tokens could be those of an earlier cluster of this name.
            for account in accounts(size.accounts) {
                let token = ServiceAccountToken::of(name, &account).synced();
                token.create(&client).await?;
                tokens.insert(account, hash(&token.token_bytes()));
            }
            let member = Member { set: String::new(), available: "True", version: VERSION, tokens };
            Ok((name.clone(), member))
        });
        self.model.clusters.extend(created.await?);
        Ok(())
    }

    /// Moves clusters to a set, or with an empty name out of every set, all at once.
    pub async fn join(&mut self, names: &[String], set: &str) -> Result<(), HubError> {
        let client = self.client.clone();
        let label = if set.is_empty() { Value::Null } else { json!(set) };
        let patch = json!({ "metadata": { "labels": { SET_LABEL: label } } });
        each(names, async |name: &String| merge(&client, &named(name), &patch).await).await?;
        for name in names {
            if let Some(member) = self.model.clusters.get_mut(name) {
                set.clone_into(&mut member.set);
            }
        }
        Ok(())
    }

    /// Moves two clusters to each other's sets, at once.
    pub async fn swap(&mut self, one: &str, other: &str) -> Result<(), HubError> {
        let set_of =
            |model: &Model, name| model.clusters.get(name).map(|member| member.set.clone());
        let sets = (
            set_of(&self.model, one).unwrap_or_default(),
            set_of(&self.model, other).unwrap_or_default(),
        );
        self.join(&[one.to_owned()], &sets.1).await?;
        self.join(&[other.to_owned()], &sets.0).await
    }

    /// Deletes clusters and their accounts, as an administrator does after they have left their set.
    pub async fn forget(&mut self, names: &[String]) -> Result<(), HubError> {
        let (client, size) = (self.client.clone(), self.size);
        each(names, async |name: &String| {
            // Otherwise the syncer reports later, in another scenario, that their cluster does not exist.
            for account in accounts(size.accounts) {
                delete(&client, &ocm::managed_service_account(name, &account)).await?;
            }
            delete(&client, &named(name)).await
        })
        .await?;
        self.model.clusters.retain(|name, _| !names.contains(name));
        Ok(())
    }

    /// Reports the version of Kubernetes of a cluster.
    pub async fn report_version(
        &mut self,
        name: &str,
        version: &'static str,
    ) -> Result<(), HubError> {
        let status = json!({ "status": { "version": { "kubernetes": version } } });
        merge_status(&self.client, &named(name), &status).await?;
        self.model.clusters.entry(name.to_owned()).and_modify(|member| member.version = version);
        Ok(())
    }

    /// Gives a cluster a label that nothing reads.
    pub async fn label(&mut self, name: &str) -> Result<(), HubError> {
        self.changes += 1;
        let labels = json!({ "metadata": { "labels": { "bench": self.changes.to_string() } } });
        merge(&self.client, &named(name), &labels).await
    }

    /// Renews every cluster's lease, and changes a field of its status that nothing here reads.
    pub async fn heartbeat(&mut self) -> Result<(), HubError> {
        self.changes += 1;
        let (client, changes) = (self.client.clone(), self.changes);
        let names: Vec<String> = self.model.clusters.keys().cloned().collect();
        each(&names, async |name: &String| {
            let spec = json!({ "spec": { "leaseTransitions": changes } });
            merge(&client, &lease(name), &spec).await?;
            let status = json!({ "status": { "allocatable": { "cpu": changes.to_string() } } });
            merge_status(&client, &named(name), &status).await
        })
        .await?;
        Ok(())
    }

    /// Reports clusters as available, or as lost.
    pub async fn report_availability(
        &mut self,
        names: &[String],
        available: &'static str,
    ) -> Result<(), HubError> {
        self.changes += 1;
        let (client, time) =
            (self.client.clone(), format!("2026-01-01T00:00:{:02}Z", self.changes % 60));
        let condition = |kind: &str, status: &str, reason: &str, time: &str| json!({ "type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": time });
        let first = "2026-01-01T00:00:00Z";
        let conditions = json!({ "status": { "conditions": [
            condition("HubAcceptedManagedCluster", "True", "HubClusterAdminAccepted", first),
            condition("ManagedClusterJoined", "True", "ManagedClusterJoined", first),
            condition("ManagedClusterConditionAvailable", available, "ManagedClusterLease", &time),
        ] } });
        each(names, async |name: &String| merge_status(&client, &named(name), &conditions).await)
            .await?;
        for name in names {
            self.model
                .clusters
                .entry(name.clone())
                .and_modify(|member| member.available = available);
        }
        Ok(())
    }

    /// Replaces the proxy's serving certificate by a new one of the same authority.
    pub async fn renew_leaf(&self) -> Result<(), HubError> {
        serving(&self.authority)?.update(&self.client).await
    }

    /// Replaces the proxy's authority. Until [`end_overlap`](Self::end_overlap), profiles publish both.
    pub async fn replace_authority(&mut self) -> Result<(), HubError> {
        self.authority = ServingAuthority::new("next")?;
        self.renew_leaf().await?;
        self.model.anchors.extend(certificates(&self.authority.ca_pem()));
        Ok(())
    }

    /// From now on, profiles publish the current authority only.
    pub fn end_overlap(&mut self) {
        self.model.anchors = certificates(&self.authority.ca_pem());
    }

    /// Reports new tokens of all accounts of clusters.
    pub async fn rotate(&mut self, names: &[String]) -> Result<(), HubError> {
        self.changes += 1;
        let (client, changes, size) = (self.client.clone(), self.changes, self.size);
        each(names, async |name: &String| {
            for account in accounts(size.accounts) {
                report_token(&client, name, &account, &token(name, &account, changes)).await?;
            }
            Ok(())
        })
        .await?;
        for name in names {
            let Some(member) = self.model.clusters.get_mut(name) else { continue };
            for account in accounts(size.accounts) {
                let token = hash(token(name, &account, changes).as_bytes());
                member.tokens.insert(account, token);
            }
        }
        Ok(())
    }

    /// Binds a set in a namespace.
    pub async fn bind(&mut self, namespace: &str, set: &str) -> Result<(), HubError> {
        ocm::create_all(&self.client, self.bindings(namespace, set)).await?;
        self.model.bindings.insert(namespace.to_owned(), set.to_owned());
        Ok(())
    }

    /// Deletes the binding in a namespace.
    pub async fn unbind(&mut self, namespace: &str) -> Result<(), HubError> {
        if let Some(set) = self.model.bindings.remove(namespace) {
            for binding in self.bindings(namespace, &set) {
                delete(&self.client, &binding).await?;
            }
        }
        Ok(())
    }

    /// Deletes a namespace with everything in it.
    pub async fn delete_namespace(&mut self, namespace: &str) -> Result<(), HubError> {
        delete(&self.client, &ocm::namespace(namespace)).await?;
        self.model.bindings.remove(namespace);
        Ok(())
    }

    /// The first namespace of the fleet that is still bound.
    pub fn namespace(&self) -> String {
        let of_fleet = |(_, set): &(&String, &String)| *set == SET;
        self.model
            .bindings
            .iter()
            .find(of_fleet)
            .map(|(namespace, _)| namespace.clone())
            .unwrap_or_default()
    }

    /// Changes the version and the token of the sentinel, and returns both, the latter as a hash.
    pub async fn change_sentinel(&mut self) -> Result<(String, u64), HubError> {
        self.changes += 1;
        let (version, token) =
            (format!("v1.0.{}", self.changes), token(SENTINEL_CLUSTER, "account-0", self.changes));
        let status = json!({ "status": { "version": { "kubernetes": version } } });
        merge_status(&self.client, &named(SENTINEL_CLUSTER), &status).await?;
        report_token(&self.client, SENTINEL_CLUSTER, "account-0", &token).await?;
        Ok((version, hash(token.as_bytes())))
    }
}

/// Does something for each of many, concurrently.
async fn each<T>(
    names: &[String],
    action: impl AsyncFn(&String) -> Result<T, HubError>,
) -> Result<Vec<T>, HubError> {
    let action = &action;
    futures::stream::iter(names)
        .map(async |name| action(name).await)
        .buffer_unordered(PARALLEL)
        .try_collect()
        .await
}

fn accounts(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("account-{number}"))
}

/// A token that only the benchmark knows, as long as a real one.
pub fn token(cluster: &str, account: &str, change: usize) -> String {
    format!("{cluster}.{account}.{change}.{}", "x".repeat(900))
}

fn named(cluster: &str) -> Object {
    ManagedCluster::named(cluster).into()
}

/// A cluster with this number of claims.
fn cluster(name: &str, claims: usize) -> ManagedCluster {
    (0..claims).fold(ManagedCluster::named(name).version(VERSION), |cluster, number| {
        cluster.claim(&format!("claim-{number}.example.com"), &format!("value {number} of {name}"))
    })
}

fn addon(cluster: &str) -> Object {
    let gvk = ("addon.open-cluster-management.io", "v1alpha1", "ManagedClusterAddOn");
    Object::new(gvk, "managedclusteraddons", Some(cluster), "cluster-proxy")
        .field("spec", json!({}))
}

/// The Lease by which a cluster's agent shows that it is alive.
fn lease(cluster: &str) -> Object {
    let gvk = ("coordination.k8s.io", "v1", "Lease");
    Object::new(gvk, "leases", Some(cluster), "managed-cluster-lease")
        .field("spec", json!({ "leaseDurationSeconds": 60, "holderIdentity": "agent" }))
}

fn cluster_role(name: &str) -> Object {
    Object::new(("rbac.authorization.k8s.io", "v1", "ClusterRole"), "clusterroles", None, name)
        .field("rules", json!([]))
}

/// What a consumer asks for.
fn asked() -> Value {
    let permissions = json!([{ "clusterRole": "view" }]);
    json!({ "identity": "Copy", "serviceAccountNames": ["app"], "permissions": permissions })
}

fn proxy_configuration() -> Object {
    let gvk = ("proxy.open-cluster-management.io", "v1alpha1", "ManagedProxyConfiguration");
    let spec = json!({
        "authentication": { "signer": { "type": "SelfSigned" } },
        "proxyServer": { "namespace": PROXY, "image": "server" },
        "proxyAgent": { "image": "agent" },
    });
    Object::new(gvk, "managedproxyconfigurations", None, "cluster-proxy").field("spec", spec)
}

/// The Secret with a new serving certificate, followed by its authority's, as the addon writes them.
fn serving(authority: &ServingAuthority) -> Result<Object, HubError> {
    let certificate = authority.issue(["proxy.example"])?;
    let gvk = ("", "v1", "Secret");
    Ok(Object::new(gvk, "secrets", Some(PROXY), "cluster-proxy-user-serving-cert")
        .field("type", json!("Opaque"))
        .field("stringData", json!({ "tls.crt": certificate.tls_crt() })))
}

/// As an agent does: the Secret, then the status.
async fn report_token(
    client: &Client,
    cluster: &str,
    account: &str,
    token: &str,
) -> Result<(), HubError> {
    let secret = Object::new(("", "v1", "Secret"), "secrets", Some(cluster), account);
    let data = json!({ "data": { "token": ByteString(token.as_bytes().to_vec()) } });
    merge(client, &secret, &data).await?;
    let reported = json!({ "status": { "expirationTimestamp": "2100-01-02T00:00:00Z" } });
    merge_status(client, &ocm::managed_service_account(cluster, account), &reported).await
}

async fn merge(client: &Client, object: &Object, patch: &Value) -> Result<(), HubError> {
    let patched = object
        .api(client)
        .patch(object.name(), &PatchParams::default(), &Patch::Merge(patch))
        .await;
    patched.map(drop).map_err(HubError::api(format!("change {object}")))
}

pub async fn merge_status(client: &Client, object: &Object, patch: &Value) -> Result<(), HubError> {
    let patched = object
        .api(client)
        .patch_status(object.name(), &PatchParams::default(), &Patch::Merge(patch))
        .await;
    patched.map(drop).map_err(HubError::api(format!("change the status of {object}")))
}

async fn delete(client: &Client, object: &Object) -> Result<(), HubError> {
    let deleted = object.api(client).delete(object.name(), &DeleteParams::background()).await;
    deleted.map(drop).map_err(HubError::api(format!("delete {object}")))
}

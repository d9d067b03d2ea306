//! A hub with nodes, and the chart on it.

use std::ops::Deref;
use std::path::Path;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use local_hub::{LocalHub, Pods, PodsBuilder, eventually, ocm};

use crate::support::SOON;
use crate::support::chart::{self, NAMESPACE, RELEASE};
use crate::support::pods::{IMAGE, image};
use crate::support::shown::names;
use crate::support::world;

/// The components, each a Deployment.
pub const COMPONENTS: [&str; 2] = ["profiles", "credentials"];

/// The cluster that is created after all others, its set and its namespace.
const LAST: &str = "last";

/// A hub with nodes for Pods, and the CRDs of a hub.
pub struct Nodes {
    /// In this order: the nodes must end before the hub.
    pub pods: Box<Pods>,
    hub: Box<LocalHub>,
}

impl Deref for Nodes {
    type Target = LocalHub;

    fn deref(&self) -> &LocalHub {
        &self.hub
    }
}

impl Nodes {
    /// This many nodes with these images, and more for them.
    pub async fn start(
        number: u8,
        images: &[(&str, &Path)],
        more: impl FnOnce(&LocalHub, PodsBuilder) -> PodsBuilder,
    ) -> Self {
        let hub = Box::new(LocalHub::builder().workloads().start().await.unwrap());
        let builder = Pods::on(&hub).unwrap().nodes(number);
        let builder =
            images.iter().fold(builder, |builder, (name, archive)| builder.image(*name, *archive));
        let pods = Box::new(more(&hub, builder).start().await.unwrap());
        Self { pods, hub }
    }
}

/// A hub with nodes and the chart.
pub struct Stage {
    pub admin: Client,
    pub ocm: Client,
    pub hub: Nodes,
}

impl Stage {
    /// Installs the chart in a namespace for restricted Pods, and waits for its Pods. `None` if none can run here.
    pub async fn start(nodes: u8, values: &[&str]) -> Option<Self> {
        Self::start_with(nodes, values, |nodes| nodes).await
    }

    /// The same with more for the nodes.
    pub async fn start_with(
        nodes: u8,
        values: &[&str],
        more: impl FnOnce(PodsBuilder) -> PodsBuilder,
    ) -> Option<Self> {
        let image = image().await?;
        let hub = Nodes::start(nodes, &[(IMAGE, &image)], |_, nodes| more(nodes)).await;
        let (admin, ocm) =
            (hub.client_as("admin").await.unwrap(), hub.client_as("ocm").await.unwrap());
        world::create(&admin, [world::restricted(NAMESPACE)]).await;
        let stage = Self { admin, ocm, hub };
        stage.install(values).await;
        Some(stage)
    }

    /// Installs or upgrades the chart, and waits for its Pods.
    pub async fn install(&self, values: &[&str]) {
        chart::install(&self.hub, &[&["image.tag=test"], values].concat()).await;
        for component in COMPONENTS {
            self.rolled_out(component).await;
        }
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.admin.clone(), NAMESPACE)
    }

    /// The Pods of a component, once all replicas of the current template are ready and no other is left.
    pub async fn rolled_out(&self, component: &str) -> Vec<Pod> {
        let selector = format!("app.kubernetes.io/component={component}");
        eventually(&format!("{component} is rolled out"), SOON * 2, async || {
            let deployment = self.api::<Deployment>().get(&format!("{RELEASE}-{component}")).await;
            let deployment = deployment.map_err(|error| error.to_string())?;
            let (spec, status) = (deployment.spec.unwrap(), deployment.status.unwrap_or_default());
            let current = status.observed_generation == deployment.metadata.generation;
            let counts = [status.replicas, status.updated_replicas, status.available_replicas];
            let pods = self.api::<Pod>().list(&ListParams::default().labels(&selector)).await;
            let pods = pods.map_err(|error| error.to_string())?.items;
            let is_done = current && counts.iter().all(|count| *count == spec.replicas);
            if is_done && i32::try_from(pods.len()).ok() == spec.replicas {
                return Ok(Some(pods));
            }
            Err(format!("{status:?} {:?}", pods.iter().map(|pod| &pod.status).collect::<Vec<_>>()))
        })
        .await
    }

    /// The Pod of a component that holds a Lease, unless it is this one.
    pub async fn leader(&self, component: &str, but: &str) -> Pod {
        let of_component =
            ListParams::default().labels(&format!("app.kubernetes.io/component={component}"));
        eventually(&format!("a Pod of {component} leads that is not {but:?}"), SOON, async || {
            let leases = self.api::<Lease>().list(&ListParams::default()).await;
            let leases = leases.map_err(|error| error.to_string())?;
            let holders: Vec<_> =
                leases.into_iter().filter_map(|lease| lease.spec?.holder_identity).collect();
            let pods =
                self.api::<Pod>().list(&of_component).await.map_err(|error| error.to_string())?;
            let leads = |pod: &Pod| holders.iter().any(|holder| holder.contains(&pod.name_any()));
            pods.into_iter()
                .find(|pod| pod.name_any() != but && leads(pod))
                .map(Some)
                .ok_or(holders.join(", "))
        })
        .await
    }

    /// Creates a fleet, and its bindings once its clusters have been seen. Bindings come by a watch of their own: they may
    /// be seen first, and a profile that is created before the status of its cluster is seen is written again.
    pub async fn create(&self, fleet: &ocm::Fleet) {
        fleet.create_clusters(&self.ocm).await.unwrap();
        let name = LAST.to_owned();
        let last =
            ocm::Fleet { set: name.clone(), clusters: vec![name.clone()], namespaces: vec![name] };
        last.create(&self.ocm).await.unwrap();
        self.shows(LAST, &last.clusters).await;
        fleet.bind(&self.ocm).await.unwrap();
    }

    /// Waits until a namespace has the profiles of these clusters, with their status.
    pub async fn shows(&self, namespace: &str, clusters: &[String]) {
        let what = format!("{namespace} has {} profiles", clusters.len());
        eventually(&what, SOON, async || {
            let shown = names(&self.ocm, namespace).await;
            if shown == clusters { Ok(()) } else { Err(format!("{} of them", shown.len())) }
        })
        .await;
        let kubectl = [
            "get",
            "clusterprofiles",
            "--namespace",
            namespace,
            "--output=jsonpath={.items[*].status.version.kubernetes}",
        ];
        eventually(&format!("{what} with their status"), SOON, async || {
            let output = self.hub.kubectl(&kubectl).await.unwrap();
            String::from_utf8_lossy(&output.stdout).split_whitespace().count() == clusters.len()
        })
        .await;
    }

    /// Fails unless each profile of the fleet was created once, and its status written once. A write that was under way
    /// when its process was killed, which the API server reports as failed, may have happened or not.
    pub async fn each_was_written_once(&self, profiles: usize, is_killed: bool) {
        let requests = self.hub.audit().requests().await.unwrap().of_user(&chart::user("profiles"));
        let writes = requests
            .writes()
            .matching(|request| request.resource == "clusterprofiles" && request.namespace != LAST);
        let mut counted = 0;
        for verb in ["create", "patch"] {
            let count = |codes: &[u16]| {
                writes.count(|request| request.verb == verb && codes.contains(&request.code))
            };
            let (written, unknown) =
                (count(&[200, 201]), if is_killed { count(&[500, 504]) } else { 0 });
            assert!((written..=written + unknown).contains(&profiles), "{writes}");
            counted += written + unknown;
        }
        assert_eq!(writes.len(), counted, "{writes}");
    }
}

//! How to run one container, from its Pod and its image. Pure: nothing is executed here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod, PodSecurityContext, SecurityContext};

use super::environment::Environment;
use super::images::Image;
use super::problem::Problem;
use super::volumes::Mounted;

/// A mount of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) source: PathBuf,
    pub(crate) target: String,
    pub(crate) read_only: bool,
}

/// A container that can be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerPlan {
    pub(crate) command: Vec<String>,
    pub(crate) environment: Environment,
    pub(crate) directory: String,
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) groups: Vec<u32>,
    pub(crate) read_only_root: bool,
    /// Outer ones before inner ones.
    pub(crate) mounts: Vec<Mount>,
}

impl ContainerPlan {
    pub(crate) fn new(
        container: &Container,
        pod: &Pod,
        image: &Image,
        environment: Environment,
        volumes: &BTreeMap<String, Mounted>,
    ) -> Result<Self, Problem> {
        refuse_unknown(container)?;
        let none = PodSecurityContext::default();
        let shared = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref()).unwrap_or(&none);
        let none = SecurityContext::default();
        let own = container.security_context.as_ref().unwrap_or(&none);
        let (user, group) = account(own, shared, image)?;
        let groups = shared.supplemental_groups.iter().flatten().chain(&shared.fs_group);
        let directory =
            [container.working_dir.as_deref().unwrap_or_default(), &image.config.working_dir, "/"];
        Ok(Self {
            command: command(container, image, &environment)?,
            environment,
            directory: directory.into_iter().find(|path| !path.is_empty()).unwrap_or("/").to_owned(),
            user,
            group,
            groups: groups.map(|group| number(*group)).collect::<Result<_, _>>()?,
            read_only_root: own.read_only_root_filesystem.unwrap_or_default(),
            mounts: mounts(container, volumes)?,
        })
    }
}

/// Refuses unsupported fields, rather than running something else than specified.
fn refuse_unknown(container: &Container) -> Result<(), Problem> {
    let security = container.security_context.as_ref();
    if container.lifecycle.is_some() {
        return Err(Problem::unsupported("lifecycle hooks"));
    }
    if container.restart_policy.is_some() {
        return Err(Problem::unsupported("a restartPolicy of a container"));
    }
    if security.is_some_and(|security| security.privileged.unwrap_or_default()) {
        return Err(Problem::unsupported("privileged containers"));
    }
    let capabilities = security.and_then(|security| security.capabilities.as_ref());
    if capabilities.is_some_and(|capabilities| capabilities.add.iter().flatten().next().is_some()) {
        return Err(Problem::unsupported("added capabilities"));
    }
    Ok(())
}

/// The Kubernetes rules: `command` replaces the entrypoint and its arguments, `args` only the arguments.
fn command(container: &Container, image: &Image, environment: &Environment) -> Result<Vec<String>, Problem> {
    let own = |words: &Option<Vec<String>>| words.clone().filter(|words| !words.is_empty());
    let expanded = |words: Vec<String>| words.iter().map(|word| environment.expand(word)).collect();
    let (program, arguments): (Vec<String>, Vec<String>) =
        match (own(&container.command), own(&container.args)) {
            (Some(program), arguments) => (expanded(program), arguments.map(expanded).unwrap_or_default()),
            (None, Some(arguments)) => {
                (image.config.entrypoint.clone().unwrap_or_default(), expanded(arguments))
            }
            (None, None) => (
                image.config.entrypoint.clone().unwrap_or_default(),
                image.config.cmd.clone().unwrap_or_default(),
            ),
        };
    let command: Vec<String> = program.into_iter().chain(arguments).collect();
    if command.is_empty() {
        return Err(Problem::config("neither the container nor its image has a command"));
    }
    Ok(command)
}

/// The container's user and groups, if they are allowed.
fn account(own: &SecurityContext, shared: &PodSecurityContext, image: &Image) -> Result<(u32, u32), Problem> {
    let (image_user, image_group) = image.config.user.split_once(':').unwrap_or((&image.config.user, ""));
    let of_image = |id: &str| match id {
        "" => Ok(0),
        id => id.parse().map_err(|_| Problem::config(format!("the image's user {id:?} must be numeric"))),
    };
    let user = match own.run_as_user.or(shared.run_as_user) {
        Some(user) => number(user)?,
        None => of_image(image_user)?,
    };
    let group = match own.run_as_group.or(shared.run_as_group) {
        Some(group) => number(group)?,
        None => of_image(image_group)?,
    };
    if own.run_as_non_root.or(shared.run_as_non_root).unwrap_or_default() && user == 0 {
        return Err(Problem::config("container has runAsNonRoot and image will run as root"));
    }
    Ok((user, group))
}

fn number(id: i64) -> Result<u32, Problem> {
    u32::try_from(id).map_err(|_| Problem::config(format!("{id} is not a valid user or group")))
}

fn mounts(container: &Container, volumes: &BTreeMap<String, Mounted>) -> Result<Vec<Mount>, Problem> {
    let mut mounts = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        let volume = volumes
            .get(&mount.name)
            .ok_or_else(|| Problem::config(format!("the pod has no volume {}", mount.name)))?;
        if mount.sub_path_expr.is_some() || mount.mount_propagation.is_some() {
            return Err(Problem::unsupported(format!("subPathExpr and mountPropagation of {}", mount.name)));
        }
        let source = match mount.sub_path.as_deref() {
            None | Some("") => volume.directory.clone(),
            Some(path) => inside(&volume.directory, path)?,
        };
        mounts.push(Mount {
            source,
            target: absolute(&mount.mount_path)?,
            read_only: volume.read_only || mount.read_only.unwrap_or_default(),
        });
    }
    mounts.sort_by_key(|mount| mount.target.matches('/').count());
    Ok(mounts)
}

fn inside(directory: &Path, path: &str) -> Result<PathBuf, Problem> {
    if path.starts_with('/') || path.split('/').any(|part| part == "..") {
        return Err(Problem::config(format!("subPath {path:?} leads out of its volume")));
    }
    Ok(directory.join(path))
}

fn absolute(path: &str) -> Result<String, Problem> {
    if path.split('/').any(|part| part == "..") {
        return Err(Problem::config(format!("mountPath {path:?} must not contain '..'")));
    }
    Ok(format!("/{}", path.trim_matches('/')))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::images::Config;
    use super::*;

    fn plan(container: Value, pod: &Value) -> Result<ContainerPlan, Problem> {
        let mut container: Container = serde_json::from_value(container).unwrap();
        container.name = "c".to_owned();
        let image = Image {
            root: "/image".into(),
            config: Config {
                user: "65532:65531".to_owned(),
                entrypoint: Some(vec!["/program".to_owned()]),
                cmd: Some(vec!["help".to_owned()]),
                ..Config::default()
            },
        };
        let mut environment = Environment::default();
        environment.set("POD", "p");
        let volumes = BTreeMap::from([
            ("token".to_owned(), Mounted { directory: "/v/token".into(), read_only: true }),
            ("tmp".to_owned(), Mounted { directory: "/v/tmp".into(), read_only: false }),
        ]);
        let pod: Pod = serde_json::from_value(json!({ "spec": pod })).unwrap();
        ContainerPlan::new(&container, &pod, &image, environment, &volumes)
    }

    #[test]
    fn command_and_args_replace_what_the_image_says() {
        let words = |container| plan(container, &json!({ "containers": [] })).unwrap().command.join(" ");
        assert_eq!(words(json!({})), "/program help");
        assert_eq!(words(json!({ "args": ["run", "$(POD)"] })), "/program run p");
        assert_eq!(words(json!({ "command": ["/other"] })), "/other");
        assert_eq!(words(json!({ "command": ["/other"], "args": ["x"] })), "/other x");
    }

    #[test]
    fn the_container_says_who_it_is_then_its_pod_then_its_image() {
        let who = |container, pod| {
            let plan = plan(container, &pod)?;
            Ok((plan.user, plan.group, plan.groups))
        };
        let pod = || json!({ "containers": [], "securityContext": { "runAsUser": 5, "fsGroup": 7 } });
        let own = json!({ "securityContext": { "runAsUser": 6, "runAsGroup": 8 } });
        assert_eq!(who(json!({}), json!({ "containers": [] })), Ok((65532, 65531, vec![])));
        assert_eq!(who(json!({}), pod()), Ok((5, 65531, vec![7])));
        assert_eq!(who(own, pod()), Ok((6, 8, vec![7])));
        let root = json!({ "securityContext": { "runAsUser": 0, "runAsNonRoot": true } });
        assert_eq!(
            who(root, pod()).map_err(|problem: Problem| problem.reason),
            Err("CreateContainerConfigError")
        );
    }

    #[test]
    fn outer_mounts_come_first_and_tokens_are_read_only() {
        let mounts = json!({ "volumeMounts": [
            { "name": "token", "mountPath": "/a/b/" },
            { "name": "tmp", "mountPath": "/a" },
            { "name": "tmp", "mountPath": "/c", "subPath": "d", "readOnly": true },
        ]});
        let mounts = plan(mounts, &json!({ "containers": [] })).unwrap().mounts;
        let seen: Vec<_> = mounts
            .iter()
            .map(|mount| (mount.source.to_str().unwrap(), mount.target.as_str(), mount.read_only))
            .collect();
        assert_eq!(seen, [("/v/tmp", "/a", false), ("/v/tmp/d", "/c", true), ("/v/token", "/a/b", true)]);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for container in [
            json!({ "lifecycle": {} }),
            json!({ "securityContext": { "privileged": true } }),
            json!({ "securityContext": { "capabilities": { "add": ["NET_ADMIN"] } } }),
            json!({ "volumeMounts": [{ "name": "none", "mountPath": "/x" }] }),
            json!({ "volumeMounts": [{ "name": "tmp", "mountPath": "/../x" }] }),
        ] {
            assert!(plan(container.clone(), &json!({ "containers": [] })).is_err(), "{container}");
        }
    }
}

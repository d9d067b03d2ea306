//! A container's environment, and the expansion of `$(NAME)` in its command.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvVar, ObjectFieldSelector, Pod};

use super::objects::Objects;
use super::problem::Problem;

/// Variables in the order in which they were set; a later one replaces an earlier one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Environment(Vec<(String, String)>);

impl Environment {
    pub(crate) fn set(&mut self, name: &str, value: impl Into<String>) {
        let value = value.into();
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// In the format of `env`.
    pub(crate) fn assignments(&self) -> impl Iterator<Item = String> + '_ {
        self.0.iter().map(|(name, value)| format!("{name}={value}"))
    }

    /// Expands `$(NAME)`. An unknown name stays unchanged, and `$$(NAME)` becomes `$(NAME)`.
    pub(crate) fn expand(&self, text: &str) -> String {
        let mut expanded = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            expanded.push_str(before);
            rest = after;
            if let Some(after) = rest.strip_prefix('$') {
                expanded.push('$');
                rest = after;
            } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|text| text.split_once(')')) {
                // Unknown: unchanged.
                let known = self.get(name).map(ToOwned::to_owned);
                expanded.push_str(&known.unwrap_or_else(|| format!("$({name})")));
                rest = after;
            } else {
                expanded.push('$');
            }
        }
        expanded + rest
    }
}

/// The variables of the Pod and the image, in addition to `base`.
pub(crate) async fn of(
    container: &Container,
    pod: &Pod,
    addresses: &Addresses,
    objects: &Objects,
    mut base: Environment,
) -> Result<Environment, Problem> {
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        let values = if let Some(reference) = &source.config_map_ref {
            objects.config_map(&reference.name, reference.optional.unwrap_or_default()).await?
        } else if let Some(reference) = &source.secret_ref {
            objects.secret(&reference.name, reference.optional.unwrap_or_default()).await?
        } else {
            BTreeMap::new()
        };
        for (name, value) in values {
            base.set(&format!("{prefix}{name}"), text(&name, value)?);
        }
    }
    for variable in container.env.iter().flatten() {
        if let Some(value) = value_of(variable, pod, addresses, objects, &base).await? {
            base.set(&variable.name, value);
        }
    }
    Ok(base)
}

async fn value_of(
    variable: &EnvVar,
    pod: &Pod,
    addresses: &Addresses,
    objects: &Objects,
    known: &Environment,
) -> Result<Option<String>, Problem> {
    let Some(source) = &variable.value_from else {
        return Ok(Some(known.expand(variable.value.as_deref().unwrap_or_default())));
    };
    if let Some(field) = &source.field_ref {
        return value_of_field(field, pod, addresses).map(Some);
    }
    let (values, key, optional) = if let Some(reference) = &source.config_map_key_ref {
        let optional = reference.optional.unwrap_or_default();
        (objects.config_map(&reference.name, optional).await?, &reference.key, optional)
    } else if let Some(reference) = &source.secret_key_ref {
        let optional = reference.optional.unwrap_or_default();
        (objects.secret(&reference.name, optional).await?, &reference.key, optional)
    } else {
        return Err(Problem::unsupported(format!("the source of variable {}", variable.name)));
    };
    match values.into_iter().find(|(name, _)| name == key) {
        Some((_, value)) => text(key, value).map(Some),
        None if optional => Ok(None),
        None => Err(Problem::config(format!("key {key} for variable {} not found", variable.name))),
    }
}

fn text(key: &str, value: Vec<u8>) -> Result<String, Problem> {
    String::from_utf8(value).map_err(|_| Problem::config(format!("the value of {key} is not UTF-8")))
}

/// The addresses of a Pod and its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub(crate) pod: String,
    pub(crate) host: String,
}

/// The value of a field of a Pod, as in `fieldRef`.
pub(crate) fn value_of_field(
    field: &ObjectFieldSelector,
    pod: &Pod,
    addresses: &Addresses,
) -> Result<String, Problem> {
    let (metadata, spec) = (&pod.metadata, pod.spec.as_ref());
    let path = field.field_path.as_str();
    let entry = |of: &Option<BTreeMap<String, String>>, key: &str| {
        of.as_ref().and_then(|of| of.get(key).cloned()).unwrap_or_default()
    };
    let all = |of: &Option<BTreeMap<String, String>>| {
        let lines = of.iter().flatten().map(|(key, value)| format!("{key}={value:?}"));
        lines.collect::<Vec<_>>().join("\n")
    };
    let inside = |what: &str| path.strip_prefix(what)?.strip_prefix("['")?.strip_suffix("']");
    Ok(match path {
        "metadata.name" => metadata.name.clone().unwrap_or_default(),
        "metadata.namespace" => metadata.namespace.clone().unwrap_or_default(),
        "metadata.uid" => metadata.uid.clone().unwrap_or_default(),
        "metadata.labels" => all(&metadata.labels),
        "metadata.annotations" => all(&metadata.annotations),
        "spec.nodeName" => spec.and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
        "spec.serviceAccountName" => {
            spec.and_then(|spec| spec.service_account_name.clone()).unwrap_or_default()
        }
        "status.podIP" | "status.podIPs" => addresses.pod.clone(),
        "status.hostIP" | "status.hostIPs" => addresses.host.clone(),
        _ => {
            if let Some(key) = inside("metadata.labels") {
                entry(&metadata.labels, key)
            } else if let Some(key) = inside("metadata.annotations") {
                entry(&metadata.annotations, key)
            } else {
                return Err(Problem::unsupported(format!("the field {path}")));
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment() -> Environment {
        let mut environment = Environment::default();
        environment.set("NAME", "value");
        environment
    }

    #[test]
    fn names_are_expanded_as_a_kubelet_does() {
        for (text, expanded) in [
            ("--x=$(NAME)", "--x=value"),
            ("$(NAME)$(NAME)", "valuevalue"),
            ("$(OTHER)", "$(OTHER)"),
            ("$$(NAME)", "$(NAME)"),
            ("$NAME $(NAME", "$NAME $(NAME"),
            ("costs 3$", "costs 3$"),
        ] {
            assert_eq!(environment().expand(text), expanded, "{text}");
        }
    }

    #[test]
    fn a_variable_that_is_set_again_has_the_last_value_and_its_first_place() {
        let mut environment = environment();
        environment.set("OTHER", "1");
        environment.set("NAME", "2");
        assert_eq!(environment.assignments().collect::<Vec<_>>(), ["NAME=2", "OTHER=1"]);
    }

    #[test]
    fn fields_of_a_pod_are_found_by_their_paths() {
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": { "name": "p", "namespace": "n", "labels": { "a/b": "c" } },
            "spec": { "serviceAccountName": "s", "containers": [] },
        }))
        .unwrap();
        let addresses = Addresses { pod: "10.0.0.2".to_owned(), host: "127.0.0.1".to_owned() };
        let value = |path: &str| {
            let field = ObjectFieldSelector { field_path: path.to_owned(), ..ObjectFieldSelector::default() };
            value_of_field(&field, &pod, &addresses).map_err(|problem| problem.reason)
        };
        assert_eq!(value("metadata.name"), Ok("p".to_owned()));
        assert_eq!(value("metadata.labels['a/b']"), Ok("c".to_owned()));
        assert_eq!(value("metadata.labels"), Ok("a/b=\"c\"".to_owned()));
        assert_eq!(value("spec.serviceAccountName"), Ok("s".to_owned()));
        assert_eq!(value("status.podIP"), Ok("10.0.0.2".to_owned()));
        assert_eq!(value("spec.colour"), Err("CreateContainerConfigError"));
    }
}

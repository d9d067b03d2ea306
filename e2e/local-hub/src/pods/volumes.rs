//! A pod's volumes: directories that are mounted into its containers, and the files in them.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::{
    DownwardAPIVolumeFile, KeyToPath, Pod, ProjectedVolumeSource, ServiceAccountTokenProjection, Volume,
};

use super::environment::{Addresses, value_of_field};
use super::images::Images;
use super::objects::Objects;
use super::problem::Problem;

/// A kubelet's default.
const TOKEN_SECONDS: i64 = 3600;

/// Refresh interval of volumes whose source can change.
const REFRESH: Duration = Duration::from_secs(20);

/// A volume in use.
#[derive(Clone, Debug)]
pub(crate) struct Mounted {
    pub(crate) directory: PathBuf,
    /// Its files belong to the runner: containers may only read them.
    pub(crate) read_only: bool,
}

/// A pod's volumes.
pub(crate) struct Volumes<'pod> {
    pub(crate) pod: &'pod Pod,
    pub(crate) addresses: &'pod Addresses,
    pub(crate) objects: &'pod Objects,
    pub(crate) images: &'pod Images,
    /// The parent of their directories.
    pub(crate) directory: PathBuf,
    /// When tokens are renewed, if not after four fifths of their validity.
    pub(crate) token_renewal: Option<Duration>,
}

/// A file to write.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Content {
    bytes: Vec<u8>,
    mode: u32,
}

type Files = BTreeMap<PathBuf, Content>;

impl Volumes<'_> {
    fn list(&self) -> impl Iterator<Item = &Volume> {
        self.pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten())
    }

    fn group(&self) -> Option<u32> {
        let context = self.pod.spec.as_ref()?.security_context.as_ref()?;
        context.fs_group.and_then(|group| u32::try_from(group).ok())
    }

    /// Creates all volumes.
    pub(crate) async fn make(&self) -> Result<BTreeMap<String, Mounted>, Problem> {
        let mut made = BTreeMap::new();
        for volume in self.list() {
            let directory = self.directory.join(&volume.name);
            let mounted = if let Some(image) = &volume.image {
                let reference = image.reference.as_deref().unwrap_or_default();
                Mounted { directory: self.images.get(reference)?.root.clone(), read_only: true }
            } else {
                std::fs::create_dir_all(&directory)
                    .map_err(Problem::io(format!("make volume {}", volume.name)))?;
                let read_only = volume.empty_dir.is_none();
                if read_only {
                    write(&directory, &self.files(volume, &Files::new()).await?, self.group())?;
                } else {
                    open_to_all(&directory, self.group())?;
                }
                Mounted { directory, read_only }
            };
            made.insert(volume.name.clone(), mounted);
        }
        Ok(made)
    }

    /// Updates their files from the sources, and renews tokens. Never returns.
    pub(crate) async fn keep_up_to_date(&self) {
        let mut tokens: BTreeMap<&str, tokio::time::Instant> = BTreeMap::new();
        let start = tokio::time::Instant::now();
        let refresh = self.token_renewal.unwrap_or(REFRESH).min(REFRESH);
        loop {
            tokio::time::sleep(refresh).await;
            for volume in self.list().filter(|volume| volume.empty_dir.is_none() && volume.image.is_none()) {
                let since = tokens.entry(&volume.name).or_insert(start);
                let directory = self.directory.join(&volume.name);
                // A token that is not due for renewal is kept.
                let keep = match token_of(volume) {
                    Some(token)
                        if since.elapsed() < self.token_renewal.unwrap_or(renewal(seconds_of(token))) =>
                    {
                        let path = PathBuf::from(&token.path);
                        read(&directory.join(&path), mode_of(volume)).map(|content| (path, content))
                    }
                    _ => {
                        *since = tokio::time::Instant::now();
                        None
                    }
                };
                // If a source cannot be read, the files stay, as with a kubelet.
                if let Ok(files) = self.files(volume, &keep.into_iter().collect()).await {
                    let _ = write(&directory, &files, self.group());
                }
            }
        }
    }

    /// The files of a volume. Those in `keep` are not requested again.
    async fn files(&self, volume: &Volume, keep: &Files) -> Result<Files, Problem> {
        let mode = mode_of(volume);
        if let Some(source) = &volume.config_map {
            let data = self.objects.config_map(&source.name, source.optional.unwrap_or_default()).await?;
            select(data, source.items.as_deref(), mode)
        } else if let Some(source) = &volume.secret {
            let name = source.secret_name.as_deref().unwrap_or_default();
            let data = self.objects.secret(name, source.optional.unwrap_or_default()).await?;
            select(data, source.items.as_deref(), mode)
        } else if let Some(source) = &volume.downward_api {
            self.downward(source.items.as_deref().unwrap_or_default(), mode)
        } else if let Some(source) = &volume.projected {
            self.projected(source, mode, keep).await
        } else {
            Err(Problem::unsupported(format!("the kind of volume {}", volume.name)))
        }
    }

    async fn projected(
        &self,
        projected: &ProjectedVolumeSource,
        mode: u32,
        keep: &Files,
    ) -> Result<Files, Problem> {
        let mut files = Files::new();
        for source in projected.sources.iter().flatten() {
            if let Some(token) = &source.service_account_token {
                let path = inside(&token.path)?;
                let content = if let Some(content) = keep.get(&path) {
                    content.clone()
                } else {
                    let fresh = self.objects.token(token.audience.as_deref(), seconds_of(token)).await?;
                    Content { bytes: fresh.expose().as_bytes().to_vec(), mode }
                };
                files.insert(path, content);
            } else if let Some(source) = &source.config_map {
                let data = self.objects.config_map(&source.name, source.optional.unwrap_or_default()).await?;
                files.extend(select(data, source.items.as_deref(), mode)?);
            } else if let Some(source) = &source.secret {
                let data = self.objects.secret(&source.name, source.optional.unwrap_or_default()).await?;
                files.extend(select(data, source.items.as_deref(), mode)?);
            } else if let Some(source) = &source.downward_api {
                files.extend(self.downward(source.items.as_deref().unwrap_or_default(), mode)?);
            } else {
                return Err(Problem::unsupported("a source of a projected volume"));
            }
        }
        Ok(files)
    }

    fn downward(&self, items: &[DownwardAPIVolumeFile], mode: u32) -> Result<Files, Problem> {
        let file = |item: &DownwardAPIVolumeFile| {
            let field = item.field_ref.as_ref().ok_or_else(|| Problem::unsupported("resourceFieldRef"))?;
            let bytes = value_of_field(field, self.pod, self.addresses)?.into_bytes();
            Ok((inside(&item.path)?, Content { bytes, mode: item.mode.map_or(mode, permissions) }))
        };
        items.iter().map(file).collect()
    }
}

/// The token of a volume. If there are several, they are renewed together.
fn token_of(volume: &Volume) -> Option<&ServiceAccountTokenProjection> {
    let sources = volume.projected.as_ref()?.sources.as_deref()?;
    sources.iter().find_map(|source| source.service_account_token.as_ref())
}

fn seconds_of(token: &ServiceAccountTokenProjection) -> i64 {
    token.expiration_seconds.unwrap_or(TOKEN_SECONDS)
}

/// When a token is renewed: after four fifths of its validity, as in a kubelet, and after a day at the latest.
fn renewal(seconds: i64) -> Duration {
    let seconds = u64::try_from(seconds).unwrap_or_default();
    (Duration::from_secs(seconds) * 4 / 5).min(Duration::from_hours(24))
}

fn mode_of(volume: &Volume) -> u32 {
    let asked_for = volume
        .config_map
        .as_ref()
        .map(|source| source.default_mode)
        .or(volume.secret.as_ref().map(|source| source.default_mode))
        .or(volume.downward_api.as_ref().map(|source| source.default_mode))
        .or(volume.projected.as_ref().map(|source| source.default_mode));
    asked_for.flatten().map_or(0o644, permissions)
}

fn permissions(mode: i32) -> u32 {
    u32::try_from(mode).unwrap_or(0o644) & 0o777
}

/// Checks that a path stays inside its volume.
fn inside(path: &str) -> Result<PathBuf, Problem> {
    let path = PathBuf::from(path);
    let stays = path.components().all(|part| matches!(part, Component::Normal(_)));
    if stays && path.file_name().is_some() {
        return Ok(path);
    }
    Err(Problem::config(format!("{} is not a path inside a volume", path.display())))
}

fn select(
    mut data: BTreeMap<String, Vec<u8>>,
    items: Option<&[KeyToPath]>,
    mode: u32,
) -> Result<Files, Problem> {
    let Some(items) = items else {
        return data.into_iter().map(|(key, bytes)| Ok((inside(&key)?, Content { bytes, mode }))).collect();
    };
    let file = |item: &KeyToPath| {
        let bytes = data.remove(&item.key).ok_or_else(|| Problem::config(format!("no key {}", item.key)))?;
        Ok((inside(&item.path)?, Content { bytes, mode: item.mode.map_or(mode, permissions) }))
    };
    items.iter().map(file).collect()
}

fn read(path: &Path, mode: u32) -> Option<Content> {
    std::fs::read(path).ok().map(|bytes| Content { bytes, mode })
}

/// Makes the directory contain exactly these files. Readers see either the old or the new content of a file.
fn write(directory: &Path, files: &Files, group: Option<u32>) -> Result<(), Problem> {
    let failed = |path: &Path| Problem::io(format!("write {}", path.display()));
    let mut wanted = BTreeSet::new();
    for (path, content) in files {
        let file = directory.join(path);
        wanted.insert(file.clone());
        if std::fs::read(&file).is_ok_and(|bytes| bytes == content.bytes) {
            continue;
        }
        if let Some(parent) = file.parent() {
            std::fs::create_dir_all(parent).map_err(failed(parent))?;
        }
        let draft = directory.join(".draft");
        std::fs::write(&draft, &content.bytes)
            .and_then(|()| share(&draft, content.mode, group))
            .and_then(|()| std::fs::rename(&draft, &file))
            .map_err(failed(&file))?;
    }
    remove_others(directory, &wanted).map_err(failed(directory))
}

fn share(file: &Path, mode: u32, group: Option<u32>) -> std::io::Result<()> {
    // If the Pod has an fsGroup, that group can read the files, whatever their mode.
    let mode = if group.is_some() { mode | 0o440 } else { mode };
    if group.is_some() {
        chown(file, None, group)?;
    }
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode))
}

fn remove_others(directory: &Path, wanted: &BTreeSet<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_others(&entry.path(), wanted)?;
        } else if !wanted.contains(&entry.path()) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn open_to_all(directory: &Path, group: Option<u32>) -> Result<(), Problem> {
    let mode = if group.is_some() { 0o2777 } else { 0o777 };
    let owned = if group.is_some() { chown(directory, None, group) } else { Ok(()) };
    owned
        .and_then(|()| std::fs::set_permissions(directory, std::fs::Permissions::from_mode(mode)))
        .map_err(Problem::io(format!("open {}", directory.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(text: &str) -> Content {
        Content { bytes: text.as_bytes().to_vec(), mode: 0o644 }
    }

    #[test]
    fn a_volume_contains_the_files_of_its_source_and_no_others() {
        let directory = tempfile::tempdir().unwrap();
        let before = Files::from([("a".into(), content("1")), ("b/c".into(), content("2"))]);
        write(directory.path(), &before, None).unwrap();
        let after = Files::from([("b/c".into(), content("3"))]);
        write(directory.path(), &after, None).unwrap();
        assert!(!directory.path().join("a").exists());
        assert_eq!(read(&directory.path().join("b/c"), 0o644), Some(content("3")));
    }

    #[test]
    fn a_file_cannot_be_put_outside_its_volume() {
        for path in ["../up", "/absolute", "a/../../b", "", "."] {
            assert!(inside(path).is_err(), "{path}");
        }
        assert_eq!(inside("a/b").unwrap(), PathBuf::from("a/b"));
    }

    #[test]
    fn a_token_is_replaced_before_it_ends() {
        assert_eq!(renewal(3600), Duration::from_mins(48));
        assert_eq!(renewal(600), Duration::from_mins(8));
        assert_eq!(renewal(10_000_000), Duration::from_hours(24));
    }

    #[test]
    fn only_the_items_that_are_asked_for_are_files() {
        let data = || BTreeMap::from([("a".to_owned(), vec![1]), ("b".to_owned(), vec![2])]);
        let item = KeyToPath { key: "b".to_owned(), mode: Some(0o400), path: "x/y".to_owned() };
        let files = select(data(), Some(std::slice::from_ref(&item)), 0o644).unwrap();
        assert_eq!(files, Files::from([("x/y".into(), Content { bytes: vec![2], mode: 0o400 })]));
        assert_eq!(select(data(), None, 0o644).unwrap().len(), 2);
        let other = KeyToPath { key: "c".to_owned(), ..item };
        assert!(select(data(), Some(&[other]), 0o644).is_err());
    }
}

//! Control groups: the processes of a container, of a service of systemd, or of any other group that the kernel has.
//!
//! No daemon is asked. A container's group has its ID in its name; which name people gave to it is in files of Docker,
//! Podman and containerd.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use rtrace_model::escape;
use serde_json::Value;

/// Where the kernel's groups are.
const ROOT: &str = "/sys/fs/cgroup";
/// A container's ID has this many hexadecimal digits; people use this many of them at least.
const ID_DIGITS: usize = 64;
const FEWEST_DIGITS: usize = 8;

/// What people call a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupName {
    /// A path, from the root or from that of the groups.
    Path(String),
    /// The name or ID of a container, or the beginning of an ID.
    Container(String),
    /// A unit of systemd; a service if its name has no dot.
    Unit(String),
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GroupName::Path(path) => write!(f, "control group `{}`", escape(path)),
            GroupName::Container(container) => write!(f, "container `{}`", escape(container)),
            GroupName::Unit(unit) => write!(f, "unit `{}`", escape(unit)),
        }
    }
}

/// There is no such group.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No group has that name.
    #[error("failed to find {0} among the control groups")]
    NotFound(GroupName),
    /// Several containers have it.
    #[error("failed to choose one of {1} containers with the name `{0}`, or an ID that begins so")]
    Ambiguous(String, usize),
}

impl Error {
    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Error::NotFound(_) => "it must run on this machine; `systemd-cgls` lists control groups".to_owned(),
            Error::Ambiguous(..) => "name its ID, which programs that run containers list (`podman ps`)".to_owned(),
        }
    }
}

/// A control group, with those below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup(Vec<PathBuf>);

impl Cgroup {
    /// The group of that name.
    ///
    /// # Errors
    /// There is none.
    pub fn find(name: &GroupName) -> Result<Cgroup, Error> {
        Cgroup::find_in(Path::new(ROOT), name, &container_ids)
    }

    fn find_in(root: &Path, name: &GroupName, ids: &dyn Fn(&str) -> Vec<String>) -> Result<Cgroup, Error> {
        let found = match name {
            GroupName::Path(path) => {
                let below = hierarchies(root).into_iter().map(|top| top.join(path.trim_start_matches('/')));
                let places = std::iter::once(PathBuf::from(path)).chain(below);
                first_in_use(places.filter(|place| is_group(place)).map(|place| vec![place]))
            }
            GroupName::Unit(unit) => {
                let file = if unit.contains('.') { unit.clone() } else { format!("{unit}.service") };
                first_with(root, &|name| name == file)
            }
            GroupName::Container(container) => {
                let mut known = ids(container);
                if known.is_empty() && container.len() >= FEWEST_DIGITS && is_hexadecimal(container) {
                    known.push(container.to_ascii_lowercase());
                }
                let is_it = |name: &str| id_in(name).is_some_and(|id| known.iter().any(|known| id.starts_with(known)));
                let found = first_with(root, &is_it);
                let distinct: BTreeSet<Option<&str>> = found.iter().map(|folder| id_in(name_of(folder))).collect();
                if distinct.len() > 1 {
                    return Err(Error::Ambiguous(container.clone(), distinct.len()));
                }
                found
            }
        };
        if found.is_empty() { Err(Error::NotFound(name.clone())) } else { Ok(Cgroup(found)) }
    }

    /// The processes that are in it now.
    pub fn members(&self) -> BTreeSet<u32> {
        let mut members = BTreeSet::new();
        let mut folders = self.0.clone();
        while let Some(folder) = folders.pop() {
            let listed = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            // Those of namespaces that we do not see have the number 0.
            members.extend(listed.lines().filter_map(|line| line.parse().ok()).filter(|&pid: &u32| pid != 0));
            folders.extend(groups_in(&folder));
        }
        members
    }

    /// Whether it is there, though it may have no members.
    pub fn exists(&self) -> bool {
        self.0.iter().any(|folder| is_group(folder))
    }
}

fn is_group(folder: &Path) -> bool {
    folder.join("cgroup.procs").is_file()
}

/// The groups right below one.
fn groups_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}

fn name_of(folder: &Path) -> &str {
    folder.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// The roots of all groups: one, or with version 1 one for each kind of resource. systemd's come first.
fn hierarchies(root: &Path) -> Vec<PathBuf> {
    if is_group(root) {
        return vec![root.to_owned()];
    }
    let mut tops = groups_in(root);
    tops.sort_by_key(|top| (!["unified", "systemd"].contains(&name_of(top)), top.clone()));
    tops
}

/// The outermost groups with such a name, in one hierarchy.
fn first_with(root: &Path, is_meant: &dyn Fn(&str) -> bool) -> Vec<PathBuf> {
    let among = |top: PathBuf| {
        let (mut found, mut folders) = (Vec::new(), vec![top]);
        while let Some(folder) = folders.pop() {
            let (meant, others): (Vec<_>, Vec<_>) =
                groups_in(&folder).into_iter().partition(|below| is_meant(name_of(below)) && is_group(below));
            found.extend(meant);
            folders.extend(others);
        }
        found
    };
    first_in_use(hierarchies(root).into_iter().map(among).filter(|found| !found.is_empty()))
}

/// Of the same groups in several hierarchies the first that have a process, else the first: with version 1, a process may be
/// in a group of one hierarchy, and in the roots of the others.
fn first_in_use(of_hierarchies: impl Iterator<Item = Vec<PathBuf>>) -> Vec<PathBuf> {
    let mut found: Vec<Vec<PathBuf>> = of_hierarchies.collect();
    let used = found.iter().position(|groups| !Cgroup(groups.clone()).members().is_empty());
    if found.is_empty() { Vec::new() } else { found.swap_remove(used.unwrap_or(0)) }
}

/// The container's ID in the name of a group, which may have a prefix (`docker-`) and `.scope`. What watches a container
/// of Podman or CRI-O has a group of its own.
fn id_in(name: &str) -> Option<&str> {
    let id = name.trim_end_matches(".scope").rsplit(['-', ':']).next()?;
    (id.len() == ID_DIGITS && is_hexadecimal(id) && !name.contains("conmon")).then_some(id)
}

fn is_hexadecimal(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The IDs of the containers of that name.
fn container_ids(name: &str) -> Vec<String> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let podman = [Path::new("/var/lib/containers").to_owned(), home.join(".local/share/containers")];
    let podman = podman.iter().flat_map(|folder| of_podman(&folder.join("storage")));
    let docker = groups_in(Path::new("/var/lib/docker/containers")).into_iter();
    let docker = docker.filter_map(|folder| json(&folder.join("config.v2.json")));
    let containerd = groups_in(Path::new("/run/containerd/io.containerd.runtime.v2.task")).into_iter();
    let containerd = containerd.flat_map(|namespace| groups_in(&namespace)).filter_map(|folder| {
        let mut container = json(&folder.join("config.json"))?;
        container["id"] = name_of(&folder).into();
        Some(container)
    });
    podman.chain(docker).chain(containerd).filter_map(|container| id_if_named(&container, name)).collect()
}

/// The containers that Podman keeps there: in a folder for each way to store them (`overlay-containers`, `vfs-containers`).
fn of_podman(storage: &Path) -> Vec<Value> {
    let folders = groups_in(storage).into_iter().filter(|folder| name_of(folder).ends_with("-containers"));
    let lists = folders.filter_map(|folder| json(&folder.join("containers.json")));
    lists.flat_map(|list| list.as_array().cloned().unwrap_or_default()).collect()
}

fn json(file: &Path) -> Option<Value> {
    serde_json::from_slice(&fs::read(file).ok()?).ok()
}

/// The ID of a container as Podman (`names`), Docker (`Name`) or containerd (`annotations`) describe it, if that is its name.
fn id_if_named(container: &Value, name: &str) -> Option<String> {
    let annotation = |key: &str| container["annotations"][key].as_str();
    let listed = container["names"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut names = listed
        .chain(container["Name"].as_str().map(|name| name.trim_start_matches('/')))
        .chain(annotation("nerdctl/name"))
        .chain(annotation("io.kubernetes.cri.container-name"));
    let id = container["id"].as_str().or(container["ID"].as_str())?;
    names.any(|known| known == name).then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;

    /// Groups with these processes.
    fn groups(listed: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, processes) in listed {
            let folder = root.path().join(path);
            fs::create_dir_all(&folder).unwrap();
            for above in folder.ancestors().take_while(|above| *above != root.path()) {
                let file = above.join("cgroup.procs");
                if above == folder || !file.exists() {
                    fs::write(file, if above == folder { processes } else { "" }).unwrap();
                }
            }
        }
        root
    }

    fn find(root: &tempfile::TempDir, name: GroupName) -> Result<Vec<u32>, String> {
        let ids = |name: &str| if name == "web" { vec!["ab".repeat(32)] } else { Vec::new() };
        let found = Cgroup::find_in(root.path(), &name, &ids).map_err(|error| error.to_string())?;
        Ok(found.members().into_iter().collect())
    }

    #[test]
    fn containers_are_found_by_name_and_by_the_beginning_of_their_id() {
        let (web, other) = ("ab".repeat(32), "abababab0".to_owned() + &"1".repeat(55));
        let root = groups(&[
            ("memory/machine.slice", ""),
            (&format!("unified/machine.slice/libpod-{web}.scope/container"), "7\n0\n"),
            (&format!("unified/machine.slice/libpod-conmon-{web}.scope"), "5\n"),
            (&format!("memory/machine.slice/libpod-{web}.scope"), "8\n"),
            (&format!("unified/docker/{other}"), "9\n"),
        ]);
        let container = |name: &str| find(&root, GroupName::Container(name.to_owned()));
        assert_eq!(container("web"), Ok(vec![7]));
        assert_eq!(container(&web[..12]), Ok(vec![7]));
        assert_eq!(container(&other), Ok(vec![9]));
        assert!(container("abababab").unwrap_err().contains("one of 2 containers"));
        assert!(container("abab").unwrap_err().contains("failed to find container `abab`"));
        assert!(container("").unwrap_err().contains("failed to find"));
    }

    #[test]
    fn units_and_paths_are_found_with_the_groups_below_them() {
        let root = groups(&[("system.slice/nginx.service/a", "3\n4\n"), ("system.slice/nginx.service", "2\n")]);
        fs::write(root.path().join("cgroup.procs"), "1\n").unwrap();
        assert_eq!(find(&root, GroupName::Unit("nginx".to_owned())), Ok(vec![2, 3, 4]));
        assert_eq!(find(&root, GroupName::Unit("nginx.service".to_owned())), Ok(vec![2, 3, 4]));
        let missing = find(&root, GroupName::Unit("ngin".to_owned())).unwrap_err();
        assert_eq!(missing, "failed to find unit `ngin` among the control groups");
        let path = |path: &str| find(&root, GroupName::Path(path.to_owned()));
        assert_eq!(path("/system.slice/nginx.service/a"), Ok(vec![3, 4]));
        let absolute = root.path().join("system.slice/nginx.service");
        assert_eq!(path(absolute.to_str().unwrap()), Ok(vec![2, 3, 4]));
        assert!(path("system.slice/none").is_err());
        let group = Cgroup(vec![absolute.clone()]);
        fs::remove_dir_all(absolute).unwrap();
        assert!(!group.exists() && group.members().is_empty());
    }

    #[test]
    fn of_several_hierarchies_the_one_with_processes_counts() {
        let root = groups(&[
            ("systemd/system.slice/web.service", ""),
            ("freezer/slurm/uid_7/job_1/step_0", ""),
            ("memory/slurm/uid_7/job_1/step_0", "3\n"),
            ("memory/slurm/uid_7/job_1/step_batch", "4\n"),
            ("unified/system.slice/slurmstepd.scope/job_2/step_0/user/task_0", "5\n"),
        ]);
        let path = |path: &str| find(&root, GroupName::Path(path.to_owned()));
        assert_eq!(path("/slurm/uid_7/job_1"), Ok(vec![3, 4]));
        assert_eq!(path("/system.slice/slurmstepd.scope/job_2"), Ok(vec![5]));
        assert_eq!(find(&root, GroupName::Unit("web".to_owned())), Ok(Vec::new()));
    }

    #[test]
    fn podman_is_asked_however_it_stores_containers() {
        let storage = tempfile::tempdir().unwrap();
        for (folder, id) in [("vfs-containers", "1"), ("overlay-containers", "2"), ("vfs-images", "3")] {
            fs::create_dir(storage.path().join(folder)).unwrap();
            let list = json!([{ "id": id, "names": ["web"] }]).to_string();
            fs::write(storage.path().join(folder).join("containers.json"), list).unwrap();
        }
        let mut ids: Vec<_> = of_podman(storage.path()).iter().filter_map(|of| id_if_named(of, "web")).collect();
        ids.sort_unstable();
        assert_eq!(ids, ["1", "2"]);
    }

    #[test]
    fn names_are_read_from_what_runtimes_write() {
        let named = |container: Value| id_if_named(&container, "web").as_deref() == Some("1");
        assert!(named(json!({ "id": "1", "names": ["a", "web"] })));
        assert!(named(json!({ "ID": "1", "Name": "/web" })));
        assert!(named(json!({ "id": "1", "annotations": { "nerdctl/name": "web" } })));
        assert!(!named(json!({ "id": "1", "names": ["webs"] })) && !named(json!({ "names": ["web"] })));
        assert!(!named(json!([1])) && !named(json!("web")));
    }
}

//! The kernel's tracepoints, by name.

use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// Where the kernel shows them: the usual place, and that of older systems.
const FOLDERS: [&str; 2] = ["/sys/kernel/tracing/events", "/sys/kernel/debug/tracing/events"];

/// The folder of all tracepoints.
pub struct Tracepoints {
    folder: PathBuf,
    /// A mount that only this process sees, where there is no other.
    _mount: Option<OwnedFd>,
}

impl Tracepoints {
    /// Finds it; none where the kernel has none, or does not show them to us.
    pub fn find() -> Option<Tracepoints> {
        let mounted = FOLDERS.into_iter().find(|folder| fs::exists(folder).unwrap_or(false));
        match mounted {
            Some(folder) => Some(Tracepoints { folder: folder.into(), _mount: None }),
            None => Tracepoints::mount().ok(),
        }
    }

    fn mount() -> rustix::io::Result<Tracepoints> {
        let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&context)?;
        let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_RDONLY)?;
        let folder = format!("/proc/self/fd/{}/events", mount.as_raw_fd()).into();
        Ok(Tracepoints { folder, _mount: Some(mount) })
    }

    /// The number of a tracepoint, by which an event of it is opened.
    pub fn id(&self, group: &str, event: &str) -> Option<u64> {
        let path = self.folder.join(group).join(event).join("id");
        fs::read_to_string(path).ok()?.trim().parse().ok()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        let entries = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten();
        let events = entries(self.folder.clone()).flat_map(|group| entries(group.path()));
        events.filter(|event| event.path().join("id").exists()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_of_our_own_shows_what_the_usual_one_does() {
        let Ok(own) = Tracepoints::mount() else { return println!("skipped: it takes root to mount") };
        assert!(own.count() > 100, "{}", own.count());
        assert!(own.id("sched", "sched_switch").is_some());
        assert_eq!(own.id("sched", "no_such_event"), None);
        assert_eq!(Tracepoints::find().map(|any| any.count()), Some(own.count()));
    }
}

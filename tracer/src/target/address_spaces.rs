//! What address spaces map, by address: a space is read when an address is not found in what is known of it, and only
//! once until it may have changed.
//!
//! Threads share what they have read: one that looks later than another finds what the other saw, also where the
//! process has ended meanwhile. What was mapped earlier is in the [history](crate::target::mapping_history).

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rtrace_symbolizer::modules::{self, Module};

use crate::target::mapping_history::MappingHistory;

/// The files of a space.
type SpaceFiles = Arc<[Module]>;

/// The address spaces of the traced processes, by their numbers: an exec makes another one.
#[derive(Default)]
pub struct AddressSpaces {
    known: HashMap<u32, SpaceFiles>,
    /// Those that were read since they may have changed.
    fresh: HashSet<u32>,
    /// Of how many forgotten spaces this thread knows.
    forgotten: u64,
    history: MappingHistory,
    shared: Arc<Mutex<SharedSpaces>>,
}

/// What any thread knows.
#[derive(Default)]
struct SharedSpaces {
    /// The spaces as they were seen last.
    files: HashMap<u32, SpaceFiles>,
    /// The same of forgotten ones: most of it is still so.
    stale: HashMap<u32, SpaceFiles>,
    /// How often a space was forgotten.
    forgotten: u64,
}

impl AddressSpaces {
    /// The same for another thread.
    pub fn share(&self) -> AddressSpaces {
        let (history, shared) = (self.history.clone(), Arc::clone(&self.shared));
        AddressSpaces { history, shared, ..AddressSpaces::default() }
    }

    /// What the processes have mapped, and when.
    pub fn history(&self) -> &MappingHistory {
        &self.history
    }

    /// From now on what is not found is looked for once more.
    pub fn may_have_changed(&mut self) {
        self.fresh.clear();
    }

    /// Other files are mapped in a space than were: it is read again when any thread next asks about it.
    pub fn forget(&mut self, space: u32) {
        let mut shared = self.shared();
        if let Some(files) = shared.files.remove(&space) {
            shared.stale.insert(space, files);
        }
        shared.forgotten += 1;
    }

    /// Whether a space was forgotten since this thread last asked.
    pub fn was_any_forgotten(&mut self) -> bool {
        let forgotten = self.shared().forgotten;
        std::mem::replace(&mut self.forgotten, forgotten) != forgotten
    }

    /// Lets go of what other threads have forgotten.
    fn follow(&mut self) {
        let AddressSpaces { known, fresh, forgotten, shared, .. } = self;
        let shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(forgotten, shared.forgotten) != shared.forgotten {
            known.retain(|space, files| shared.files.get(space).is_some_and(|newest| Arc::ptr_eq(newest, files)));
            fresh.retain(|space| known.contains_key(space));
        }
    }

    /// Whether a space was read at all; one whose process has ended before was not.
    pub fn is_known(&self, space: u32) -> bool {
        self.known.contains_key(&space)
    }

    /// The file that a process maps at an address, and the offset in it; none where there is no file, or the process
    /// has ended before anybody looked. `met` gets those of the space's files that are new here.
    pub fn find(
        &mut self,
        pid: u32,
        space: u32,
        address: u64,
        mut met: impl FnMut(Vec<&Module>),
    ) -> Option<(&Module, u64)> {
        self.follow();
        if !self.has(space, address) && self.fresh.insert(space) {
            let seen = self.shared().files.get(&space).cloned();
            if let Some(files) = seen {
                self.learn(space, files, &mut met);
            }
            if !self.has(space, address)
                && let Ok(files) = modules::of_process_again(pid, &self.known_before(space))
            {
                let files = SpaceFiles::from(files);
                self.shared().files.insert(space, Arc::clone(&files));
                self.learn(space, files, &mut met);
            }
        }
        find(self.known.get(&space)?, address)
    }

    /// The files of a space as any thread has read them last.
    fn known_before(&self, space: u32) -> SpaceFiles {
        let shared = self.shared();
        shared.files.get(&space).or_else(|| shared.stale.get(&space)).cloned().unwrap_or_default()
    }

    /// The files of a space as they were last read here.
    pub fn files(&self, space: u32) -> Option<Arc<[Module]>> {
        self.known.get(&space).cloned()
    }

    /// A process was just forked: it maps what its parent does.
    pub fn inherit(&mut self, pid: u32, space: u32, parent: u32) {
        self.follow();
        let of_parent = self.known.get(&parent).cloned();
        let Some(files) = of_parent.or_else(|| Some(modules::of_process(pid).ok()?.into())) else { return };
        self.shared().files.insert(space, Arc::clone(&files));
        self.known.insert(space, files);
    }

    fn has(&self, space: u32, address: u64) -> bool {
        self.known.get(&space).is_some_and(|files| find(files, address).is_some())
    }

    fn learn(&mut self, space: u32, files: SpaceFiles, met: &mut impl FnMut(Vec<&Module>)) {
        let known = self.known.insert(space, Arc::clone(&files)).unwrap_or_default();
        if !Arc::ptr_eq(&known, &files) {
            let id = |module: &Module| (module.pid, module.device, module.inode);
            let known: HashSet<_> = known.iter().map(id).collect();
            met(files.iter().filter(|module| !known.contains(&id(module))).collect());
        }
    }

    fn shared(&self) -> MutexGuard<'_, SharedSpaces> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The file that is mapped at an address, and the offset in it.
pub fn find(modules: &[Module], address: u64) -> Option<(&Module, u64)> {
    modules.iter().find_map(|module| {
        let offset = module.mappings.iter().find_map(|mapping| mapping.offset_of(address))?;
        Some((module, offset))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::io::Read as _;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_space_is_read_once_until_it_may_have_changed() {
        let pid = std::process::id();
        let (mut spaces, mut reads) = (AddressSpaces::default(), 0);
        let own = find as *const () as u64;
        let (program, offset) = spaces.find(pid, 1, own, |_| reads += 1).unwrap();
        assert_eq!(program.path, std::env::current_exe().unwrap());
        assert!(offset > 0);
        assert!(spaces.find(pid, 1, own + 1, |_| reads += 1).is_some());
        assert!(spaces.find(pid, 1, 8, |_| reads += 1).is_none());
        assert_eq!(reads, 1, "what is not there is not looked for again");
        spaces.may_have_changed();
        assert!(spaces.find(pid, 1, own, |_| reads += 1).is_some());
        assert_eq!(reads, 1, "what is known is not read again");
        assert!(spaces.find(pid, 1, 8, |_| reads += 1).is_none());
        assert_eq!(reads, 2);
    }

    #[test]
    fn what_one_thread_has_read_another_finds_after_the_end_of_the_process() {
        let mut program = Command::new("sh");
        let mut child =
            program.args(["-c", "echo; read line"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // Before it says something, it may not have mapped anything.
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let (pid, spaces) = (child.id(), AddressSpaces::default());
        let code = modules::of_process(pid).unwrap()[0].mappings[0].start;
        let (mut first, mut second) = (spaces.share(), spaces.share());
        assert!(first.find(pid, 1, code, |_| ()).is_some());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(second.find(pid, 1, code, |_| ()).is_some());
        assert!(second.find(pid, 2, code, |_| ()).is_none(), "nobody has read that space");
    }

    #[test]
    fn what_one_thread_forgets_others_read_again() {
        let (spaces, own, mut reads) = (AddressSpaces::default(), find as *const () as u64, 0);
        let (mut first, mut second) = (spaces.share(), spaces.share());
        assert!(first.find(std::process::id(), 1, own, |_| ()).is_some());
        second.forget(1);
        assert!(first.find(std::process::id(), 1, own, |_| reads += 1).is_some());
        assert_eq!(reads, 1);
    }

    #[test]
    fn a_process_that_is_not_there_has_no_space() {
        let mut spaces = AddressSpaces::default();
        assert!(spaces.find(u32::MAX, 1, 8, |_| ()).is_none());
        assert!(!spaces.is_known(1));
    }
}

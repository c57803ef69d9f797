//! What address spaces map, by address: a space is read when an address is not found in what is known of it, and only
//! once until it may have changed.

use std::collections::{HashMap, HashSet};

use rtrace_symbolizer::modules::{self, Module};

/// The address spaces of the traced processes, by their numbers: an exec makes another one.
#[derive(Default)]
pub struct AddressSpaces {
    known: HashMap<u32, Vec<Module>>,
    /// Those that were read since they may have changed.
    fresh: HashSet<u32>,
}

impl AddressSpaces {
    /// From now on what is not found is looked for once more.
    pub fn may_have_changed(&mut self) {
        self.fresh.clear();
    }

    /// Whether a space was read at all; one whose process has ended before was not.
    pub fn is_known(&self, space: u32) -> bool {
        self.known.contains_key(&space)
    }

    /// The file that a process maps at an address, and the offset in it; none where there is no file, or the process
    /// has ended. `read` gets the files of the space whenever they are read.
    pub fn find(&mut self, pid: u32, space: u32, address: u64, read: impl FnOnce(&[Module])) -> Option<(&Module, u64)> {
        let is_found = self.known.get(&space).is_some_and(|modules| find(modules, address).is_some());
        if !is_found && self.fresh.insert(space) {
            let modules = modules::of_process(pid).ok()?;
            read(&modules);
            self.known.insert(space, modules);
        }
        find(self.known.get(&space)?, address)
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
    fn a_process_that_is_not_there_has_no_space() {
        let mut spaces = AddressSpaces::default();
        assert!(spaces.find(u32::MAX, 1, 8, |_| ()).is_none());
        assert!(!spaces.is_known(1));
    }
}

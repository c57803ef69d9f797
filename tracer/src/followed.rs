//! The processes with probes: each has links of its own, so that no other process has a breakpoint.
//!
//! A child inherits the breakpoints with the memory of its parent, but the kernel runs no program there
//! before the child has links, too. They are placed as soon as the kernel side tells of the fork, for which
//! the kernel takes some tens of milliseconds. What a child calls before that in a library that
//! it maps is not on record; such a blind window is told. Links outlive an exec, and where there is a gate
//! (`gate`) a child executes another program only once they are placed: that has its probes before it maps
//! a library.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rtrace_bpf::{EVERYWHERE, Error, Probes, Programs};
use rtrace_model::{Library, Timestamp};
use rtrace_symbolizer::modules;

use crate::attach::{Attachment, Closing, Placed};
use crate::privilege;

/// A process whose calls of a library were not recorded for a time.
pub struct BlindChild {
    /// The process.
    pub pid: u32,
    /// The library.
    pub library: Library,
    /// When it was forked, or lost its probes.
    pub since: Timestamp,
}

#[derive(Default)]
struct State {
    pids: Vec<u32>,
    placed: Vec<Placed>,
    /// Those of children.
    probes: HashMap<u32, Vec<Probes>>,
    blind: Vec<BlindChild>,
    /// Probes of children that have ended.
    closing: Closing,
}

impl State {
    /// The process has run without probes in what it maps.
    fn tell_blind_by_mapping(&mut self, pid: u32, image: Option<u32>, since: Timestamp) {
        // What it maps now it may have mapped all the time; of one that has ended, nothing else is known.
        let mapped = |pid| modules::of_process(pid).ok().filter(|modules| !modules.is_empty());
        let modules = mapped(pid).or_else(|| mapped(image?)).unwrap_or_default();
        self.tell_blind(pid, since, |library| {
            modules.is_empty()
                || modules.iter().any(|module| (module.device, module.inode) == (library.device, library.inode))
        });
    }

    /// The process has run without probes in these of the libraries.
    fn tell_blind(&mut self, pid: u32, since: Timestamp, is_meant: impl Fn(&Library) -> bool) {
        let mut libraries: Vec<&Library> = self.placed.iter().map(|placed| &*placed.library).collect();
        libraries.dedup_by_key(|library| library.id);
        let blind = libraries.into_iter().filter(|library| is_meant(library)).cloned();
        self.blind.extend(blind.map(|library| BlindChild { pid, library, since }));
    }
}

/// All processes with probes.
pub struct Followed<'a> {
    programs: &'a Programs,
    state: Mutex<State>,
}

impl<'a> Followed<'a> {
    /// The processes that have probes from the beginning; all there are, if `everywhere`.
    pub fn new(programs: &'a Programs, pids: &[u32], everywhere: bool) -> Followed<'a> {
        let pids = if everywhere { vec![EVERYWHERE] } else { pids.to_vec() };
        Followed { programs, state: Mutex::new(State { pids, ..State::default() }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Places probes in all processes, and in those that follow: `attach` does so in those that are given.
    ///
    /// # Errors
    /// Those of `attach`.
    pub fn attach<E>(&self, attach: impl FnOnce(&[u32]) -> Result<Attachment, E>) -> Result<Attachment, E> {
        let mut state = self.state();
        let attachment = attach(&state.pids)?;
        state.placed.extend(attachment.placed.iter().cloned());
        Ok(attachment)
    }

    /// Places probes in a child that was forked at that time; `image`: the process whose program it has, if
    /// it cannot have executed another one.
    ///
    /// # Errors
    /// The kernel refuses probes, though the child runs.
    pub fn adopt(&self, pid: u32, image: Option<u32>, since: Timestamp) -> Result<(), Error> {
        let mut state = self.state();
        if state.pids.contains(&EVERYWHERE) {
            return Ok(());
        }
        let mut probes = Vec::with_capacity(state.placed.len());
        for placed in &state.placed {
            match placed.place(self.programs, pid) {
                Ok(placed) => probes.push(placed),
                Err(error) if error.is_gone() => break,
                Err(error) => return Err(error),
            }
        }
        state.probes.insert(pid, probes);
        state.pids.push(pid);
        state.tell_blind_by_mapping(pid, image, since);
        Ok(())
    }

    /// Recording ends before a child that was forked at that time has got its probes; `image` as for
    /// [`adopt`](Followed::adopt).
    pub fn miss(&self, pid: u32, image: Option<u32>, since: Timestamp) {
        let mut state = self.state();
        if !state.pids.contains(&EVERYWHERE) {
            state.tell_blind_by_mapping(pid, image, since);
        }
    }

    /// A process has lost its probes: one of its threads that is not the first has executed a program, and goes on
    /// as a first one that the kernel does not know them of. Placed again, they would be hit with the old ones.
    pub fn lose(&self, pid: u32, since: Timestamp) {
        let mut state = self.state();
        if !state.pids.contains(&EVERYWHERE) {
            state.tell_blind(pid, since, |_| true);
        }
    }

    /// Takes out the probes of processes that have ended: all but these, of which records tell, and children
    /// of which none tells yet.
    pub fn keep(&self, living: &[u32]) {
        let mut state = self.state();
        let lives = |pid: &u32| living.contains(pid) || privilege::check_process(*pid).is_ok();
        state.pids.retain(|pid| *pid == EVERYWHERE || lives(pid));
        let ended: Vec<u32> = state.probes.keys().filter(|pid| !state.pids.contains(pid)).copied().collect();
        let probes = ended.iter().filter_map(|pid| state.probes.remove(pid)).flatten().collect();
        state.closing.close(probes);
    }

    /// Whether a process has probes.
    pub fn contains(&self, pid: u32) -> bool {
        let state = self.state();
        state.pids.contains(&pid) || state.pids.contains(&EVERYWHERE)
    }

    /// The blind windows since the last call.
    pub fn take_blind(&self) -> Vec<BlindChild> {
        std::mem::take(&mut self.state().blind)
    }

    /// The probes of children, to be taken out.
    pub fn into_probes(self) -> Vec<Probes> {
        let State { probes, closing, .. } = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        closing.finish();
        probes.into_values().flatten().collect()
    }
}

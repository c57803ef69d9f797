//! What led to the places at which CPU time was sampled: walks through copies of the stacks.
//!
//! A clock interrupts code anywhere, not where calls return to, so the kernel side knows no rules. Samples are few: each has its
//! stack copied, and all of the walk is done here. Python's frames are not looked for: its interpreter stays functions of C.

use std::collections::HashMap;

use rtrace_bpf::wire::{ContextEnd, PlaceKey};
use rtrace_bpf::{Error, Programs, Rest};
use rtrace_model::{ContextEnding, ContextId, UnwindRule};
use rtrace_symbolizer::modules::{self, Module};

use crate::host;
use crate::record::contexts::{ContextPlace, ContextTables, FoundContext, FoundContexts, StackWalk, ending_of};
use crate::target::address_spaces;

/// Contexts of calls never have numbers from here on.
const FIRST_CONTEXT: u32 = 1 << 30;

/// Who walks the stacks of samples.
pub struct SampleStacks<'a> {
    programs: &'a Programs,
    found: &'a FoundContexts,
    tables: ContextTables,
    /// The contexts so far, by address space and places.
    known: HashMap<(u32, Vec<u64>, &'static str), ContextId>,
}

impl<'a> SampleStacks<'a> {
    /// None yet.
    pub fn new(programs: &'a Programs, found: &'a FoundContexts) -> SampleStacks<'a> {
        SampleStacks { programs, found, tables: ContextTables::as_needed(), known: HashMap::new() }
    }

    /// The places of samples with what led there; that is not known of processes that have ended.
    ///
    /// # Errors
    /// A map of the programs cannot be read.
    pub fn walk(&mut self, samples: Vec<(PlaceKey, Rest)>) -> Result<Vec<(PlaceKey, u64, Option<ContextId>)>, Error> {
        // What is mapped may have changed since the last samples.
        let mut mapped: HashMap<u32, Vec<Module>> = HashMap::new();
        let mut walked = Vec::with_capacity(samples.len());
        for (place, stack) in samples {
            let pid = place.process;
            let modules = mapped.entry(pid).or_insert_with(|| modules::of_process(pid).unwrap_or_default());
            let space = self.programs.space(pid)?.filter(|_| !modules.is_empty());
            let context = space.map(|space| self.context(&place, space, &stack, modules));
            walked.push((place, 1, context));
        }
        Ok(walked)
    }

    fn context(&mut self, place: &PlaceKey, space: u32, stack: &Rest, modules: &[Module]) -> ContextId {
        let levels = self.programs.levels() as usize;
        // In the kernel, the code of the process is what led there.
        let addresses = if place.in_kernel == 0 { Vec::new() } else { vec![stack.word] };
        let mut walk = StackWalk::new(addresses);
        let end = walk.go_on(stack, levels, |address| match address_spaces::find(modules, address) {
            Some((module, offset)) => self.tables.of(module).map_or(UnwindRule::Unknown, |tables| tables.rule(offset)),
            None => UnwindRule::Unknown,
        });
        let ending = match end {
            // The copy ends before the stack.
            ContextEnd::RT_CONTEXT_ASKED => ContextEnding::Cut,
            end => ending_of(end),
        };
        let addresses = walk.into_addresses();
        let next = ContextId(FIRST_CONTEXT + self.known.len() as u32);
        let id = *self.known.entry((space, addresses.clone(), ending.name())).or_insert(next);
        if id == next {
            let places = addresses.into_iter().map(ContextPlace::Address).collect();
            let context = FoundContext { id: id.0, pid: place.process, space, time: host::now(), places, ending };
            self.found.add(vec![context], 0);
        }
        id
    }
}

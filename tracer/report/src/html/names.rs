//! The functions that a page names, each once, with what is known of its probes.

use std::collections::HashMap;

use rtrace_exporters::TraceSet;
use rtrace_model::{Region, RegionId};
use serde_json::{Value, json};

/// Longest name on a page, in characters: C++ has some of ten thousands.
const LONGEST: usize = 600;

/// Most names of one function.
const ALIASES: usize = 8;

/// Gives the functions of a page their numbers.
pub(super) struct PageNames<'a> {
    trace: &'a TraceSet,
    places: HashMap<(Option<RegionId>, String), usize>,
    told: Vec<Value>,
}

impl<'a> PageNames<'a> {
    pub(super) fn new(trace: &'a TraceSet) -> PageNames<'a> {
        PageNames { trace, places: HashMap::new(), told: Vec::new() }
    }

    /// The number of a function.
    pub(super) fn of(&mut self, id: RegionId) -> usize {
        let name = self.trace.region(id).map_or("[unknown]", |region| region.name.as_str());
        self.place(Some(id), name)
    }

    /// The number of a row of a report: of a function, or of what else has that name.
    pub(super) fn place(&mut self, region: Option<RegionId>, name: &str) -> usize {
        if let Some(&place) = self.places.get(&(region, name.to_owned())) {
            return place;
        }
        self.told.push(self.described(region.and_then(|id| self.trace.region(id)), name));
        self.places.insert((region, name.to_owned()), self.told.len() - 1);
        self.told.len() - 1
    }

    fn described(&self, region: Option<&Region>, name: &str) -> Value {
        let Some(region) = region else { return json!([cut(name), -1]) };
        let library = self.trace.libraries().iter().position(|library| library.id == region.library);
        let symbols = region.symbols.iter().take(ALIASES).map(|symbol| match &symbol.version {
            Some(version) => cut(&format!("{}@{version}", symbol.symbol)),
            None => cut(&symbol.symbol),
        });
        json!([
            cut(name),
            library.map_or(-1, |place| place as i64),
            region.exit.name(),
            entry(region),
            region.file_offset,
            region.size,
            symbols.filter(|symbol| symbol != name).collect::<Vec<_>>(),
        ])
    }

    pub(super) fn into_told(self) -> Vec<Value> {
        self.told
    }
}

/// How the kernel comes past the probed instruction at a function's entry.
pub(super) fn entry(region: &Region) -> &'static str {
    match region {
        Region { stub: true, .. } => "stub",
        Region { single_stepped: true, .. } => "single-stepped",
        Region { written: true, .. } => "executed by BPF",
        _ => "emulated",
    }
}

/// A name that is not too long for a page.
pub(super) fn cut(name: &str) -> String {
    match name.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

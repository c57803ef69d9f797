//! Which slots of a file lead to traced functions.
//!
//! A slot that the dynamic linker has filled says so itself. Any other is judged by its name, by
//! the dynamic linker's rules: the first file that defines the name in the right version is the one
//! that is called, wherever the function is traced. A wrong guess costs a useless probe.

use std::sync::OnceLock;

use foldhash::{HashMap, HashSet};
use rtrace_code::arrival::Keeps;
use rtrace_code::parallel;
use rtrace_symbolizer::{DynamicDefinition, OwnSlot, Slot};

use super::{CodeFile, Files, TracedFunctions};

/// What defines the names of traced functions, by file.
pub type NameDefinitions<'a> = Vec<Vec<LinkCandidate<'a>>>;

/// A definition of a name that a traced function has, too.
#[derive(Clone, Copy)]
pub struct LinkCandidate<'a> {
    definition: DynamicDefinition<'a>,
    /// What is read at returns of the traced function, or of one of several; none where it is not traced.
    traced: Option<Keeps>,
}

impl LinkCandidate<'_> {
    /// Whether the dynamic linker takes it for this slot.
    fn fits(&self, slot: &Slot) -> bool {
        match (slot.version, self.definition.version) {
            (Some(wanted), Some(version)) => wanted == version,
            (None, Some(_)) => self.definition.is_default,
            (_, None) => true,
        }
    }
}

/// Where the word in a slot of a file leads.
pub enum Word {
    /// To a traced function, with what is read of its calls at a return.
    Traced(Keeps),
    /// To other code of the file itself, at this file offset. There, the dynamic linker is called if
    /// it has not filled the slot yet.
    Own(u64),
    /// To anything else.
    Foreign,
    /// It is not known.
    Unknown,
}

/// How the files of one program are linked.
pub struct Linkage<'a> {
    pub files: &'a Files,
    pub traced: &'a TracedFunctions<'a>,
    /// The same for all programs of these files.
    names: &'a OnceLock<NameDefinitions<'a>>,
    /// Indexes of files, in the order in which names are looked for.
    order: Vec<usize>,
    /// What defines a name, in that order.
    scope: OnceLock<HashMap<&'a str, Vec<LinkCandidate<'a>>>>,
}

impl<'a> Linkage<'a> {
    pub fn new(
        files: &'a Files,
        traced: &'a TracedFunctions<'a>,
        names: &'a OnceLock<NameDefinitions<'a>>,
        order: Vec<usize>,
    ) -> Linkage<'a> {
        Linkage { files, traced, names, order, scope: OnceLock::new() }
    }

    /// The virtual addresses of the slots of a file that lead to traced functions, with what is read of those calls at a
    /// return.
    ///
    /// `named` are the file's slots for functions by name; `word` says what is in the slot at an address.
    pub fn slots(&self, file: usize, named: &[Slot], word: impl Fn(u64) -> Word) -> Vec<(u64, Keeps)> {
        let CodeFile { image, entries, .. } = &self.files.all[file];
        let by_name = |slot: &Slot| match word(slot.address) {
            Word::Traced(keeps) => Some(keeps),
            Word::Foreign => None,
            Word::Own(place) if slot.own.and_then(|own| image.file_offset(own)) == Some(place) => None,
            Word::Own(_) | Word::Unknown => self.named(file, slot),
        };
        let chosen = |slot: &OwnSlot| match word(slot.address) {
            Word::Traced(keeps) => Some(keeps),
            Word::Own(_) | Word::Foreign => None,
            Word::Unknown => self.chosen(file, slot.target),
        };
        let own = |slot: &OwnSlot| match slot.is_chosen {
            true => chosen(slot),
            false => entries.get(&slot.target).copied(),
        };
        let named = named.iter().filter_map(|slot| Some((slot.address, by_name(slot)?)));
        named.chain(image.own_slots().filter_map(|slot| Some((slot.address, own(&slot)?)))).collect()
    }

    /// What is read at returns of the traced function to which the dynamic linker leads this slot of a file; none where
    /// it leads to no such.
    fn named(&self, file: usize, slot: &Slot) -> Option<Keeps> {
        let is_meant = |candidate: &&LinkCandidate| candidate.definition.name == slot.name && candidate.fits(slot);
        let own = || match self.files.all[file].image.is_symbolic() {
            true => self.names()[file].iter().find(is_meant),
            false => None,
        };
        let found = self.scope().get(slot.name);
        found.and_then(|found| own().or_else(|| found.iter().find(is_meant)))?.traced
    }

    /// The same of the implementation that the resolver at this address of a file chooses.
    fn chosen(&self, file: usize, resolver: u64) -> Option<Keeps> {
        let is_meant = |found: &&LinkCandidate| found.definition.is_ifunc && found.definition.address == resolver;
        self.names()[file].iter().filter(is_meant).filter_map(|found| found.traced).reduce(Keeps::or)
    }

    fn scope(&self) -> &HashMap<&'a str, Vec<LinkCandidate<'a>>> {
        self.scope.get_or_init(|| {
            let mut scope: HashMap<&str, Vec<LinkCandidate>> = HashMap::default();
            for &candidate in self.order.iter().flat_map(|&file| &self.names()[file]) {
                scope.entry(candidate.definition.name).or_default().push(candidate);
            }
            scope
        })
    }

    fn names(&self) -> &'a NameDefinitions<'a> {
        self.names.get_or_init(|| {
            let (files, traced) = (self.files, self.traced);
            let mut wanted = HashSet::default();
            for file in files.all.iter().filter(|file| traced.files.contains_key(&file.id)) {
                let definitions = file.image.definitions();
                let behind =
                    definitions.filter(|definition| traced.keeps_behind(file.id, &file.image, definition).is_some());
                wanted.extend(behind.map(|definition| definition.name));
            }
            let all: Vec<&CodeFile> = files.all.iter().collect();
            parallel::map(&all, |file| {
                let definitions = file.image.definitions().filter(|definition| wanted.contains(definition.name));
                let candidate = |definition| {
                    let traced = traced.keeps_behind(file.id, &file.image, &definition);
                    LinkCandidate { definition, traced }
                };
                definitions.map(candidate).collect()
            })
        })
    }
}

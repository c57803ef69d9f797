//! What the slots of a live process hold.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use foldhash::{HashMap, HashSet};
use rtrace_code::arrival::Keeps;
use rtrace_symbolizer::address_space::Mapping;
use rtrace_symbolizer::load_order;
use rtrace_symbolizer::modules::{self, Module};

use super::links::{Linkage, Word};
use super::{FileId, Files};

/// Bytes between two slots that are read rather than skipped.
const MAX_GAP: u64 = 4096;
/// Bytes of a slot.
const WORD: u64 = 8;

/// A live process.
pub struct LiveProcess {
    pub modules: Vec<Module>,
    /// None where the kernel does not let us read it.
    memory: Option<File>,
    /// The program that it runs.
    pub program: Option<FileId>,
    /// Where its code stands, in address order, with the files.
    code: Vec<(Mapping, FileId)>,
}

impl LiveProcess {
    /// None where there is no such process any more.
    pub fn inspect(pid: u32) -> Option<LiveProcess> {
        let modules = modules::of_process(pid).ok()?;
        let executable = |module: &Module| {
            let file = (module.device, module.inode);
            let mappings = module.mappings.clone().into_iter().filter(|mapping| mapping.executable);
            mappings.map(move |mapping| (mapping, file))
        };
        let mut code: Vec<_> = modules.iter().flat_map(executable).collect();
        code.sort_unstable_by_key(|(mapping, _)| mapping.start);
        let program = fs::metadata(format!("/proc/{pid}/exe"));
        Some(LiveProcess {
            code,
            modules,
            memory: File::open(format!("/proc/{pid}/mem")).ok(),
            program: program.ok().map(|program| (program.dev(), program.ino())),
        })
    }

    /// The indexes of its files in the order in which the dynamic linker looks for names in them.
    pub fn load_order(&self, files: &Files) -> Vec<usize> {
        let index = |module: &Module| files.by_id.get(&(module.device, module.inode)).copied();
        let program = self.modules.iter().find(|module| Some((module.device, module.inode)) == self.program);
        let loaded = program.zip(self.memory.as_ref()).and_then(|(program, memory)| {
            let image = &files.all[index(program)?].image;
            Some(load_order(memory, image, program.load_bias(image)?))
        });
        let module_at = |address: u64| {
            let holds = |module: &&Module| module.mappings.iter().any(|mapping| mapping.contains(address));
            self.modules.iter().find(holds)
        };
        let loaded = loaded.unwrap_or_default().into_iter().filter_map(module_at);
        // What the dynamic linker does not list comes last, for a program that it has not begun to load.
        let all = loaded.chain(program).chain(&self.modules).filter_map(index);
        let mut met = HashSet::default();
        all.filter(|&file| met.insert(file)).collect()
    }

    /// The [slots](Linkage::slots) of a module that lead to traced functions, with the index of its file.
    pub fn slots(&self, module: &Module, linkage: &Linkage) -> Option<(usize, Vec<(u64, Keeps)>)> {
        let id = (module.device, module.inode);
        let file = *linkage.files.by_id.get(&id)?;
        let image = &linkage.files.all[file].image;
        let named = image.slots();
        let chosen = image.own_slots().filter(|slot| slot.is_chosen).map(|slot| slot.address);
        let mut addresses: Vec<u64> = named.iter().map(|slot| slot.address).chain(chosen).collect();
        addresses.sort_unstable();

        let mut found = Vec::new();
        let mut biases: Vec<u64> = module.load_biases(image).collect();
        biases.sort_unstable();
        biases.dedup();
        for bias in biases {
            let words = self.words(bias, &addresses);
            found.extend(linkage.slots(file, &named, |slot| match words.get(&slot) {
                None => Word::Unknown,
                Some(0) => Word::Foreign,
                Some(&word) => match self.place(word) {
                    None => Word::Unknown,
                    Some((called, place)) => match linkage.traced.keeps(called, place) {
                        Some(keeps) => Word::Traced(keeps),
                        None if called == id => Word::Own(place),
                        None => Word::Foreign,
                    },
                },
            }));
        }
        Some((file, found))
    }

    /// The words at these sorted virtual addresses of a file, as far as they can be read.
    fn words(&self, bias: u64, addresses: &[u64]) -> HashMap<u64, u64> {
        let mut words = HashMap::default();
        let Some(memory) = &self.memory else { return words };
        for run in addresses.chunk_by(|before, after| after - before <= MAX_GAP) {
            let (first, last) = (run[0], run[run.len() - 1]);
            let mut bytes = vec![0; (last - first + WORD) as usize];
            if memory.read_exact_at(&mut bytes, bias.wrapping_add(first)).is_err() {
                continue;
            }
            let word = |address: u64| {
                let bytes = bytes[(address - first) as usize..].first_chunk();
                (address, u64::from_le_bytes(*bytes.expect("the run holds all of its words")))
            };
            words.extend(run.iter().map(|&address| word(address)));
        }
        words
    }

    /// The file and the file offset of the code at an address.
    fn place(&self, address: u64) -> Option<(FileId, u64)> {
        let following = self.code.partition_point(|(mapping, _)| mapping.start <= address);
        let (mapping, file) = self.code[..following].last()?;
        Some((*file, mapping.offset_of(address)?))
    }
}

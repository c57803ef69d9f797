//! Which implementation of an IFUNC a process chose.
//!
//! A call to an IFUNC goes through a slot that the dynamic linker filled with the implementation's
//! address, by asking the IFUNC's resolver. The slots of the live process are the proof; nothing is
//! computed or guessed. Slots not yet filled, bound elsewhere or overwritten are ignored.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use object::elf::{self, Rela64, SHF_ALLOC};
use object::read::elf::{Rela, SectionHeader};
use object::{LittleEndian, SymbolIndex};

use crate::elf::ENDIAN;
use crate::modules::{self, Module};
use crate::symtab::SymbolTable;
use crate::{Exports, Image};

/// One implementation that a process calls for an IFUNC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resolved {
    /// Index of the IFUNC in [`Exports::functions`].
    pub function: usize,
    /// Virtual address of the implementation in the file's own terms.
    pub address: u64,
    /// Length of the implementation in bytes, 0 where nothing states it.
    pub size: u64,
}

/// The implementations that the process's relocated slots prove; an IFUNC that no slot refers to
/// is not in the result, one with several implementations is in it several times.
///
/// `image` and `exports` are those of `module`. Modules that cannot be read count as without slots.
pub fn resolve(pid: u32, module: &Module, image: &Image, exports: &Exports) -> Vec<Resolved> {
    let Some(target) = IfuncModule::new(module, image, exports) else { return Vec::new() };
    let Ok(memory) = File::open(format!("/proc/{pid}/mem")) else { return Vec::new() };
    let mut proven = BTreeSet::new();
    for user in modules::of_process(pid).unwrap_or_default() {
        let is_target = (user.device, user.inode) == (module.device, module.inode);
        let opened;
        let user_image = if is_target {
            image
        } else {
            let Ok(other) = Image::open(&user.open_path()) else { continue };
            opened = other;
            &opened
        };
        let Some(bias) = user.load_bias(user_image) else { continue };
        for (slot, function) in target.slots(user_image, is_target) {
            let mut value = [0; 8];
            if memory.read_exact_at(&mut value, bias.wrapping_add(slot)).is_ok()
                && let Some(address) = target.implementation(function, u64::from_le_bytes(value))
            {
                proven.insert((function, address));
            }
        }
    }
    let sizes = if proven.is_empty() { BTreeMap::new() } else { sizes(image) };
    let size = |address| sizes.get(&address).copied().unwrap_or(0);
    proven.into_iter().map(|(function, address)| Resolved { function, address, size: size(address) }).collect()
}

/// The module that defines the IFUNCs.
struct IfuncModule<'a> {
    image: &'a Image,
    exports: &'a Exports,
    bias: u64,
    /// IFUNCs by each of their names with its version, and with none.
    by_name: HashMap<(&'a str, Option<&'a str>), usize>,
    /// IFUNCs by their resolver's address.
    by_resolver: HashMap<u64, usize>,
    /// Where slots that are not yet filled point to.
    stubs: Vec<Range<u64>>,
}

impl<'a> IfuncModule<'a> {
    /// `None` if there is nothing to resolve, or `image` is not what the process maps.
    fn new(module: &Module, image: &'a Image, exports: &'a Exports) -> Option<IfuncModule<'a>> {
        let mut by_name = HashMap::new();
        let mut by_resolver = HashMap::new();
        for (index, function) in exports.functions.iter().enumerate().filter(|(_, function)| function.ifunc) {
            by_resolver.insert(function.address, index);
            for symbol in &function.symbols {
                for version in [symbol.version.as_deref(), None] {
                    by_name.entry((symbol.name.as_str(), version)).or_insert(index);
                }
            }
        }
        if by_resolver.is_empty() {
            return None;
        }
        Some(IfuncModule {
            image,
            exports,
            bias: module.load_bias(image)?,
            by_name,
            by_resolver,
            stubs: image.stub_tables(),
        })
    }

    /// The slots of a module that belong to our IFUNCs: virtual address of the slot, index of the function.
    fn slots(&self, user: &Image, is_target: bool) -> Vec<(u64, usize)> {
        let symbols = SymbolTable::dynamic(user).ok().flatten();
        let function = |relocation: &Rela64<LittleEndian>| match relocation.r_type(ENDIAN, false) {
            elf::R_X86_64_IRELATIVE if is_target => {
                self.by_resolver.get(&(relocation.r_addend(ENDIAN) as u64)).copied()
            }
            elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_GLOB_DAT => {
                self.named(symbols.as_ref()?, relocation.symbol(ENDIAN, false)?)
            }
            _ => None,
        };
        let slot = |relocation: &Rela64<_>| Some((relocation.r_offset(ENDIAN), function(relocation)?));
        relocations(user).filter_map(slot).collect()
    }

    /// The IFUNC to which a module's symbol is bound by name and version.
    fn named(&self, symbols: &SymbolTable, index: SymbolIndex) -> Option<usize> {
        let entry = symbols.entry(index)?;
        let name = str::from_utf8(symbols.name(entry)?).ok()?;
        let version = symbols.version(entry).map(|version| version.name);
        self.by_name.get(&(name, version)).copied()
    }

    /// The virtual address behind a slot's value, if that can be an implementation of the function.
    fn implementation(&self, function: usize, value: u64) -> Option<u64> {
        let address = value.wrapping_sub(self.bias);
        let is_resolver = address == self.exports.functions[function].address;
        let is_stub = self.stubs.iter().any(|stub| stub.contains(&address));
        (self.image.code(address, 1).is_some() && !is_resolver && !is_stub).then_some(address)
    }
}

/// The relocations that are applied at run time; not more than the file can hold, though sections may overlap.
fn relocations(image: &Image) -> impl Iterator<Item = &Rela64<LittleEndian>> {
    // A static program has none but in sections.
    let sections = image.sections().unwrap_or_default();
    let loaded = sections.iter().filter(|section| section.sh_flags(ENDIAN).contains(SHF_ALLOC));
    let tables = loaded.filter_map(|section| section.rela(ENDIAN, image.bytes()).ok().flatten());
    let of_sections = tables.flat_map(|(relocations, _)| relocations);
    let loaded = image.all_relocations().filter(|_| !image.has_sections());
    of_sections.chain(loaded).take(image.bytes().size() / size_of::<Rela64<LittleEndian>>())
}

/// What `.eh_frame` and, with more authority, `.symtab` say about the lengths of functions.
fn sizes(image: &Image) -> BTreeMap<u64, u64> {
    let mut sizes: BTreeMap<u64, u64> =
        image.frame_ranges().iter().map(|range| (range.start, range.end - range.start)).collect();
    if let Ok(Some(table)) = SymbolTable::full(image) {
        let functions = table.entries().filter(|entry| entry.is_function() && entry.is_defined() && entry.size() > 0);
        sizes.extend(functions.map(|entry| (entry.address(), entry.size())));
    }
    sizes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    use super::*;
    use crate::fixture;

    #[test]
    fn memcpy_of_our_own_process() {
        let pid = std::process::id();
        let modules = modules::of_process(pid).unwrap();
        let module = modules.iter().find(|module| module.file_name().starts_with("libc.so")).unwrap();
        let image = Image::open(&module.open_path()).unwrap();
        let exports = image.exports().unwrap();
        let bias = module.load_bias(&image).unwrap();

        let resolved = resolve(pid, module, &image, &exports);
        let implementations = |name: &str| -> Vec<Resolved> {
            let is_named = |resolved: &&Resolved| {
                exports.functions[resolved.function].symbols.iter().any(|symbol| symbol.name == name)
            };
            resolved.iter().filter(is_named).copied().collect()
        };
        for (name, truth) in [
            ("memcpy", libc::memcpy as *const () as u64),
            ("memmove", libc::memmove as *const () as u64),
            ("strlen", libc::strlen as *const () as u64),
        ] {
            let found = implementations(name);
            let right = found.iter().find(|found| bias.wrapping_add(found.address) == truth);
            assert!(right.is_some_and(|right| right.size > 0), "{name}: {found:x?}, truth {:x}", truth - bias);
        }
        for resolved in &resolved {
            assert!(exports.functions[resolved.function].ifunc);
            assert!(!exports.functions.iter().any(|function| function.ifunc && function.address == resolved.address));
        }
    }

    /// A program that calls an IFUNC of its library when it is told to.
    const LIBRARY: &str = r#"
        static int chosen(void) { return 1; }
        static int (*resolver(void))(void) { return chosen; }
        int selected(void) __attribute__((ifunc("resolver")));
    "#;
    const PROGRAM: &str = r#"
        #include <stdio.h>
        int selected(void);
        int main(void) {
            do { putchar('.'); fflush(stdout); } while (getchar() != EOF && selected());
            return 0;
        }
    "#;

    #[test]
    fn a_slot_proves_nothing_before_it_is_filled() {
        let folder = tempfile::tempdir().unwrap();
        let (library, program) = (folder.path().join("libifunc.so"), folder.path().join("program"));
        let flags = [library.to_str().unwrap(), "-Wl,-z,lazy"];
        if !fixture::compile_to("gcc", LIBRARY, &["-shared", "-fPIC"], &library)
            || !fixture::compile_to("gcc", PROGRAM, &flags, &program)
        {
            return;
        }
        let mut child = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let image = Image::open(&library).unwrap();
        let exports = image.exports().unwrap();
        let mut resolved_when_ready = || {
            stdout.read_exact(&mut [0]).unwrap();
            let modules = modules::of_process(child.id()).unwrap();
            let module = modules.iter().find(|module| module.path == library).unwrap();
            resolve(child.id(), module, &image, &exports)
        };
        assert_eq!(resolved_when_ready(), []);
        stdin.write_all(b"x").unwrap();
        let resolved = resolved_when_ready();
        drop(stdin);
        child.wait().unwrap();

        let symbols = SymbolTable::full(&image).unwrap().unwrap();
        let chosen = symbols.entries().find(|entry| symbols.name(*entry) == Some(b"chosen")).unwrap();
        assert_eq!(resolved.len(), 1);
        assert_eq!((resolved[0].address, resolved[0].size), (chosen.address(), chosen.size()));
        assert_eq!(exports.functions[resolved[0].function].name, "selected");
    }
}

//! What an ELF file says about its linkage: its name, its needs, its interpreter, its identity.
//!
//! Taken from the program headers, as the dynamic linker does; they outlive every kind of stripping.

use std::borrow::Cow;
use std::fmt::Write;

use foldhash::HashSet;
use object::elf::{self, DynamicTag};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use rtrace_model::text_of;

use crate::Image;
use crate::elf::{ENDIAN, string_at};
use crate::symtab::SymbolTable;

/// The flag of files whose code finds thread storage without asking the dynamic linker.
const DF_STATIC_TLS: u64 = 0x10;
/// Note segments are few; each may claim the whole file.
const MAX_NOTE_SEGMENTS: usize = 8;
/// No file needs more libraries than this.
const MAX_NEEDED: usize = 4096;
/// The kernel takes no longer paths, in bytes.
const MAX_PATH: usize = 4096;
/// Longer build ids than this are no hashes, in bytes.
const MAX_BUILD_ID: usize = 64;

/// What other files find when they ask for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DynamicDefinition<'a> {
    /// The name as the linker knows it.
    pub name: &'a str,
    /// Its version, where it has one.
    pub version: Option<&'a str>,
    /// It is what a file gets that asks for no version.
    pub is_default: bool,
    /// Virtual address of what is defined, or of the resolver (IFUNC) that chooses it.
    pub address: u64,
    /// `address` is that of a resolver.
    pub is_ifunc: bool,
}

impl Image {
    /// The GNU build id in lower-case hexadecimal.
    pub fn build_id(&self) -> Option<String> {
        let notes = self.program_headers().iter().filter_map(|header| header.notes(ENDIAN, self.bytes()).ok()?);
        for mut notes in notes.take(MAX_NOTE_SEGMENTS) {
            while let Ok(Some(note)) = notes.next() {
                if note.name() == elf::ELF_NOTE_GNU && note.n_type(ENDIAN) == elf::NT_GNU_BUILD_ID {
                    return Some(hexadecimal(note.desc())).filter(|id| !id.is_empty());
                }
            }
        }
        None
    }

    /// The name under which other files need this one (`DT_SONAME`).
    pub fn soname(&self) -> Option<&str> {
        match self.dynamic_strings(elf::DT_SONAME).next()? {
            Cow::Borrowed(name) => Some(name),
            // No text: it is known by its file name.
            Cow::Owned(_) => None,
        }
    }

    /// The libraries that this file needs (`DT_NEEDED`), in order.
    pub fn needed(&self) -> Vec<Cow<'_, str>> {
        self.dynamic_strings(elf::DT_NEEDED).filter(|name| name.len() <= MAX_PATH).take(MAX_NEEDED).collect()
    }

    /// `DT_RUNPATH`, unexpanded.
    pub fn runpath(&self) -> Option<Cow<'_, str>> {
        self.dynamic_strings(elf::DT_RUNPATH).next()
    }

    /// `DT_RPATH`, unexpanded.
    pub fn rpath(&self) -> Option<Cow<'_, str>> {
        self.dynamic_strings(elf::DT_RPATH).next()
    }

    /// The dynamic linker that the kernel starts for this executable.
    pub fn interpreter(&self) -> Option<&str> {
        let name = self.program_headers().iter().find_map(|header| header.interpreter(ENDIAN, self.bytes()).ok()?)?;
        str::from_utf8(name).ok()
    }

    /// The names of `.dynsym` functions that other files must define.
    pub fn imports(&self) -> Vec<&str> {
        let Ok(Some(table)) = SymbolTable::dynamic(self) else { return Vec::new() };
        let names = table.entries().filter(|entry| !entry.is_defined()).filter_map(|entry| table.name(entry));
        names.filter_map(|name| str::from_utf8(name).ok()).filter(|name| !name.is_empty()).collect()
    }

    /// Those of `names` that `.dynsym` defines, for itself and for other files.
    pub fn defined<'n>(&self, names: &HashSet<&'n str>) -> HashSet<&'n str> {
        let Ok(Some(table)) = SymbolTable::dynamic(self) else { return HashSet::default() };
        let defined = table.entries().filter(|entry| entry.is_defined() && !entry.is_local());
        let defined = defined.filter_map(|entry| str::from_utf8(table.name(entry)?).ok());
        defined.filter_map(|name| names.get(name).copied()).collect()
    }

    /// What `.dynsym` defines for other files, in its order; there are functions and variables.
    pub fn definitions(&self) -> impl Iterator<Item = DynamicDefinition<'_>> {
        let table = SymbolTable::dynamic(self).ok().flatten();
        table.into_iter().flat_map(|table| {
            let defined = table.entries().filter(|entry| entry.is_defined() && !entry.is_local());
            defined.filter_map(move |entry| {
                let version = table.version(entry);
                Some(DynamicDefinition {
                    name: str::from_utf8(table.name(entry)?).ok()?,
                    version: version.map(|version| version.name),
                    is_default: version.is_none_or(|version| version.is_default),
                    address: entry.address(),
                    is_ifunc: entry.is_ifunc(),
                })
            })
        })
    }

    /// Whether the file finds its own definitions before those of others (`DT_SYMBOLIC`).
    pub fn is_symbolic(&self) -> bool {
        let by_flag = self.dynamic_value(elf::DT_FLAGS).is_some_and(|flags| flags & elf::DF_SYMBOLIC.0 != 0);
        by_flag || self.dynamic_value(elf::DT_SYMBOLIC).is_some()
    }

    /// Whether `.dynsym` or `.symtab` defines `name`, in any version.
    ///
    /// Looks at all symbols; ask once for each name.
    pub fn defines(&self, name: &str) -> bool {
        let tables = [SymbolTable::dynamic(self), SymbolTable::full(self)];
        tables
            .into_iter()
            .filter_map(|table| table.ok().flatten())
            .any(|table| table.entries().any(|entry| entry.is_defined() && table.name(entry) == Some(name.as_bytes())))
    }

    /// The virtual addresses at which `.symtab` defines functions of these names, also those that no other file sees; each
    /// with its place among the names.
    pub fn addresses_of(&self, names: &[&str]) -> Vec<(usize, u64)> {
        let Ok(Some(table)) = SymbolTable::full(self) else { return Vec::new() };
        let defined = table.entries().filter(|entry| entry.is_defined() && !entry.is_ifunc());
        let named = defined.filter_map(|entry| {
            let name = table.name(entry)?;
            Some((names.iter().position(|known| known.as_bytes() == name)?, entry.address()))
        });
        named.collect()
    }

    /// Bytes that each thread has of its own for this file (`PT_TLS`).
    pub fn thread_storage(&self) -> u64 {
        let headers = self.program_headers().iter().filter(|header| header.p_type(ENDIAN) == elf::PT_TLS);
        headers.map(|header| header.p_memsz(ENDIAN)).fold(0, u64::saturating_add)
    }

    /// Whether that must be next to the thread control block (`DF_STATIC_TLS`), where room is scarce.
    pub fn needs_static_storage(&self) -> bool {
        self.dynamic_value(elf::DT_FLAGS).is_some_and(|flags| flags & DF_STATIC_TLS != 0)
    }

    /// A program that is loaded where the file says, so that its code may hold whole addresses.
    pub fn is_fixed(&self) -> bool {
        self.header().e_type(ENDIAN) == elf::ET_EXEC
    }

    /// A program rather than a library, though it may be loaded at any address.
    pub fn is_executable(&self) -> bool {
        self.is_program(|| self.soname().is_some())
    }

    /// The same where names were not read.
    pub(crate) fn is_program(&self, has_soname: impl FnOnce() -> bool) -> bool {
        let is_pie = || self.dynamic_value(elf::DT_FLAGS_1).is_some_and(|flags| flags & elf::DF_1_PIE.0 != 0);
        // Some libraries, libc among them, have an interpreter so that they can be run.
        let has_interpreter = || self.interpreter().is_some() && !has_soname();
        self.is_fixed() || is_pie() || has_interpreter()
    }

    fn dynamic_strings(&self, tag: DynamicTag) -> impl Iterator<Item = Cow<'_, str>> {
        let table = self.dynamic_value(elf::DT_STRTAB).and_then(|address| self.loaded(address)).unwrap_or_default();
        let offsets = self.dynamic_entries().filter(move |&(found, _)| found == tag);
        offsets.filter_map(move |(_, offset)| string_at(table, offset).map(text_of))
    }

    pub(crate) fn dynamic_value(&self, tag: DynamicTag) -> Option<u64> {
        self.dynamic_entries().find(|&(found, _)| found == tag).map(|(_, value)| value)
    }

    pub(crate) fn dynamic_entries(&self) -> impl Iterator<Item = (DynamicTag, u64)> {
        let dynamic = |header: &elf::ProgramHeader64<_>| header.dynamic(ENDIAN, self.bytes()).ok()?;
        let entries = self.program_headers().iter().find_map(dynamic).unwrap_or_default();
        entries.iter().map(|entry| (entry.tag(ENDIAN), entry.val(ENDIAN))).take_while(|&(tag, _)| tag != elf::DT_NULL)
    }
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().take(MAX_BUILD_ID).fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}

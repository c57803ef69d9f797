//! Symbol tables with their versions, as `.dynsym` and `.symtab` hold them.
//!
//! `.dynsym` is where the dynamic section says, as section headers may be absent or wrong. Hash tables and
//! relocations tell its length.
//!
//! Counts and offsets in the file are claims; the number of records that are looked at is bounded
//! by the file's size and, for versions, whose records may chain backwards and forwards, by [`MAX_VERSIONS`].

use object::elf::{self, SectionType, Sym64, Versym};
use object::read::SectionIndex;
use object::read::elf::{SectionHeader, Sym, VerdefIterator, VerneedIterator};
use object::{LittleEndian, SymbolIndex};

use crate::contents::Contents;
use crate::elf::{ENDIAN, Elf, string_at};
use crate::image::sections;
use crate::{Error, Image};

/// Bytes that are kept of a name that is too long.
const KEPT_OF_NAME: usize = 1000;
/// Version records read per file; indexes have 15 bits.
const MAX_VERSIONS: usize = 1 << 15;

/// One symbol table.
pub(crate) struct SymbolTable<'a> {
    symbols: &'a [Sym64<LittleEndian>],
    strings: &'a [u8],
    versions: Versions<'a>,
}

/// One entry of a symbol table, with its place in it.
#[derive(Clone, Copy)]
pub(crate) struct SymbolEntry<'a> {
    index: usize,
    symbol: &'a Sym64<LittleEndian>,
}

/// The version of a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version<'a> {
    pub(crate) name: &'a str,
    /// Programs that are linked now get this one.
    pub(crate) is_default: bool,
}

impl<'a> SymbolTable<'a> {
    /// `.dynsym`: what takes part in dynamic linking.
    pub(crate) fn dynamic(image: &'a Image) -> Result<Option<SymbolTable<'a>>, Error> {
        match SymbolTable::loaded(image) {
            Some(table) => Ok(Some(table)),
            None => SymbolTable::read(image.bytes(), elf::SHT_DYNSYM),
        }
    }

    /// `.dynsym` as the dynamic linker finds it.
    fn loaded(image: &'a Image) -> Option<SymbolTable<'a>> {
        let address = |tag| image.dynamic_value(tag);
        let first = address(elf::DT_SYMTAB)?;
        let most = image.loaded(first)?.len() / size_of::<Sym64<LittleEndian>>();
        let symbols = image.records(first, image.dynamic_symbol_count().min(most));
        let strings = image.loaded(address(elf::DT_STRTAB)?)?;
        let strings = strings.get(..address(elf::DT_STRSZ)? as usize).unwrap_or(strings);
        let mut table = SymbolTable { symbols, strings, versions: Versions::default() };
        if let Some(of_symbol) = address(elf::DT_VERSYM) {
            let records = |tag, kind| image.loaded_section(address(tag)?, kind);
            let definitions = records(elf::DT_VERDEF, elf::SHT_GNU_VERDEF);
            let definitions = definitions.and_then(|section| section.gnu_verdef(ENDIAN, image.bytes()).ok()?);
            let needs = records(elf::DT_VERNEED, elf::SHT_GNU_VERNEED);
            let needs = needs.and_then(|section| section.gnu_verneed(ENDIAN, image.bytes()).ok()?);
            let of_symbol = image.records(of_symbol, symbols.len());
            let (definitions, needs) = (definitions.map(|(table, _)| table), needs.map(|(table, _)| table));
            table.versions = Versions::read(of_symbol, definitions, needs, strings);
        }
        Some(table)
    }

    /// `.symtab`: all symbols, in files that are not stripped; else that of its debug file.
    pub(crate) fn full(image: &'a Image) -> Result<Option<SymbolTable<'a>>, Error> {
        match (SymbolTable::read(image.bytes(), elf::SHT_SYMTAB)?, image.debug_symbols()) {
            (None, Some(symbols)) => SymbolTable::read(symbols, elf::SHT_SYMTAB),
            (own, _) => Ok(own),
        }
    }

    fn read(contents: &'a Contents, kind: SectionType) -> Result<Option<SymbolTable<'a>>, Error> {
        let sections = sections(contents)?;
        let Some(section) = sections.iter().find(|section| section.sh_type(ENDIAN) == kind) else { return Ok(None) };
        let symbols = section.data_as_array(ENDIAN, contents)?;
        let strings = sections.section(SectionIndex(section.sh_link(ENDIAN) as usize))?;
        let strings = strings.data(ENDIAN, contents)?;
        Ok(Some(SymbolTable { symbols, strings, versions: Versions::default() }))
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = SymbolEntry<'a>> + use<'a> {
        self.symbols.iter().enumerate().map(|(index, symbol)| SymbolEntry { index, symbol })
    }

    pub(crate) fn entry(&self, index: SymbolIndex) -> Option<SymbolEntry<'a>> {
        self.symbols.get(index.0).map(|symbol| SymbolEntry { index: index.0, symbol })
    }

    pub(crate) fn name(&self, entry: SymbolEntry<'a>) -> Option<&'a [u8]> {
        string_at(self.strings, u64::from(entry.symbol.st_name(ENDIAN)))
    }

    /// A name that is too long to be taken whole: its beginning, and what tells it from others.
    pub(crate) fn cut_name(&self, entry: SymbolEntry<'a>) -> Option<String> {
        let offset = entry.symbol.st_name(ENDIAN);
        let name = self.strings.get(offset as usize..)?.get(..KEPT_OF_NAME)?;
        let is_cut = offset > 0 && !name.contains(&0);
        is_cut.then(|| format!("{}…{offset:x}", String::from_utf8_lossy(name)))
    }

    pub(crate) fn version(&self, entry: SymbolEntry<'a>) -> Option<Version<'a>> {
        self.versions.of(entry.index)
    }
}

impl SymbolEntry<'_> {
    pub(crate) fn is_function(self) -> bool {
        matches!(self.symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC)
    }

    /// What it stands for is not said: it was written in assembly, or by the linker.
    pub(crate) fn is_untyped(self) -> bool {
        self.symbol.st_type() == elf::STT_NOTYPE && self.symbol.st_shndx(ENDIAN).0 < elf::SHN_LORESERVE
    }

    pub(crate) fn kind(self) -> elf::SymbolType {
        self.symbol.st_type()
    }

    pub(crate) fn is_ifunc(self) -> bool {
        self.symbol.st_type() == elf::STT_GNU_IFUNC
    }

    pub(crate) fn is_defined(self) -> bool {
        self.symbol.st_shndx(ENDIAN) != elf::SHN_UNDEF
    }

    pub(crate) fn is_local(self) -> bool {
        self.symbol.st_bind() == elf::STB_LOCAL
    }

    /// Other files, or other parts of a program, can refer to it.
    pub(crate) fn is_visible(self) -> bool {
        !self.is_local() && matches!(self.symbol.st_visibility(), elf::STV_DEFAULT | elf::STV_PROTECTED)
    }

    pub(crate) fn is_weak(self) -> bool {
        self.symbol.st_bind() == elf::STB_WEAK
    }

    pub(crate) fn address(self) -> u64 {
        self.symbol.st_value(ENDIAN)
    }

    pub(crate) fn size(self) -> u64 {
        self.symbol.st_size(ENDIAN)
    }
}

/// The version names of a file, and which symbol has which.
#[derive(Default)]
struct Versions<'a> {
    of_symbol: &'a [Versym<LittleEndian>],
    /// By version index.
    names: Vec<Option<&'a str>>,
}

impl<'a> Versions<'a> {
    fn read(
        of_symbol: &'a [Versym<LittleEndian>],
        definitions: Option<VerdefIterator<'a, Elf>>,
        needs: Option<VerneedIterator<'a, Elf>>,
        strings: &'a [u8],
    ) -> Versions<'a> {
        let mut versions = Versions { of_symbol, names: Vec::new() };
        if let Some(definitions) = definitions {
            versions.add_definitions(definitions, strings);
        }
        if let Some(needs) = needs {
            versions.add_needs(needs, strings);
        }
        versions
    }

    fn add_definitions(&mut self, definitions: VerdefIterator<'a, Elf>, strings: &'a [u8]) {
        for (definition, mut names) in definitions.map_while(Result::ok).take(MAX_VERSIONS) {
            // The base version stands for the file itself; its symbols count as unversioned.
            if definition.vd_flags.get(ENDIAN).contains(elf::VER_FLG_BASE) {
                continue;
            }
            if let Ok(Some(name)) = names.next() {
                self.add(definition.vd_ndx.get(ENDIAN).0, string_at(strings, name.vda_name.get(ENDIAN).into()));
            }
        }
    }

    fn add_needs(&mut self, needs: VerneedIterator<'a, Elf>, strings: &'a [u8]) {
        let names = needs.map_while(Result::ok).flat_map(|(_, names)| names.map_while(Result::ok));
        for name in names.take(MAX_VERSIONS) {
            self.add(name.vna_other(ENDIAN).index().0, string_at(strings, name.vna_name.get(ENDIAN).into()));
        }
    }

    fn add(&mut self, index: u16, name: Option<&'a [u8]>) {
        let index = usize::from(index);
        if self.names.len() <= index {
            self.names.resize(index + 1, None);
        }
        self.names[index] = name.and_then(|name| str::from_utf8(name).ok());
    }

    fn of(&self, symbol: usize) -> Option<Version<'a>> {
        let index = self.of_symbol.get(symbol)?.0.get(ENDIAN);
        let name = *self.names.get(usize::from(index.index().0))?;
        Some(Version { name: name?, is_default: !index.is_hidden() })
    }
}

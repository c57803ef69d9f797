//! The variables of an ELF file, by name.

use object::elf::{STT_COMMON, STT_OBJECT, STT_TLS};

use crate::symtab::{SymbolEntry, SymbolTable};
use crate::{Error, Image, demangle};

/// A variable at one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variable {
    /// Virtual address in the file's own terms; of a thread-local one an offset.
    pub address: u64,
    /// Length in bytes, as the symbol table states it.
    pub size: u64,
    /// Other files can refer to it, or to one of the same name in its place.
    pub is_exported: bool,
    /// Each thread has its own.
    pub is_thread_local: bool,
}

impl Image {
    /// The variables of that name, which is the linker's or, in C++ and Rust, the one people write.
    /// There are several where source files have variables of one name for themselves.
    ///
    /// # Errors
    /// [`Error::Malformed`].
    pub fn variables(&self, name: &str) -> Result<Vec<Variable>, Error> {
        let last_part = name.rsplit("::").next().unwrap_or(name);
        let is_mangled_form =
            |symbol: &str| symbol.starts_with('_') && symbol.contains(last_part) && demangle(symbol) == name;
        let mut found: Vec<Variable> = Vec::new();
        for (table, is_exported) in [(SymbolTable::dynamic(self)?, true), (SymbolTable::full(self)?, false)] {
            let Some(table) = table else { continue };
            for entry in table.entries().filter(|entry| is_variable(*entry)) {
                let symbol = table.name(entry).and_then(|bytes| str::from_utf8(bytes).ok());
                let is_named = symbol.is_some_and(|symbol| symbol == name || is_mangled_form(symbol));
                if is_named && found.iter().all(|known| known.address != entry.address()) {
                    let is_thread_local = entry.kind() == STT_TLS;
                    let (address, size) = (entry.address(), entry.size());
                    found.push(Variable { address, size, is_exported, is_thread_local });
                }
            }
        }
        Ok(found)
    }
}

fn is_variable(entry: SymbolEntry<'_>) -> bool {
    entry.is_defined() && matches!(entry.kind(), STT_OBJECT | STT_COMMON | STT_TLS)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use crate::fixture::compile;

    const SOURCE: &str = "
        namespace ns { long there; }
        extern \"C\" { int shown; static short hidden __attribute__((used)); thread_local int own; void function() {} }
        ";

    #[test]
    fn variables_are_found_by_either_name_with_size_and_linkage() {
        let Some(image) = compile("g++", SOURCE, &["-shared", "-fPIC"]) else { return };
        let one = |name| match image.variables(name).unwrap()[..] {
            [variable] => (variable.size, variable.is_exported, variable.is_thread_local),
            ref others => panic!("{name}: {others:?}"),
        };
        assert_eq!(one("shown"), (4, true, false));
        assert_eq!(one("hidden"), (2, false, false));
        assert_eq!(one("own"), (4, true, true));
        assert_eq!(one("ns::there"), (8, true, false));
        assert_eq!(one("_ZN2ns5thereE"), (8, true, false));
        assert_eq!(image.variables("function").unwrap(), []);
        assert_eq!(image.variables("nowhere").unwrap(), []);
    }
}

//! A function of a file, and its names.

/// One name of a function.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Symbol {
    /// The name as the linker knows it (mangled), without its version.
    pub name: String,
    /// The symbol version, such as `GLIBC_2.29`.
    pub version: Option<String>,
    /// Programs that are linked now get this one.
    pub is_default: bool,
}

impl Symbol {
    /// What tells the version behind the name: `@` and the version, `@@` for the default one; empty where there is none.
    pub fn version_mark(&self) -> String {
        let at = if self.is_default { "@@" } else { "@" };
        self.version.as_ref().map_or_else(String::new, |version| format!("{at}{version}"))
    }
}

/// One address with all its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// All names of the address, never empty. The preferred one is first: of the default version,
    /// without leading underscore, global rather than weak or local, short.
    pub symbols: Vec<Symbol>,
    /// The preferred name, demangled.
    pub name: String,
    /// What tells it from others of that name in the file; empty where there are none.
    pub mark: String,
    /// Virtual address in the file's own terms, before relocation.
    pub address: u64,
    /// Offset in the file, in bytes: what a uprobe is placed by.
    pub file_offset: u64,
    /// Length in bytes, as the symbol table states it; 0 where it states none.
    pub size: u64,
    /// The address is an IFUNC's resolver, not the function that callers reach.
    pub ifunc: bool,
}

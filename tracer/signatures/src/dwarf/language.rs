//! The language and the compiler of a unit.

use std::borrow::Cow;

use gimli::{AttributeValue, DW_AT_language, DW_AT_producer, DwLang};

use super::types::{Files, Place};

/// How far what a language says of a function is what the processor sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    C,
    Cpp,
    Fortran,
    /// Functions with plain parameters are called as those of C, if their name is not changed.
    Rust,
}

impl Language {
    fn of(language: DwLang) -> Option<Language> {
        Some(match language {
            gimli::DW_LANG_C
            | gimli::DW_LANG_C89
            | gimli::DW_LANG_C99
            | gimli::DW_LANG_C11
            | gimli::DW_LANG_C17
            | gimli::DW_LANG_ObjC => Language::C,
            gimli::DW_LANG_C_plus_plus
            | gimli::DW_LANG_C_plus_plus_03
            | gimli::DW_LANG_C_plus_plus_11
            | gimli::DW_LANG_C_plus_plus_14
            | gimli::DW_LANG_C_plus_plus_17
            | gimli::DW_LANG_C_plus_plus_20
            | gimli::DW_LANG_ObjC_plus_plus => Language::Cpp,
            gimli::DW_LANG_Fortran77
            | gimli::DW_LANG_Fortran90
            | gimli::DW_LANG_Fortran95
            | gimli::DW_LANG_Fortran03
            | gimli::DW_LANG_Fortran08
            | gimli::DW_LANG_Fortran18 => Language::Fortran,
            gimli::DW_LANG_Rust => Language::Rust,
            _ => return None,
        })
    }
}

impl<'a> Files<'a> {
    /// The language of a unit, if it is one whose functions are understood.
    pub fn language(&self, shared: bool, unit: usize) -> Option<Language> {
        match self.attribute(self.root(shared, unit)?, DW_AT_language) {
            Some(AttributeValue::Language(language)) => Language::of(language),
            _ => None,
        }
    }

    /// Whether GCC made a unit.
    pub fn is_of_gcc(&self, unit: usize) -> bool {
        self.producer(false, unit).is_some_and(|producer| producer.starts_with("GNU "))
    }

    /// Whether the compiler was told to leave out what the unit's version of DWARF does not have, as how functions of a
    /// class came to be.
    pub fn is_strict(&self, shared: bool, unit: usize) -> bool {
        let is_old = self.unit(shared, unit).is_ok_and(|unit| unit.encoding().version < 5);
        is_old && self.producer(shared, unit).is_some_and(|producer| producer.contains("-gstrict-dwarf"))
    }

    fn producer(&self, shared: bool, unit: usize) -> Option<Cow<'a, str>> {
        let root = self.root(shared, unit)?;
        self.whole_text(root, self.attribute(root, DW_AT_producer)?)
    }

    fn root(&self, shared: bool, unit: usize) -> Option<Place> {
        let offset = self.unit(shared, unit).ok()?.entries().next_dfs().ok()??.1.offset();
        Some(Place { shared, unit, offset })
    }
}

//! In which order the dynamic linker of a live process looks into its files for a name.
//!
//! It keeps a list of all files for debuggers, in this order: the program, what is preloaded, what
//! these need, breadth first, then what was loaded later. The list is in the memory of the process,
//! so nothing in it is believed before it is found to be true.

use std::fs::File;
use std::os::unix::fs::FileExt;

use object::elf;
use object::read::elf::ProgramHeader;

use crate::Image;
use crate::elf::ENDIAN;

/// A process that claims to have loaded more files than this is not followed further.
const MAX_FILES: usize = 1 << 14;
/// Where the first file stands in `struct r_debug`, in bytes.
const FIRST: u64 = 8;
/// Where the address of the dynamic section stands in `struct link_map`, in bytes.
const DYNAMIC: u64 = 16;
/// Where the next file stands there, in bytes.
const NEXT: u64 = 24;
/// An entry of a dynamic section, in bytes, and where its value stands in it.
const ENTRY: u64 = 16;
const VALUE: u64 = 8;

/// The addresses of the dynamic sections of all files that a process has loaded, in this order;
/// none where it has no dynamic linker, or that has not begun.
///
/// `memory` is that of the process (`/proc/PID/mem`), `program` the program that it runs, with the
/// number to add (wrapping) to the program's own addresses.
pub fn load_order(memory: &File, program: &Image, bias: u64) -> Vec<u64> {
    let word = |address: u64| {
        let mut word = [0; 8];
        memory.read_exact_at(&mut word, address).ok()?;
        Some(u64::from_le_bytes(word)).filter(|&word| word != 0)
    };
    let list = program.debug_slot().and_then(|slot| word(bias.wrapping_add(slot)));
    let first = list.and_then(|list| word(list.wrapping_add(FIRST)));
    let files = std::iter::successors(first, |file| word(file.wrapping_add(NEXT))).take(MAX_FILES);
    files.filter_map(|file| word(file.wrapping_add(DYNAMIC))).collect()
}

impl Image {
    /// Virtual address of the slot in which the dynamic linker puts the address of its list (`DT_DEBUG`).
    fn debug_slot(&self) -> Option<u64> {
        let section = self.program_headers().iter().find(|header| header.p_type(ENDIAN) == elf::PT_DYNAMIC)?;
        let index = self.dynamic_entries().position(|(tag, _)| tag == elf::DT_DEBUG)?;
        section.p_vaddr(ENDIAN).checked_add(ENTRY * index as u64 + VALUE)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::linker::{self, Environment};
    use crate::modules;

    #[test]
    fn our_own_process_has_loaded_what_its_program_needs() {
        let pid = std::process::id();
        let program = modules::executable(pid).unwrap();
        let image = Image::open(&program.path).unwrap();
        let memory = File::open("/proc/self/mem").unwrap();
        let order = load_order(&memory, &image, program.load_bias(&image).unwrap());

        let modules = modules::of_process(pid).unwrap();
        let holds =
            |module: &&modules::Module, address: u64| module.mappings.iter().any(|mapping| mapping.contains(address));
        let files = order.iter().filter_map(|&address| modules.iter().find(|module| holds(module, address)));
        let loaded: Vec<_> = files.map(|module| module.path.canonicalize().unwrap()).collect();
        let mut expected = linker::closure(&program.path, &Environment::default()).unwrap();
        // The C library needs it, so it comes where that is looked at.
        expected.remove(1);
        let expected: Vec<_> = expected.iter().map(|path| path.canonicalize().unwrap()).collect();
        let without_linker: Vec<_> = loaded.iter().filter(|path| expected.contains(path)).cloned().collect();
        assert_eq!(loaded[0], expected[0]);
        assert_eq!(without_linker, expected);
    }
}

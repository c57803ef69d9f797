//! Functions by which control leaves others without a return, and those that never return.

use foldhash::HashMap;
use rtrace_code::instruction::LONGEST;
use rtrace_code::verbatim::Verbatim;
use rtrace_model::{Jump, known};
use rtrace_symbolizer::{DynamicDefinition, Image};

/// Functions of one file by which control leaves others, by virtual address.
pub type JumpFunctions = HashMap<u64, Jump>;

/// Shared files that have some, by the names under which the dynamic linker knows them.
const C_LIBRARY: &str = "libc.so.6";
const UNWINDER: &str = "libgcc_s.so.1";

const LONGJMP: [&str; 4] = ["longjmp", "_longjmp", "siglongjmp", "__longjmp_chk"];

/// By this name the GNU C library's own copy of them is told from others.
const OF_GLIBC: &str = "__libc_siglongjmp";

/// The unwinder has found who goes on, and is told where.
const FOUND: &str = "_Unwind_SetIP";
/// Gives the stack pointer of who goes on.
const STACK_POINTER: &str = "_Unwind_GetCFA";
/// Its code where that is at the place at which the programs read it: `mov 0x90(%rdi),%rax; ret`.
const STACK_POINTER_CODE: [u8; 8] = [0x48, 0x8b, 0x87, 0x90, 0, 0, 0, 0xc3];
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// How the names of functions of the C++ library begin that throw: `std::__throw_length_error` and the like.
const THROW: &str = "__throw_";

/// Whether a file may have functions by which control leaves others, by the last component of its path.
pub fn may_be_in(name: &str) -> bool {
    // Before glibc 2.34 files were named by version, as `libc-2.31.so`.
    name == C_LIBRARY || name == UNWINDER || (name.starts_with("libc-2.") && name.ends_with(".so"))
}

/// Those of a file whose target the programs can read. Programs and libraries may have copies of their own.
pub fn of(image: &Image) -> JumpFunctions {
    let mut jumps = named(image);
    if jumps.is_empty() {
        return jumps;
    }
    let verbatim = Verbatim::of(image);
    jumps.retain(|&address, _| verbatim.obstacle(&(address..address.saturating_add(LONGEST as u64))).is_none());
    jumps
}

/// Those of a file by their names.
fn named(image: &Image) -> JumpFunctions {
    let (names, jump): (&[&str], Jump) = match image.soname() {
        Some(C_LIBRARY) => (&LONGJMP, Jump::Longjmp),
        Some(UNWINDER) if is_context_known(image) => (&[FOUND], Jump::Unwind),
        _ => return copies(image),
    };
    let is_meant = |definition: &DynamicDefinition<'_>| names.contains(&definition.name) && !definition.is_ifunc;
    image.definitions().filter(is_meant).map(|definition| (definition.address, jump)).collect()
}

/// Copies of these functions that were linked into a file.
fn copies(image: &Image) -> JumpFunctions {
    let names = [&[FOUND, STACK_POINTER, OF_GLIBC][..], &LONGJMP].concat();
    let found = image.addresses_of(&names);
    let is_glibc = found.iter().any(|&(name, _)| names[name] == OF_GLIBC);
    let is_known = found.iter().any(|&(name, address)| names[name] == STACK_POINTER && is_getter(image, address));
    let jump = |(name, address): (usize, u64)| match names[name] {
        FOUND => is_known.then_some((address, Jump::Unwind)),
        STACK_POINTER | OF_GLIBC => None,
        _ => is_glibc.then_some((address, Jump::Longjmp)),
    };
    found.into_iter().filter_map(jump).collect()
}

/// Whether the unwinder keeps the stack pointer where the programs look for it.
fn is_context_known(image: &Image) -> bool {
    let getter = image.definitions().find(|definition| definition.name == STACK_POINTER);
    getter.is_some_and(|getter| is_getter(image, getter.address))
}

/// Whether the code at this address reads the stack pointer where the programs look for it.
fn is_getter(image: &Image, address: u64) -> bool {
    let code = image.code_from(address).unwrap_or_default();
    code.strip_prefix(&ENDBR64).unwrap_or(code).starts_with(&STACK_POINTER_CODE)
}

/// Whether a function of this name never returns.
pub fn never_returns(name: &str) -> bool {
    let of_std = name.strip_prefix("_ZSt").map(|name| name.trim_start_matches(|digit: char| digit.is_ascii_digit()));
    known("returns", name).is_some() || of_std.is_some_and(|name| name.starts_with(THROW))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_never_return_are_known_by_name() {
        for name in ["__cxa_throw", "_Unwind_Resume", "siglongjmp", "exit", "_ZSt20__throw_length_errorPKc"] {
            assert!(never_returns(name), "{name}");
        }
        for name in ["_Unwind_RaiseException", "setjmp", "atexit", "_ZSt7nothrow", "__throw_it", "_ZSt3minIiERKT_"] {
            assert!(!never_returns(name), "{name}");
        }
    }

    #[test]
    fn files_with_jumps_are_known_by_name() {
        assert!(may_be_in("libc.so.6") && may_be_in("libgcc_s.so.1") && may_be_in("libc-2.31.so"));
        assert!(!may_be_in("libc.so") && !may_be_in("libc-client.so") && !may_be_in("libm.so.6"));
    }
}

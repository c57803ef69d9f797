//! Linker names as people wrote them.
//!
//! A mangled name may stand for one that is exponentially longer; such names stay mangled.

use std::fmt::{self, Write};

use cpp_demangle::DemangleOptions;

/// How many times longer than its mangled form a name may be.
const MAX_GROWTH: usize = 64;
/// How long a name may be, in bytes.
const MAX_LENGTH: usize = 64 << 10;

/// The C++, Rust or Fortran name behind a linker name, or the linker name itself.
pub fn demangle(name: &str) -> String {
    rust(name).or_else(|| cpp(name)).or_else(|| fortran(name)).unwrap_or_else(|| name.to_owned())
}

fn rust(name: &str) -> Option<String> {
    let demangled = rustc_demangle::try_demangle(name).ok()?;
    let mut out = Bounded::for_name(name);
    // The alternate form leaves out the hash.
    write!(out, "{demangled:#}").ok()?;
    Some(out.text)
}

fn cpp(name: &str) -> Option<String> {
    if !name.starts_with("_Z") {
        return None;
    }
    let symbol = cpp_demangle::Symbol::new(name).ok()?;
    let mut out = Bounded::for_name(name);
    symbol.structured_demangle(&mut out, &DemangleOptions::default()).ok()?;
    Some(out.text)
}

/// A procedure of a Fortran module: `__solver_MOD_step` of gfortran, `solver_mp_step_` of ifort and ifx, `_QMsolverPstep` of
/// flang. The names that people write are in lower case there.
fn fortran(name: &str) -> Option<String> {
    let of_gnu = || name.strip_prefix("__")?.split_once("_MOD_");
    let of_intel = || name.strip_suffix('_')?.split_once("_mp_");
    let of_flang = || name.strip_prefix("_QM")?.split_once('P');
    let (module, procedure) = of_gnu().or_else(of_intel).or_else(of_flang)?;
    let is_name = |name: &str| {
        name.starts_with(|first: char| first.is_ascii_lowercase())
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    (is_name(module) && is_name(procedure)).then(|| format!("{module}::{procedure}"))
}

/// A string that refuses to grow beyond its bound.
struct Bounded {
    text: String,
    max: usize,
}

impl Bounded {
    fn for_name(mangled: &str) -> Bounded {
        Bounded { text: String::new(), max: (mangled.len() * MAX_GROWTH).min(MAX_LENGTH) }
    }
}

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.text.len() + text.len() > self.max {
            return Err(fmt::Error);
        }
        self.text.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn names_of_each_language() {
        let table = [
            ("deflate", "deflate"),
            ("_Znwm", "operator new(unsigned long)"),
            ("_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector<int, std::allocator<int> >::push_back(int const&)"),
            ("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt"),
            ("_RNvC6_123foo3bar", "123foo::bar"),
            ("_Znot_mangled", "_Znot_mangled"),
            ("__solver_MOD_step", "solver::step"),
            ("solver_mp_step_", "solver::step"),
            ("_QMsolverPstep", "solver::step"),
            ("__solver_MOD___vtab_solver_Grid", "__solver_MOD___vtab_solver_Grid"),
            ("_mp_step_", "_mp_step_"),
            ("MY_mp_step_", "MY_mp_step_"),
            ("", ""),
        ];
        for (name, expected) in table {
            assert_eq!(demangle(name), expected);
        }
    }

    #[test]
    fn a_name_that_explodes_stays_mangled() {
        assert_eq!(demangle(&nested_pairs(1)), "f(A<int, int>, A<A<int, int>, A<int, int> >)");
        assert_eq!(demangle(&nested_pairs(30)), nested_pairs(30));
    }

    /// A function each of whose parameters is a template of twice the parameter before it.
    fn nested_pairs(depth: usize) -> String {
        let pair = |index: usize| {
            let previous = char::from_digit(index as u32, 36).unwrap().to_ascii_uppercase();
            format!("S_IS{previous}_S{previous}_E")
        };
        "_Z1f1AIiiE".to_owned() + &(0..depth).map(pair).collect::<String>()
    }
}

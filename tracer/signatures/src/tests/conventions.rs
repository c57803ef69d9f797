//! Functions that are not called as their source looks: nothing is said of them rather than something wrong.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::Command;

use super::libraries::{build, known};
use crate::{AbiPlace, Cause, Lookup, NotKnown, Register, Request, Signature};

fn has(compiler: &str) -> bool {
    let has = Command::new(compiler).arg("--version").output().is_ok();
    if !has {
        println!("skipped: there is no {compiler}");
    }
    has
}

fn unknown(path: &Path, symbols: &[&str]) -> Vec<NotKnown> {
    let answers = known(path, &[], &Request::default(), symbols).unwrap();
    let unknown = answers.into_iter().map(|known| match known {
        Lookup::Nothing(unknown) => unknown,
        other => panic!("{other:?}"),
    });
    unknown.collect()
}

fn signature(path: &Path, symbol: &str) -> Signature {
    match known(path, &[], &Request::default(), &[symbol]).unwrap().remove(0) {
        Lookup::Signature(signature, _) => *signature,
        other => panic!("{symbol}: {other:?}"),
    }
}

fn places(path: &Path, symbol: &str) -> Vec<AbiPlace> {
    signature(path, symbol).params.into_iter().map(|param| param.location).collect()
}

#[test]
fn functions_with_one_code_are_told_apart_by_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let source = "void f(char *p) {} void g(int n) {} int h(int n) { return n; } int same(int m) { return m; }
        int main(void) { f(0); g(1); return h(2) + same(3); }";
    let flags = ["-g", "-O1", "-fno-inline", "-ffunction-sections", "-fuse-ld=gold", "-Wl,--icf=all"];
    let path = build(folder.path(), "gcc", "a.c", source, &flags);
    assert_eq!(unknown(&path, &["f"]), [NotKnown::Merged]);
    // Whoever is meant, the values are the same.
    assert_eq!(places(&path, "same"), [AbiPlace::Register(Register::Rdi)]);
}

#[test]
fn what_no_other_file_calls_may_have_other_parameters() {
    if !has("clang") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = "__attribute__((noinline)) static int f(int a, int unused, int *p) { return *p * 3 + a; }
        __attribute__((noinline)) int g(int a) { int x = a; return f(a, 5, &x); }
        int main(int n, char **v) { return g(n); }";
    let optimized = build(folder.path(), "clang", "a.c", source, &["-g", "-O2"]);
    assert_eq!(unknown(&optimized, &["f"]), [NotKnown::Local]);
    assert_eq!(places(&optimized, "g"), [AbiPlace::Register(Register::Rdi)]);
    let plain = build(folder.path(), "clang", "b.c", source, &["-g", "-O0"]);
    assert_eq!(places(&plain, "f")[2], AbiPlace::Register(Register::Rdx));
}

#[test]
fn other_conventions_are_seen_where_debug_information_tells() {
    let folder = tempfile::tempdir().unwrap();
    let source = "__attribute__((ms_abi)) int f(int a, int b) { return a * b; }
        __attribute__((noinline)) int *volatile g; int h(int n) { return *g + n; }";
    for (compiler, level) in [("gcc", "-O2"), ("clang", "-O0"), ("clang", "-O2")] {
        if has(compiler) {
            let path = build(folder.path(), compiler, "a.c", source, &["-g", level, "-shared", "-fPIC"]);
            assert_eq!(unknown(&path, &["f"]), [NotKnown::Unusual], "{compiler} {level}");
            assert_eq!(places(&path, "h"), [AbiPlace::Register(Register::Rdi)]);
        }
    }
}

#[test]
fn parameters_of_vector_functions_are_vectors() {
    let folder = tempfile::tempdir().unwrap();
    let source = "#pragma omp declare simd notinbranch\nint f(int a, int b) { return a * b; }";
    let path = build(folder.path(), "gcc", "a.c", source, &["-g", "-O2", "-fopenmp-simd", "-shared", "-fPIC"]);
    assert_eq!(unknown(&path, &["_ZGVbN4vv_f"]), [NotKnown::Changed]);
    assert_eq!(places(&path, "f")[1], AbiPlace::Register(Register::Rsi));
}

#[test]
fn a_wide_vector_may_be_anywhere_also_in_a_structure() {
    let folder = tempfile::tempdir().unwrap();
    let source = "typedef int wide __attribute__((vector_size(32))); struct s { wide v; };
        int f(int a, struct s s, int b) { return a + s.v[1] + b; }
        struct s g(int a) { struct s s = { { a } }; return s; }";
    let path = build(folder.path(), "gcc", "a.c", source, &["-g", "-O2", "-mavx2", "-shared", "-fPIC"]);
    let found = places(&path, "f");
    assert_eq!(found[0], AbiPlace::Register(Register::Rdi));
    assert!(matches!(found[1], AbiPlace::Unobservable(Cause::UnknownType(_))), "{found:?}");
    assert!(matches!(found[2], AbiPlace::Unobservable(Cause::Behind(_))), "{found:?}");
    // Whether there is a hidden pointer to the result is not known.
    assert!(matches!(places(&path, "g")[0], AbiPlace::Unobservable(Cause::Behind(_))));
}

#[test]
fn the_last_register_for_half_an_integer_is_disputed() {
    let folder = tempfile::tempdir().unwrap();
    let source = "long f(long a, long b, long c, long d, __int128 e, long g) { return a + b + c + d + e + g; }
        long h(long a, long b, long c, long d, long e, __int128 g, long i) { return a + b + c + d + e + g + i; }";
    let path = build(folder.path(), "gcc", "a.c", source, &["-g", "-O2", "-shared", "-fPIC"]);
    assert_eq!(places(&path, "f")[5], AbiPlace::Stack(8));
    let found = places(&path, "h");
    assert_eq!(found[5], AbiPlace::Unobservable(Cause::Disputed));
    assert!(matches!(found[6], AbiPlace::Unobservable(Cause::Behind(_))), "{found:?}");
}

#[test]
fn members_may_be_aligned_to_more_than_their_type() {
    let folder = tempfile::tempdir().unwrap();
    let source = "struct s { int a __attribute__((aligned(32))); int b; };
        int f(long a, long b, long c, long d, long e, long g, int h, struct s s, int n) { return s.a + s.b + n + h; }";
    for compiler in ["gcc", "clang"].into_iter().filter(|compiler| has(compiler)) {
        let path = build(folder.path(), compiler, "a.c", source, &["-g", "-O2", "-shared", "-fPIC"]);
        let found = places(&path, "f");
        assert_eq!(found[6..], [AbiPlace::Stack(8), AbiPlace::Stack(40), AbiPlace::Stack(72)], "{compiler}");
    }
}

#[test]
fn characters_have_the_sign_that_the_compiler_gave_them() {
    let folder = tempfile::tempdir().unwrap();
    for (flag, signed) in [("-fsigned-char", true), ("-funsigned-char", false)] {
        let path = build(folder.path(), "gcc", "a.c", "int f(char c) { return c; }", &["-g", flag, "-shared", "-fPIC"]);
        let (_, width) = signature(&path, "f").params[0].ctype.scalar().unwrap();
        assert_eq!((width.bytes, width.signed), (1, signed));
    }
}

#[test]
fn fortran_says_by_its_code_what_it_passes_by_reference() {
    if !has("gfortran") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = "
module m
contains
  integer function f(n, k, t)
    integer, intent(in) :: n
    integer(8), value :: k
    character(len=*), intent(in) :: t
    f = n + int(k) + len(t)
  end function
end module";
    for flags in [["-g", "-O0"], ["-g", "-O2"], ["-gdwarf-4", "-O3"]] {
        let path = build(folder.path(), "gfortran", "m.f90", source, &[&flags[..], &["-shared", "-fPIC"]].concat());
        let signature = signature(&path, "__m_MOD_f");
        let names: Vec<&str> = signature.columns.iter().map(|column| column.c_type.as_str()).collect();
        let expected = ["*n (integer(kind=4))", "integer(kind=8)", "character", "const integer(kind=8)", "int32_t"];
        assert_eq!([&names[..2], &names[3..]].concat(), [&expected[..2], &expected[3..]].concat(), "{flags:?}");
    }
}

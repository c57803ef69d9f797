//! Compiles the BPF programs, and their pure parts once more for the tests in user space.

use std::env;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for name in ["rtrace", "features", "plain"] {
        SkeletonBuilder::new()
            .source(format!("src/{name}.bpf.c"))
            .obj(out.join(format!("{name}.bpf.o")))
            .clang_args(["-mcpu=v3", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-Iinclude"])
            .build_and_generate(out.join(format!("{name}.skel.rs")))
            .expect("the BPF programs compile (needs clang, 14 or newer)");
    }
    cc::Build::new()
        .files(["src/stack_test.c", "src/flags_test.c"])
        .includes(["include", "src"])
        .warnings(true)
        .extra_warnings(true)
        .flag("-Wno-unused-parameter")
        .compile("user_space");
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=include");
}

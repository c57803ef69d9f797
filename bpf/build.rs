//! Compiles the BPF programs, and their pure parts once more for the tests in user space.

use std::env;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

/// Where the programs find their headers.
const FOLDERS: [&str; 3] = ["-Ikernel/wire", "-Ikernel/stack", "-Ikernel/hooks"];
/// Where their pure parts find theirs.
const PURE_FOLDERS: [&str; 2] = ["kernel/wire", "kernel/stack"];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for name in ["rtrace", "features", "plain"] {
        SkeletonBuilder::new()
            .source(format!("kernel/{name}.bpf.c"))
            .obj(out.join(format!("{name}.bpf.o")))
            .clang_args(
                ["-mcpu=v3", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"].iter().chain(&FOLDERS),
            )
            .build_and_generate(out.join(format!("{name}.skel.rs")))
            .expect("the BPF programs compile (needs clang, 14 or newer)");
    }
    cc::Build::new()
        .files(["kernel/stack/stack_test.c", "kernel/stack/flags_test.c"])
        .includes(PURE_FOLDERS)
        .warnings(true)
        .extra_warnings(true)
        .flag("-Wno-unused-parameter")
        .compile("user_space");
    println!("cargo::rerun-if-changed=kernel");
}

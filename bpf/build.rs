//! Compiles the BPF programs, and their pure parts once more for the tests in user space.

use std::env;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

/// Where the programs find their headers.
const FOLDERS: [&str; 3] = ["-Ikernel/wire", "-Ikernel/stack", "-Ikernel/hooks"];
/// Where their pure parts find theirs.
const PURE_FOLDERS: [&str; 2] = ["kernel/wire", "kernel/stack"];
/// What `cargo xtask lint sanitizers` adds to these parts.
const SANITIZERS: [&str; 3] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g"];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // The programs' line information has the paths of their sources: the same bytes from every folder.
    let here = env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let paths = format!("-ffile-prefix-map={here}=bpf");
    for name in ["rtrace", "step", "plain", "sampling"] {
        SkeletonBuilder::new()
            .source(format!("kernel/{name}.bpf.c"))
            .obj(out.join(format!("{name}.bpf.o")))
            .clang_args(
                ["-mcpu=v3", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", &paths]
                    .iter()
                    .chain(&FOLDERS),
            )
            .build_and_generate(out.join(format!("{name}.skel.rs")))
            .expect("the BPF programs compile (needs clang, 14 or newer)");
    }
    let mut user_space = cc::Build::new();
    user_space
        .files(["kernel/stack/stack_test.c", "kernel/stack/flags_test.c"])
        .includes(PURE_FOLDERS)
        .warnings(true)
        .extra_warnings(true)
        .flag("-Wno-unused-parameter");
    if env::var_os("CARGO_FEATURE_SANITIZERS").is_some() {
        user_space.compiler("gcc").flags(SANITIZERS);
        // In front of the C library, whose allocator they replace.
        println!("cargo::rustc-link-lib=asan\ncargo::rustc-link-lib=ubsan");
    }
    user_space.compile("user_space");
    println!("cargo::rerun-if-changed=kernel");
}

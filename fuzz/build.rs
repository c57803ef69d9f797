//! Compiles the shadow stack as its tests in user space do, and with what libFuzzer steers by.
//!
//! `rtrace-bpf` brings the same functions, without. The linker takes those that it meets first, and
//! these stand before all dependencies.

fn main() {
    cc::Build::new()
        .compiler("clang")
        .file("../bpf/kernel/stack/stack_test.c")
        .includes(["../bpf/kernel/wire", "../bpf/kernel/stack"])
        .flag("-Wno-unused-parameter")
        .flag("-fsanitize=address,undefined")
        .flag("-fsanitize-trap=undefined")
        .flag("-fsanitize-coverage=inline-8bit-counters,pc-table")
        .compile("shadow_stack");
    println!("cargo::rerun-if-changed=../bpf/kernel");
}

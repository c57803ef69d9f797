//! A library of several source files, and a program that uses it: to select functions by where they are defined.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Source files with what is in them. `weigh` is defined in a header, and `plain` without debug information.
const FILES: [(&str, &str); 6] = [
    ("include/weigh.hpp", "template <class T> __attribute__((noinline)) T weigh(T x) { return x * 3; }\n"),
    ("solver/step.c", "int solve_step(int x) { return x + 1; }\nint solve_reset(int x) { return -x; }\n"),
    (
        "solver/wave.cpp",
        "#include \"weigh.hpp\"\nnamespace wave { int spread(int x) { return weigh(x); } }\n\
         extern \"C\" int wave_run(int x) { return wave::spread(x); }\n",
    ),
    ("io/print.c", "int print_all(int x) { return x * 5; }\n"),
    ("plain.c", "int plain(int x) { return x ^ 1; }\n"),
    (
        "program.c",
        "#include <stdlib.h>\nint solve_step(int), solve_reset(int), wave_run(int), print_all(int), plain(int);\n\
         static void often(int rounds) { for (int i = 0; i < rounds; i++) solve_step(i); }\n\
         int main(int argc, char **argv)\n{\n    int rounds = argc > 1 ? atoi(argv[1]) : 0;\n    often(rounds);\n    \
         return solve_reset(wave_run(print_all(plain(0)))) == 1;\n}\n",
    ),
];

/// Functions with the end of their files' paths.
pub const DEFINED: [(&str, &str); 6] = [
    ("int weigh<int>(int)", "include/weigh.hpp"),
    ("print_all", "io/print.c"),
    ("solve_reset", "solver/step.c"),
    ("solve_step", "solver/step.c"),
    ("wave::spread(int)", "solver/wave.cpp"),
    ("wave_run", "solver/wave.cpp"),
];

/// Builds `libwork.so` and `program` in the folder.
pub fn build(folder: &Path) {
    let mut objects = Vec::new();
    for (name, text) in FILES {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        if name.ends_with(".hpp") || name == "program.c" {
            continue;
        }
        let object = format!("{}.o", path.file_stem().unwrap().display());
        let debug = if name == "plain.c" { "-g0" } else { "-g" };
        run(Command::new("g++")
            .current_dir(folder)
            .args(["-O1", "-fPIC", debug, "-Iinclude", "-c", "-o", &object])
            .args(if name.ends_with(".c") { ["-x", "c", name] } else { ["-x", "c++", name] }));
        objects.push(object);
    }
    run(Command::new("g++").current_dir(folder).args(["-shared", "-o", "libwork.so", "-Wl,--build-id"]).args(objects));
    let program = ["-g", "-O1", "-o", "program", "program.c", "-L.", "-lwork", "-Wl,-rpath,$ORIGIN"];
    run(Command::new("gcc").current_dir(folder).args(program));
}

fn run(command: &mut Command) {
    assert!(command.status().unwrap().success(), "{command:?}");
}

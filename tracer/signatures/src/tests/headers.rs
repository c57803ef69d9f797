//! The built-in table, compared with the headers that are installed here.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::builtin::FILES;
use crate::prototype;
use crate::table::SignatureTable;
use crate::{Field, Type};

/// Folders of headers that compilers do not look into.
const FOLDERS: [&str; 1] = ["/usr/lib/x86_64-linux-gnu/openmpi/include"];
/// OpenBLAS declares these to return a number, and the reference implementation to return nothing.
const SUBROUTINES: [&str; 5] = ["getrf_", "getrs_", "gesv_", "potrf_", "potri_"];

/// Headers of these come with no package of Debian.
const APART: [&str; 3] = ["cublas", "cufft", "nccl"];

fn compiled(folder: &Path, source: &str) -> Output {
    compiled_with(folder, source, &FOLDERS)
}

fn compiled_with(folder: &Path, source: &str, headers: &[&str]) -> Output {
    fs::write(folder.join("check.c"), source).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.current_dir(folder).args(["-fsyntax-only", "-fno-builtin", "-Wredundant-decls"]);
    gcc.env("LC_ALL", "C");
    gcc.args(headers.iter().map(|folder| format!("-I{folder}")));
    gcc.arg("check.c").output().unwrap()
}

/// What holds of a type of the table, as C.
fn layout(name: &str, ctype: &Type, out: &mut String) {
    let Type::Struct(structure) = ctype else { return };
    writeln!(out, "_Static_assert(sizeof({name}) == {}, \"{name}\");", structure.bytes.unwrap()).unwrap();
    for Field { name: field, offset, .. } in &structure.fields {
        writeln!(out, "_Static_assert(__builtin_offsetof({name}, {field}) == {offset}, \"{field}\");").unwrap();
    }
}

#[test]
fn prototypes_are_those_of_the_headers() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in FILES {
        let table = SignatureTable::parse(text, None, name).unwrap();
        let raw: toml::Table = text.parse().unwrap();
        let Some(headers) = raw["library"].get("headers") else { continue };
        let mut source = "#define _GNU_SOURCE\n".to_owned();
        for header in headers.as_array().unwrap() {
            writeln!(source, "#include <{}>", header.as_str().unwrap()).unwrap();
        }
        if !compiled(folder.path(), &source).status.success() {
            let kind = if APART.contains(&name) { "not here" } else { "skipped" };
            println!("{kind}: the headers of {name} are not installed");
            continue;
        }
        let dialect = table.dialect(|_| true);
        for ctype in raw.get("types").and_then(|types| types.as_table()).into_iter().flatten() {
            layout(ctype.0, &dialect.types[ctype.0], &mut source);
            // A name of the table alone, for what differs between variants.
            if let Some(meaning) = ctype.1.as_str()
                && !compiled(folder.path(), &format!("{source}typedef {} known;\n", ctype.0)).status.success()
            {
                writeln!(source, "typedef {meaning} {};", ctype.0).unwrap();
            }
        }
        let mut declared = 0;
        for (alias, entry) in table.entries() {
            // Headers declare the usual names; those of variants follow from them.
            if SUBROUTINES.iter().chain([&"64_", &"_c"]).any(|name| alias.ends_with(name)) {
                continue;
            }
            let c = entry.c.as_ref().unwrap().replacen(&format!("{}(", entry.name), &format!("{alias}("), 1);
            writeln!(source, "#undef {alias}\n{c};").unwrap();
            declared += 1;
        }
        let output = compiled(folder.path(), &source);
        let talk = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {talk}");
        let known = talk.matches("redundant redeclaration").count();
        println!("{name}: {declared} declarations, {known} of them in the headers");
        assert!(known * 10 >= declared * 7, "{name}: only {known} of {declared} are in the headers");
    }
}

#[test]
fn handles_have_the_size_of_those_in_the_header() {
    for (implementation, headers, bytes) in [
        ("ompi_mpi_comm_world", FOLDERS[0], "_ucount"),
        ("MPII_Version_string", "/usr/include/x86_64-linux-gnu/mpich", "count_lo"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (_, text) = FILES.iter().find(|(name, _)| *name == "mpi").unwrap();
        let dialect = SignatureTable::parse(text, None, "mpi").unwrap().dialect(|symbol| symbol == implementation);
        let mut source = "#include <mpi.h>\n".to_owned();
        if !compiled_with(folder.path(), &source, &[headers]).status.success() {
            println!("skipped: mpi.h is not installed in {headers}");
            continue;
        }
        for (name, ctype) in dialect.types.iter().filter(|(name, _)| name.starts_with("MPI_")) {
            writeln!(source, "_Static_assert(sizeof({name}) == {}, \"{name}\");", ctype.bytes().unwrap()).unwrap();
        }
        let places = [("source", "MPI_SOURCE"), ("tag", "MPI_TAG"), ("error", "MPI_ERROR"), ("bytes", bytes)];
        let Type::Struct(status) = &dialect.types["MPI_Status"] else { panic!("{dialect:?}") };
        for (ours, theirs) in places {
            let offset = status.fields.iter().find(|field| field.name == ours).unwrap().offset;
            writeln!(source, "_Static_assert(__builtin_offsetof(MPI_Status, {theirs}) == {offset}, \"{ours}\");")
                .unwrap();
        }
        if implementation == "MPII_Version_string" {
            for (name, bytes) in [("MPI_INT", 4), ("MPI_DOUBLE", 8), ("MPI_LONG_DOUBLE", 16), ("MPI_BYTE", 1)] {
                let size = format!("{name} >> 24 == 0x4c && ({name} >> 8 & 0xff) == {bytes}");
                writeln!(source, "_Static_assert({size}, \"{name}\");").unwrap();
            }
        }
        let output = compiled_with(folder.path(), &source, &[headers]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn sizes_of_known_types_are_those_of_the_compiler() {
    let folder = tempfile::tempdir().unwrap();
    let headers = ["sys/types.h", "stdint.h", "stddef.h", "wchar.h", "time.h", "poll.h", "sys/socket.h"];
    let mut source = "#define _GNU_SOURCE\n".to_owned();
    headers.iter().for_each(|header| writeln!(source, "#include <{header}>").unwrap());
    for (name, ctype) in prototype::known_types() {
        let Type::Integer { bytes, signed } = ctype else { panic!("{name}") };
        let sign = if signed { "<" } else { ">" };
        writeln!(source, "_Static_assert(sizeof({name}) == {bytes} && ({name})-1 {sign} 0, \"{name}\");").unwrap();
    }
    let output = compiled(folder.path(), &source);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

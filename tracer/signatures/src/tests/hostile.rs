//! Inputs that nobody would write: altered tables and altered debug information.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use object::{Object as _, ObjectSection as _};
use rtrace_symbolizer::Image;

use super::abi::Dice;
use super::libraries::build;
use crate::builtin::FILES;
use crate::describe::{Wish, describe};
use crate::table::SignatureTable;
use crate::{FetchProgram, MOST_LISTED_WORDS, MOST_OPS, MOST_VALUE_WORDS, SaidBy, dwarf, lexer, selection};

/// Each word is written before it is read, and there are not too many.
fn check(program: &FetchProgram) {
    assert!(program.fetches.len() <= MOST_OPS && usize::from(program.words) <= MOST_VALUE_WORDS);
    assert!(program.fetches.is_sorted_by_key(|fetch| fetch.op.at));
    let mut written = [false; MOST_VALUE_WORDS + MOST_LISTED_WORDS];
    for fetch in &program.fetches {
        assert!(fetch.operands.iter().flatten().all(|&word| written[usize::from(word)]), "{program:?}");
        written[usize::from(fetch.target)..usize::from(fetch.target) + fetch.op.words()].fill(true);
    }
    for slots in program.columns.iter().chain(&program.metrics) {
        let mut words = slots.first..slots.first + slots.words;
        assert!(slots.words > 0 && slots.fetches != 0 && words.all(|word| written[usize::from(word)]), "{program:?}");
    }
}

fn altered(bytes: &[u8], dice: &mut Dice, changes: u64) -> Vec<u8> {
    const PIECES: [&str; 14] =
        ["(", ")", "*", ",", "->", "[", "]", "struct {", "...", "9999999999", "\"", ":text", "{name}", " long "];
    let mut altered = bytes.to_vec();
    for _ in 0..=dice.roll(changes) {
        let place = dice.roll(altered.len() as u64) as usize;
        match dice.roll(4) {
            0 => altered[place] = dice.roll(256) as u8,
            1 => drop(altered.drain(place..(place + dice.roll(20) as usize).min(altered.len()))),
            2 => drop(altered.splice(place..place, PIECES[dice.roll(14) as usize].bytes())),
            _ => altered[place] ^= 1 << dice.roll(8),
        }
        if altered.is_empty() {
            return bytes.to_vec();
        }
    }
    altered
}

#[test]
fn altered_tables_are_read_or_refused() {
    let mut dice = Dice(1);
    let (mut read, mut described) = (0, 0);
    for _ in 0..1500 {
        let (_, text) = FILES[dice.roll(FILES.len() as u64) as usize];
        let text = String::from_utf8_lossy(&altered(text.as_bytes(), &mut dice, 3)).into_owned();
        let Ok(table) = SignatureTable::parse(&text, Some(Path::new("mine.toml")), "") else { continue };
        read += 1;
        let dialect = table.dialect(|symbol| symbol == "ompi_mpi_comm_world");
        for (name, entry) in table.entries().take(40) {
            let Ok(Some(description)) = table.description(entry, &dialect) else { continue };
            let wish = Wish { columns: None, entry: Some(entry), dialect: &dialect, no_strings: false, stubs: false };
            if let Ok((_, program)) = describe(name, description, &wish) {
                check(&program);
                described += 1;
            }
        }
    }
    assert!(read > 100 && described > 1000, "{read} {described}");
}

#[test]
fn altered_selections_are_read_or_refused() {
    let mut dice = Dice(2);
    let selection = "read(count, x=>buf->a.b[3]:u32) -> result, errno; open(path:text(16), *m); MPI_*; raw";
    for _ in 0..20_000 {
        let text = String::from_utf8_lossy(&altered(selection.as_bytes(), &mut dice, 4)).into_owned();
        let _ = selection::ValueSelection::parse(&text);
        let _ = lexer::Lexer::new(&text);
    }
}

#[test]
fn altered_debug_information_is_survived() {
    let folder = tempfile::tempdir().unwrap();
    let source = "
struct s { struct s *next; struct { char c; long l[3]; } in; union { float f; int i; } u; int bits : 3; };
enum colour { RED };
struct s f(struct s a, const struct s *b, enum colour c, long double d, float _Complex e, int (*g)(int), ...) { return a; }
long g(struct s *const *p, char text[static 3], _Bool b, unsigned __int128 i) { return b; }
long h(long n, int *p, struct s s) { n = g(0, 0, n, *p); p += n; return g(0, 0, n * s.bits, *p) + n; }";
    // What is optimized has lists of locations.
    let path = build(folder.path(), "gcc", "a.c", source, &["-g", "-O2", "-shared", "-fPIC", "-nostdlib"]);
    let image = Image::open(&path).unwrap();
    let addresses: HashSet<u64> = image.exports().unwrap().functions.iter().map(|function| function.address).collect();
    let names: HashSet<String> = ["f", "g"].map(str::to_owned).into();
    let bytes = fs::read(&path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let start = file.section_by_name(".debug_info").unwrap().file_range().unwrap().0 as usize;
    let mut dice = Dice(3);
    let mut found = 0;
    for _ in 0..3000 {
        let mut altered = bytes.clone();
        for _ in 0..=dice.roll(6) {
            let place = start + dice.roll((bytes.len() - start) as u64) as usize;
            altered[place] = dice.roll(256) as u8;
        }
        let other = folder.path().join("altered.so");
        fs::write(&other, &altered).unwrap();
        let wanted = dwarf::WantedFunctions {
            addresses: addresses.clone(),
            names: names.clone(),
            levels: 3,
            ..dwarf::WantedFunctions::default()
        };
        let known = dwarf::read(&other, &other, &image, &wanted, |path| SaidBy::Library(path.to_owned()));
        for description in known.definitions.into_values().chain(known.declarations.into_values().flatten()) {
            let dialect = crate::table::Dialect::default();
            let wish = Wish { columns: None, entry: None, dialect: &dialect, no_strings: false, stubs: false };
            if let Ok((_, program)) = describe("f", description, &wish) {
                check(&program);
                found += 1;
            }
        }
    }
    assert!(found > 1000, "{found}");
}

//! Reads the input as an ELF file with debug information, else as a table of signatures and as a selection.
//!
//! Whatever it says, what is fetched of a call stays within the words and operations that there are.

#![no_main]

use std::io::Write as _;
use std::path::Path;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use rtrace_signatures::{Asked, Book, FetchProgram, Lookup, MOST_OPS, MOST_VALUE_WORDS, Request, TracedLibrary};
use rtrace_symbolizer::Image;

/// A library that defines nothing: of it, tables alone speak.
static EMPTY: LazyLock<Image> = LazyLock::new(|| {
    let mut header = vec![0; 64 + 56];
    header[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    // A shared object for x86-64 with one segment, which is the file.
    for (place, value) in
        [(16, 3), (18, 62), (20, 1), (32, 64), (52, 64), (54, 56), (56, 1), (64, 1), (68, 5), (96, 120), (104, 120)]
    {
        header[place] = value;
    }
    Image::parse(header).expect("it is an ELF file")
});

fuzz_target!(|bytes: &[u8]| {
    if bytes.starts_with(b"\x7fELF") {
        return debug_information(bytes);
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let selection = Request { selection: text.to_owned(), ..Request::default() };
    let everything = Request::default();
    for book in [Book::read(&selection, None), Book::read(&everything, Some((Path::new("input.toml"), text)))] {
        let Ok(book) = book else { continue };
        let names: Vec<&str> = text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').collect();
        let asked: Vec<[&str; 1]> =
            names.into_iter().filter(|name| !name.is_empty()).take(64).map(|name| [name]).collect();
        let asked: Vec<Asked> = asked.iter().map(|symbols| Asked { symbols, address: 0, note: None }).collect();
        ask(&book, Path::new("/nowhere/libinput.so"), &EMPTY, &asked);
    }
});

fn debug_information(bytes: &[u8]) {
    let Ok(image) = Image::parse(bytes.to_vec()) else { return };
    let Ok(exports) = image.exports() else { return };
    let mut file = tempfile::NamedTempFile::new().expect("there is room");
    file.write_all(bytes).expect("there is room");
    let symbols: Vec<Vec<&str>> = exports
        .functions
        .iter()
        .map(|function| function.symbols.iter().map(|symbol| symbol.name.as_str()).collect())
        .collect();
    let functions = exports.functions.iter().zip(&symbols).take(1000);
    let asked: Vec<Asked> =
        functions.map(|(function, symbols)| Asked { symbols, address: function.address, note: None }).collect();
    let book = Book::read(&Request::default(), None).expect("the built-in table is right");
    ask(&book, file.path(), &image, &asked);
}

fn ask(book: &Book, path: &Path, image: &Image, asked: &[Asked]) {
    let callers = [path.to_owned()];
    let subject = TracedLibrary { path, open: path, image, callers: &callers };
    let Ok(known) = book.of_library(&subject, asked) else { return };
    for known in known {
        if let Lookup::Signature(signature, program) = known {
            assert_eq!(signature.columns.len(), program.columns.len());
            assert_eq!(signature.metrics.len(), program.metrics.len());
            check(&program);
        }
    }
}

/// Each word is written before it is read, and there are not too many.
fn check(program: &FetchProgram) {
    assert!(program.fetches.len() <= MOST_OPS && usize::from(program.words) <= MOST_VALUE_WORDS);
    assert!(program.fetches.is_sorted_by_key(|fetch| fetch.op.at));
    let mut written = [false; MOST_VALUE_WORDS];
    for fetch in &program.fetches {
        assert!(fetch.operands.iter().flatten().all(|&word| written[usize::from(word)]), "{program:?}");
        written[usize::from(fetch.target)..usize::from(fetch.target) + fetch.op.words()].fill(true);
    }
    for slots in program.columns.iter().chain(&program.metrics) {
        assert!(slots.words > 0 && usize::from(slots.first + slots.words) <= MOST_VALUE_WORDS);
        assert!(slots.fetches != 0 && (slots.first..slots.first + slots.words).all(|word| written[usize::from(word)]));
    }
}

//! Reads the input as an ELF file and asks for all that there is to ask.
//!
//! What is said of a function must hold: its code is there, where it is said to be, and only one
//! function begins at each place.

#![no_main]

use std::hint::black_box;

use libfuzzer_sys::fuzz_target;
use rtrace_symbolizer::{Function, Image};

fuzz_target!(|bytes: &[u8]| {
    let Ok(image) = Image::parse(bytes.to_vec()) else { return };
    if let Ok(exports) = image.exports() {
        assert!(exports.functions.is_sorted_by(|a, b| a.file_offset < b.file_offset));
        exports.functions.iter().chain(&exports.untyped).for_each(|function| check_function(&image, function));
        black_box(exports.refused.iter().map(|refused| refused.reason.to_string().len()).sum::<usize>());
    }
    let ranges = image.frame_ranges();
    assert!(ranges.is_sorted_by_key(|range| range.start));
    for range in &ranges {
        assert!(range.start < range.end);
    }
    let ranges = image.code_ranges();
    assert!(ranges.iter().all(|range| range.start < range.end));
    assert!(ranges.is_sorted_by(|before, after| before.end <= after.start));
    black_box((image.slots(), image.own_slots().count(), image.definitions().count(), image.stub_tables()));
    for range in image.executable_ranges() {
        assert!(range.start <= range.end);
        black_box(image.loaded(range.start));
    }
    black_box(image.go_code());
    black_box((image.imports(), image.needed(), image.build_id(), image.defines("f")));
    black_box((image.soname(), image.runpath(), image.rpath(), image.interpreter()));
});

fn check_function(image: &Image, function: &Function) {
    assert!(!function.symbols.is_empty());
    assert_eq!(image.file_offset(function.address), Some(function.file_offset));
    let code = image.code(function.address, function.size as usize).expect("exported functions are code");
    assert_eq!(code.len() as u64, function.size);
}

//! Plans probes for the input, taken as an ELF file.
//!
//! A probe at a wrong place breaks a program, so whatever the file claims, every site must be a byte
//! of code, and tell one region.

#![no_main]

use std::collections::HashMap;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use rtrace_code::arrival::{Arrival, Keeps, arrival};
use rtrace_code::instruction::Emulation;
use rtrace_model::{ExitPolicy, Library, LibraryId, RegionId};
use rtrace_plan::{LibrarySource, Plan, PlanOptions, plan};
use rtrace_symbolizer::Image;

const FIRST: RegionId = RegionId(7);

fuzz_target!(|bytes: &[u8]| {
    for steps in [false, true] {
        let emulated = Emulation { long_nops: true, steps };
        arrives(bytes, emulated);
        let Ok(image) = Image::parse(bytes.to_vec()) else { return };
        for exit in ExitPolicy::ALL {
            check(&image, bytes, exit, emulated);
        }
    }
});

/// A return site lies within the code.
fn arrives(code: &[u8], emulated: Emulation) {
    for keeps in [Keeps::default(), Keeps { accesses: true, ..Keeps::READABLE }] {
        if let Arrival::Site(site) = arrival(code, &emulated, keeps) {
            assert!(usize::from(site.distance) < code.len(), "{site:?}");
        }
    }
}

fn check(image: &Image, bytes: &[u8], exit: ExitPolicy, emulated: Emulation) {
    let Some(source) = source(bytes) else { return };
    let options = PlanOptions { exit, emulated, stubs: true, ..PlanOptions::default() };
    let Plan { libraries } = plan(&[source], &options, FIRST);
    let regions = &libraries[0].regions;
    assert!(regions.is_sorted_by(|a, b| a.region.file_offset < b.region.file_offset));
    assert!(regions.iter().map(|planned| planned.region.id.0).eq(FIRST.0..FIRST.0 + regions.len() as u32));
    let mut taken = HashMap::new();
    for planned in regions {
        let site = planned.entry.file_offset;
        let is_code = image.address(site).is_some_and(|address| image.code(address, 1).is_some());
        assert!(is_code, "no code at {site:#x}");
        if let Some(other) = taken.insert(site, planned) {
            panic!("two regions at {site:#x}: {other:#x?} and {planned:#x?}");
        }
    }
}

fn source(bytes: &[u8]) -> Option<LibrarySource> {
    let image = Image::parse(bytes.to_vec()).ok()?;
    let exports = image.exports().ok()?;
    let path = "/lib/input.so";
    let library = Library { id: LibraryId(0), path: path.into(), apart: None, build_id: None, device: 0, inode: 0 };
    Some(LibrarySource::new(library, path.into(), Arc::new(image), exports, Vec::new()))
}

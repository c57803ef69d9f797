//! Plans probes for the input, taken as an ELF file.
//!
//! A probe at a wrong place breaks a program, so whatever the file claims, every site must be a byte
//! of code, and tell one region and one purpose.

#![no_main]

use std::collections::HashMap;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use rtrace::plan::{Binding, Emulation, Hazards, LibrarySource, Options, Plan, PlannedRegion, hazards, plan};
use rtrace_model::{ExitPolicy, Library, LibraryId, RegionId};
use rtrace_symbolizer::Image;

const FIRST: RegionId = RegionId(7);

fuzz_target!(|bytes: &[u8]| {
    let Ok(image) = Image::parse(bytes.to_vec()) else { return };
    let unwinding = || Hazards { unwind: Some("it may unwind".to_owned()), ..Hazards::default() };
    for steps in [false, true] {
        let emulated = Emulation { long_nops: true, steps };
        check(&image, bytes, Hazards::default(), None, emulated);
        check(&image, bytes, unwinding(), None, emulated);
        let hazards = hazards::of_images([("/lib/input.so", &image)].into_iter());
        check(&image, bytes, hazards, Some(ExitPolicy::RetSite), emulated);
    }
});

fn check(image: &Image, bytes: &[u8], hazards: Hazards, exit: Option<ExitPolicy>, emulated: Emulation) {
    let Some(source) = source(bytes) else { return };
    let options = Options { exit, emulated, can_refuse_hooks: true, stubs: true, ..Options::default() };
    let Plan { libraries, .. } = plan(&[source], hazards, &options, FIRST);
    let regions = &libraries[0].regions;
    assert!(regions.is_sorted_by(|a, b| a.region.file_offset < b.region.file_offset));
    assert!(regions.iter().map(|planned| planned.region.id.0).eq(FIRST.0..FIRST.0 + regions.len() as u32));
    let mut taken = HashMap::new();
    for planned in regions {
        for site in sites(planned) {
            let is_code = image.address(site).is_some_and(|address| image.code(address, 1).is_some());
            assert!(is_code, "no code at {site:#x}");
            if let Some(other) = taken.insert(site, planned) {
                panic!("two purposes at {site:#x}: {other:#x?} and {planned:#x?}");
            }
        }
    }
}

fn source(bytes: &[u8]) -> Option<LibrarySource> {
    let image = Image::parse(bytes.to_vec()).ok()?;
    let exports = image.exports().ok()?;
    let path = "/lib/input.so";
    let library = Library { id: LibraryId(0), path: path.into(), build_id: None, device: 0, inode: 0 };
    let binding = Binding::of(&image, [(path, &image)].into_iter());
    let image = Arc::new(image);
    Some(LibrarySource { library, attach_path: path.into(), image, exports, ifuncs: Vec::new(), binding })
}

/// The file offsets at which a region is probed.
fn sites(planned: &PlannedRegion) -> Vec<u64> {
    let exits = planned.exit.sites().iter().map(|site| site.file_offset);
    [planned.entry.file_offset].into_iter().chain(exits).collect()
}

//! Marked places within functions (USDT probes): which are probed, and whether each may be.
//!
//! A note in the file says where they are, and notes may be older than the code. So a probe is placed only on a nop to which
//! the instructions of its function lead, one by one.

use std::collections::HashSet;

use rtrace_code::instruction::SiteCost;
use rtrace_code::line::CodePoint;
use rtrace_code::returning::Returning;
use rtrace_code::tails::Tails;
use rtrace_code::text::{FunctionCode, Text};
use rtrace_model::{ExitPolicy, Region, RegionId, SymbolName};
use rtrace_symbolizer::{Symbol, UsdtProbe};

use crate::entries::Entries;
use crate::{EntrySite, LibrarySource, PlanOptions, PlannedRegion, Reason, Refusal};

/// Plans the places that are asked for, where no function's entry is seen (`taken`: offsets in the file, in bytes).
pub fn plan(
    source: &LibrarySource,
    options: &PlanOptions,
    text: &Text<'_>,
    entries: &Entries<'_>,
    taken: &HashSet<u64>,
) -> (Vec<PlannedRegion>, Vec<Refusal>) {
    let (mut regions, mut refused) = (Vec::new(), Vec::new());
    let is_asked = |marker: &&UsdtProbe| options.selects(&source.subject(&marker.place, marker.place.address));
    for marker in source.exports.markers.iter().filter(is_asked) {
        let place = FunctionCode { entry: marker.place.address, size: 0 };
        let site = match (taken.contains(&marker.place.file_offset), is_nop(text, place.entry)) {
            (true, _) => Err(Reason::Shared),
            (_, false) => Err(Reason::NoNop),
            _ if source.is_altered(&(marker.place.file_offset..marker.place.file_offset + 1), &[]) => {
                Err(Reason::Altered)
            }
            _ => entries.site(CodePoint::entry(place)),
        };
        match site {
            Ok(entry) => regions.push(region(source, marker, entry)),
            Err(reason) => refused.push(Refusal { name: marker.place.name.clone(), reason }),
        }
    }
    (regions, refused)
}

/// Whether the instruction there is a nop, to which those lead from the begin of its function on.
fn is_nop(text: &Text<'_>, address: u64) -> bool {
    let is_nop = text
        .instruction_bytes(address)
        .is_some_and(|bytes| matches!(bytes, [0x90] | [0x66, 0x90]) || bytes.starts_with(&[0x0f, 0x1f]));
    is_nop && text.frame_at(address).is_some_and(|(_, frame)| text.is_reached(frame.start, address))
}

fn region(source: &LibrarySource, marker: &UsdtProbe, entry: EntrySite) -> PlannedRegion {
    let capture = source.captures.get(&marker.place.address).cloned();
    let symbol_name = |symbol: &Symbol| SymbolName { symbol: symbol.name.clone(), version: None };
    let region = Region {
        id: RegionId(0),
        library: source.library.id,
        name: marker.place.name.clone(),
        symbols: marker.place.symbols.iter().map(symbol_name).collect(),
        file_offset: marker.place.file_offset,
        size: 0,
        exit: ExitPolicy::EntryOnly,
        single_stepped: entry.cost == SiteCost::SingleStep,
        written: false,
        stub: false,
        source_file: None,
        source_line: None,
        event: None,
    };
    PlannedRegion {
        region,
        entry,
        untimed: Some(Reason::Place),
        tails: Tails::Never,
        laps: false,
        returning: Returning::default(),
        abandons: false,
        passes_on: false,
        opens: false,
        jump: None,
        capture,
        stub: None,
        marker: Some(marker.semaphore),
    }
}

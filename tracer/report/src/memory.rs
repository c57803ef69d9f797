//! Memory that calls allocated: how much of it was in use when most was, and how much was not freed.
//!
//! Blocks are paired by their address over all threads: one is in use from the end of the call that returned it to the
//! start of the call that freed it. What that means is known of functions with the events `allocate` and `free`, and of
//! values with the roles `address`, and `handle` for the block that a reallocation takes back.

use std::collections::HashMap;

use rtrace_exporters::TraceSet;
use rtrace_model::{
    Call, CallValues, FunctionEvent, LocationId, Role, Scope, Timestamp, Value, counted, format_ns, grouped,
};
use rtrace_profile::Visited;

use super::Error;
use super::key::RowId;
use super::people::Note;
use super::table::{Column, Datum, Shown, Table};

/// The metric of calls that says how much they allocated.
const BYTES: &str = "allocated_bytes";

/// A thread, and the id of a call of it.
type CallKey = (LocationId, u64);

/// A process: the place of its trace, and its id.
type MemoryOwner = (usize, u32);

/// What became of the blocks of calls, and of which row these calls are.
pub(super) struct Memory {
    blocks: HashMap<CallKey, AllocatedBlock>,
    sums: HashMap<RowId, MemorySums>,
    note: Note,
}

/// A block of memory.
#[derive(Clone, Copy)]
struct AllocatedBlock {
    bytes: u64,
    is_in_peak: bool,
    is_leaked: bool,
}

#[derive(Clone, Copy, Default)]
struct MemorySums {
    peak: u64,
    leaked: u64,
    leaks: u64,
}

/// Something that happens to a block, in the order of time: what is freed goes before what is allocated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Freed { address: i64 },
    Allocated { address: i64, bytes: u64, call: CallKey },
}

impl Memory {
    /// Reads the allocations of all threads. The memory that it takes grows with their number.
    ///
    /// # Errors
    /// The trace cannot be read, or has no allocations with their addresses.
    pub(super) fn new(trace: &TraceSet) -> Result<Memory, Error> {
        let of_calls = trace.metrics().iter().filter(|metric| metric.scope == Scope::Call);
        let place = of_calls.into_iter().position(|metric| metric.name == BYTES).ok_or(Error::NoAllocations)?;
        // Each with the trace that it is of: ranks have their own memory.
        let (mut happenings, mut unknown) = (Vec::new(), 0);
        let mut values = trace.value_reader();
        for number in 0..trace.traces().len() {
            for batch in trace.calls_of(number) {
                let batch = batch?;
                let event = |call: &Call| trace.region(call.region).and_then(|region| region.event);
                let is_of_memory =
                    |call: &Call| matches!(event(call), Some(FunctionEvent::Allocate | FunctionEvent::Free));
                let (places, calls): (Vec<usize>, Vec<Call>) =
                    batch.iter().copied().enumerate().filter(|(_, call)| is_of_memory(call)).unzip();
                for ((at, call), values) in places.iter().zip(&calls).zip(values.of(&calls)?) {
                    let process = trace.location(call.location).map_or(0, |location| location.pid);
                    let reading = batch.readings(*at).get(place);
                    let bytes = reading.map_or(0, |reading| reading.exclusive());
                    let found = happened(call, event(call), values.as_ref(), bytes);
                    unknown += u64::from(found.is_none());
                    happenings.extend(found.into_iter().flatten().map(|(time, what)| (time, (number, process), what)));
                }
            }
        }
        if happenings.is_empty() {
            return Err(Error::NoAllocations);
        }
        happenings.sort_unstable();
        Ok(Memory::of(&happenings, unknown, trace.header().begin.monotonic))
    }

    /// What became of each block; `process` tells memories apart.
    fn of(happenings: &[(Timestamp, MemoryOwner, Happening)], unknown: u64, begin: Timestamp) -> Memory {
        let mut blocks: HashMap<CallKey, AllocatedBlock> = HashMap::new();
        let mut live: HashMap<(MemoryOwner, i64), (CallKey, usize)> = HashMap::new();
        let mut lives: Vec<(CallKey, usize, usize)> = Vec::new();
        let (mut used, mut peak, mut foreign) = (0_u64, (0, 0), 0_u64);
        for (number, &(_, process, happening)) in happenings.iter().enumerate() {
            let (Happening::Freed { address } | Happening::Allocated { address, .. }) = happening;
            let before = live.remove(&(process, address));
            if let Some((call, since)) = before {
                used = used.saturating_sub(blocks.get(&call).map_or(0, |block| block.bytes));
                lives.push((call, since, number));
            }
            match happening {
                Happening::Freed { .. } => foreign += u64::from(before.is_none()),
                Happening::Allocated { bytes, call, .. } => {
                    blocks.insert(call, AllocatedBlock { bytes, is_in_peak: false, is_leaked: false });
                    live.insert((process, address), (call, number));
                    used = used.saturating_add(bytes);
                    if used > peak.0 {
                        peak = (used, number);
                    }
                }
            }
        }
        let leaks: Vec<_> = live.into_values().map(|(call, since)| (call, since, usize::MAX)).collect();
        let (mut leaked, count) = (0_u64, leaks.len() as u64);
        for (call, since, until) in lives.into_iter().chain(leaks) {
            let Some(block) = blocks.get_mut(&call) else { continue };
            block.is_in_peak |= since <= peak.1 && peak.1 < until;
            if until == usize::MAX {
                block.is_leaked = true;
                leaked = leaked.saturating_add(block.bytes);
            }
        }
        let when = happenings.get(peak.1).map_or(0, |(time, ..)| time.since(begin));
        let mut said = format!(
            "memory: at most {} bytes in use, {} after the start; not freed: {} bytes in {}",
            grouped(peak.0),
            format_ns(when),
            grouped(leaked),
            counted(count, "block")
        );
        if foreign > 0 {
            said += &format!("; freed, and allocated before the recording or elsewhere: {}", counted(foreign, "block"));
        }
        if unknown > 0 {
            said += &format!("; addresses of {} are not known", counted(unknown, "call"));
        }
        Memory { blocks, sums: HashMap::new(), note: Note::plain(said).kept() }
    }

    /// Adds a call that counts to its row.
    pub(super) fn add(&mut self, row: RowId, calls: Visited<'_>) {
        let block = calls.single().and_then(|one| self.blocks.get(&(one.call.location, one.call.id)));
        let Some(block) = block else { return };
        let sums = self.sums.entry(row).or_default();
        sums.peak += if block.is_in_peak { block.bytes } else { 0 };
        sums.leaked += if block.is_leaked { block.bytes } else { 0 };
        sums.leaks += u64::from(block.is_leaked);
    }

    /// Adds what is known of memory to a table of the rows.
    pub(super) fn add_to(&self, table: &mut Table) {
        table.insert(&COLUMNS, |mark| {
            let sums = self.sums.get(&mark).copied().unwrap_or_default();
            [sums.peak, sums.leaked, sums.leaks].map(Datum::Count).into()
        });
    }

    /// What is said of it below the rows.
    pub(super) fn note(&self) -> Note {
        self.note.clone()
    }
}

/// What a call does to blocks, and when; nothing is known of one whose address is not.
fn happened(
    call: &Call,
    event: Option<FunctionEvent>,
    values: Option<&CallValues>,
    bytes: u64,
) -> Option<Vec<(Timestamp, Happening)>> {
    let value = |role: Role| {
        let mut of_role = values?.iter().filter(|(column, _)| column.role.as_deref() == Some(role.name()));
        match of_role.find_map(|(_, value)| value)? {
            Value::Integer(address) => Some(*address),
            _ => None,
        }
    };
    let freed = |address: i64| (call.start, Happening::Freed { address });
    let address = value(Role::Address)?;
    let known = |address: &i64| *address != 0;
    if event == Some(FunctionEvent::Free) {
        return Some(Some(address).filter(known).map(freed).into_iter().collect());
    }
    let old = value(Role::Handle).filter(known);
    // A reallocation that fails leaves the block as it was.
    let old = old.filter(|_| address != 0 || bytes == 0).map(freed);
    let what = Happening::Allocated { address, bytes, call: (call.location, call.id) };
    Some(old.into_iter().chain((address != 0).then(|| (call.known_until(), what))).collect())
}

pub(super) const COLUMNS: [Column; 3] = [
    Column::new("peak_bytes", "peak bytes").seat(0).rank(1).shown(Shown::IfNotZero),
    Column::new("leaked_bytes", "leaked bytes").seat(0).rank(1).shown(Shown::IfNotZero),
    Column::new("leaks", "leaks").seat(0).rank(1).shown(Shown::IfNotZero),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_that_of_all_threads_and_what_is_left_has_leaked() {
        let call = |thread: u32, number| (LocationId(thread), number);
        let mut happenings = Vec::new();
        let mut allocate = |time, process, address, bytes, call| {
            happenings.push((Timestamp(time), (0, process), Happening::Allocated { address, bytes, call }));
        };
        allocate(10, 7, 100, 50, call(1, 1));
        allocate(20, 7, 200, 30, call(2, 1));
        // Another process has the same address.
        allocate(25, 8, 100, 5, call(3, 1));
        allocate(40, 7, 100, 20, call(1, 2));
        allocate(60, 7, 300, 10, call(2, 2));
        for (time, address) in [(30, 100), (50, 100), (55, 900)] {
            happenings.push((Timestamp(time), (0, 7), Happening::Freed { address }));
        }
        happenings.sort_unstable();
        let memory = Memory::of(&happenings, 2, Timestamp(5));
        let of = |call| {
            let block = memory.blocks[&call];
            (block.bytes, block.is_in_peak, block.is_leaked)
        };
        assert_eq!(of(call(1, 1)), (50, true, false));
        assert_eq!(of(call(2, 1)), (30, true, true));
        assert_eq!(of(call(3, 1)), (5, true, true));
        assert_eq!(of(call(1, 2)), (20, false, false));
        assert_eq!(of(call(2, 2)), (10, false, true));
        assert_eq!(
            memory.note().text,
            "memory: at most 85 bytes in use, 20 ns after the start; not freed: 45 bytes in 3 blocks; freed, and allocated \
             before the recording or elsewhere: 1 block; addresses of 2 calls are not known"
        );
    }
}

//! The names of cache events: a cache, what is done, and whether it misses, as `perf list` has them.

use perf_event_open_sys::bindings::{self as perf, PERF_TYPE_HW_CACHE};

use super::EventCode;

const CACHES: [(&str, u32); 7] = [
    ("L1-dcache", perf::PERF_COUNT_HW_CACHE_L1D),
    ("L1-icache", perf::PERF_COUNT_HW_CACHE_L1I),
    ("LLC", perf::PERF_COUNT_HW_CACHE_LL),
    ("dTLB", perf::PERF_COUNT_HW_CACHE_DTLB),
    ("iTLB", perf::PERF_COUNT_HW_CACHE_ITLB),
    ("branch", perf::PERF_COUNT_HW_CACHE_BPU),
    ("node", perf::PERF_COUNT_HW_CACHE_NODE),
];

const ACCESSES: [(&str, u32, u32); 6] = [
    ("loads", perf::PERF_COUNT_HW_CACHE_OP_READ, perf::PERF_COUNT_HW_CACHE_RESULT_ACCESS),
    ("load-misses", perf::PERF_COUNT_HW_CACHE_OP_READ, perf::PERF_COUNT_HW_CACHE_RESULT_MISS),
    ("stores", perf::PERF_COUNT_HW_CACHE_OP_WRITE, perf::PERF_COUNT_HW_CACHE_RESULT_ACCESS),
    ("store-misses", perf::PERF_COUNT_HW_CACHE_OP_WRITE, perf::PERF_COUNT_HW_CACHE_RESULT_MISS),
    ("prefetches", perf::PERF_COUNT_HW_CACHE_OP_PREFETCH, perf::PERF_COUNT_HW_CACHE_RESULT_ACCESS),
    ("prefetch-misses", perf::PERF_COUNT_HW_CACHE_OP_PREFETCH, perf::PERF_COUNT_HW_CACHE_RESULT_MISS),
];

/// All cache events with their names; a machine has some of them.
pub(super) fn all() -> impl Iterator<Item = (String, EventCode)> {
    CACHES.into_iter().flat_map(|(cache, cache_id)| {
        ACCESSES.into_iter().map(move |(access, operation, result)| {
            let config = cache_id | operation << 8 | result << 16;
            (format!("{cache}-{access}"), EventCode::new(PERF_TYPE_HW_CACHE, config.into()))
        })
    })
}

/// The cache event of that name.
pub(super) fn find(name: &str) -> Option<EventCode> {
    all().find(|(of, _)| of == name).map(|(_, event)| event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_perf_event_open() {
        assert_eq!(find("L1-dcache-loads").map(|event| event.config), Some(0));
        assert_eq!(find("LLC-load-misses").map(|event| event.config), Some(0x1_0002));
        assert_eq!(find("dTLB-store-misses").map(|event| event.config), Some(0x1_0103));
        assert_eq!(find("L1-dcache"), None);
    }
}

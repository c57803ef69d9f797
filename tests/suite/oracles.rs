//! The oracles judge each other: callgrind, which instruments code, and breakpoints, which stop it,
//! count the same.

use rtrace_symbolizer::Image;

use crate::common::oracle;
use crate::common::skip::installed;
use crate::common::workload::Workload;

#[test]
fn callgrind_counts_what_breakpoints_count() {
    let Some(workload) = Workload::sqlite(50) else { return };
    if !installed(&["valgrind"]) {
        return;
    }
    let image = Image::open(&workload.library).unwrap();
    let offsets: Vec<u64> =
        image.exports().unwrap().functions.iter().filter(|f| !f.ifunc).map(|f| f.file_offset).collect();
    let by_breakpoint = oracle::breakpoints(&workload.library, &offsets, &workload.command);
    let by_address = oracle::callgrind(&workload.library, &workload.command);
    let calls: u64 = by_breakpoint.values().sum();
    assert!(calls > 10_000, "{calls} calls say little");
    for offset in offsets {
        let address = image.address(offset).expect("exports lie in the file");
        let by_callgrind = by_address.get(&address).copied().unwrap_or(0);
        assert_eq!(by_callgrind, by_breakpoint[&offset], "calls of the function at {offset:#x}");
    }
}

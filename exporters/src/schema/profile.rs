//! `profile.parquet`: a row per call path of a location.

use rtrace_model::{Count, PathId, PathProfile};

use super::cell::row;
use super::column::{ColumnError, Columns};

row!(PathProfile, "profile.parquet", {
    "location": location,
    "path": path,
    // 0 stands for none.
    "parent": parent as [|path| path.parent.unwrap_or(PathId(0)), |id: PathId| (id != PathId(0)).then_some(id)],
    "region": region,
    "calls": calls,
    "timed": timed,
    "unwound": unwound,
    "open": open,
    "unseen": unseen,
    "inclusive_ns": inclusive as [|path| path.has_time().then_some(path.inclusive), Option::unwrap_or_default],
    "exclusive_ns": exclusive as [|path| path.has_time().then_some(path.exclusive), Option::unwrap_or_default],
    "open_ns": open_time,
    "min_ns": min,
    "max_ns": max,
    "histogram": histogram,
    "counts": counts as [|path| counts(path, |count| count.inclusive), |counts: Vec<u64>| {
        counts.into_iter().map(|inclusive| Count { inclusive, exclusive: 0 }).collect()
    }],
    "counts_exclusive": [|path| counts(path, |count| count.exclusive)],
}, then complete);

fn counts(path: &PathProfile, of: fn(&Count) -> u64) -> Vec<u64> {
    path.counts.iter().map(of).collect()
}

fn complete(columns: &Columns<'_>, mut paths: Vec<PathProfile>) -> Result<Vec<PathProfile>, ColumnError> {
    for (path, exclusive) in paths.iter_mut().zip(columns.lists("counts_exclusive")?) {
        path.counts.truncate(exclusive.len());
        path.counts.iter_mut().zip(exclusive).for_each(|(count, exclusive)| count.exclusive = exclusive);
    }
    Ok(paths)
}

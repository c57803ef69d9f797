//! Rows that tell calls apart by the library that makes them and the library that they are to.
//!
//! The library that makes a call is that of its call site, traced or not. Where that is not known, it is that of the traced
//! caller. A tail call counts for the library that called the function which ends in it.

use std::collections::HashMap;

use rtrace_exporters::TraceSet;
use rtrace_model::{CallSiteId, LibraryId, RegionId};
use rtrace_profile::Caller;

use super::key::{RowId, UNKNOWN, name};
use super::table::{Column, Datum};

/// A library that makes calls, by its path, and one that has the functions.
type LibraryPair<'a> = (Option<&'a str>, LibraryId);

/// The pairs, as they appear.
pub(super) struct LibraryPairs<'a> {
    trace: &'a TraceSet,
    /// By their key.
    pairs: Vec<LibraryPair<'a>>,
    keys: HashMap<LibraryPair<'a>, RowId>,
}

impl<'a> LibraryPairs<'a> {
    pub(super) fn new(trace: &'a TraceSet) -> LibraryPairs<'a> {
        LibraryPairs { trace, pairs: Vec::new(), keys: HashMap::new() }
    }

    pub(super) fn key(&mut self, region: RegionId, site: Option<CallSiteId>, caller: &Caller<'_, RowId>) -> RowId {
        let Some(target) = self.trace.region(region).map(|region| region.library) else { return UNKNOWN };
        let of_site = site.and_then(|site| self.trace.call_site(site)?.file.as_deref());
        let of_caller = || match caller {
            Caller::Known(enclosing) => {
                let (_, library) = *self.pairs.get(enclosing.last()?.mark as usize)?;
                self.trace.library(library).map(|library| library.path.as_str())
            }
            Caller::None | Caller::Lost(_) => None,
        };
        let pair = (of_site.or_else(of_caller), target);
        let next = self.pairs.len() as RowId;
        let key = *self.keys.entry(pair).or_insert(next);
        if key == next {
            self.pairs.push(pair);
        }
        key
    }

    /// What a row is, its name last.
    pub(super) const fn columns() -> &'static [Column] {
        const PAIR: [Column; 2] = [Column::name("caller_library", "called from"), Column::name("library", "library")];
        &PAIR
    }

    /// The values of [`columns`](LibraryPairs::columns).
    pub(super) fn labels(&self, key: RowId) -> Vec<Datum> {
        let pair = self.pairs.get(key as usize);
        let library = pair.and_then(|&(_, library)| self.trace.library(library));
        vec![name(pair.and_then(|&(from, _)| from)), name(library.map(|library| library.path.as_str()))]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use rtrace_model::{CallSite, Definition, Sink as _, Summary};

    use super::*;
    use crate::testing::{script, writer};
    use crate::{By, Format, Options, Sort, run};

    #[test]
    fn calls_within_a_library_and_from_one_to_another_are_rows() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        // `d` is of the other library, and each call has a row of its own.
        let mut calls = script("thread 1\n a 0 100\n  b 10 60\n   d 20 50\n  d 70 80\n d 200 210");
        for call in &mut calls {
            call.call_site = (call.parent == 0).then_some(CallSiteId(90));
        }
        writer.calls(&calls.into()).unwrap();
        let file = Some("/usr/bin/prog".to_owned());
        writer.define(&Definition::CallSite(CallSite { id: CallSiteId(90), file, ..CallSite::default() })).unwrap();
        writer.finish(&Summary::default()).unwrap();
        let options = Options { by: By::LibraryPair, sort: Sort::Calls, format: Format::Json, ..Options::default() };
        let mut out = Vec::new();
        run(folder.path(), &options, &mut out).unwrap();
        let report: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let row = |row: &serde_json::Value| format!("{} {} {}", row["calls"], row["caller_library"], row["library"]);
        let mut rows: Vec<String> = report["rows"].as_array().unwrap().iter().map(row).collect();
        rows.sort();
        assert_eq!(
            rows,
            [
                r#"1 "/usr/bin/prog" "/usr/lib/libone.so""#,
                r#"1 "/usr/bin/prog" "/usr/lib/libtwo.so""#,
                r#"1 "/usr/lib/libone.so" "/usr/lib/libone.so""#,
                r#"2 "/usr/lib/libone.so" "/usr/lib/libtwo.so""#,
            ]
        );
    }
}

//! A recording as one HTML page that needs nothing else: `rtrace report DIR --html FILE`.
//!
//! The page holds sums of bounded size and a bounded number of single calls, so that it stays small whatever the length
//! of the recording; what it leaves out, it says. Its tables are those of [`run`](crate::run), from the same code. The
//! data is one JSON document, which the page's scripts draw. Names come from traced programs: they are escaped, and
//! scripts only ever put them into a page as text.

mod document;
mod edges;
mod heat;
mod lanes;
mod names;
mod peers;
mod picture;
mod plan;
mod rows;
mod tables;
#[cfg(test)]
mod tests;
mod values;
mod verdicts;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use foldhash::HashMap;
use rtrace_exporters::{Destination, TraceSet};
use rtrace_model::{Call, CallCost, EventKind, LocationId, Peaks, Process, RegionId, Timestamp, Totals, escape};
use rtrace_profile::ClockSpan;
use serde_json::{Value as Json, json};

use self::names::PageNames;
use self::picture::Picture;
use self::tables::Tables;
use crate::about::About;
use crate::info::Info;
use crate::part::Part;
use crate::people::Note;
use crate::people::paint::Tone;
use crate::reading::{Need, read};
use crate::{Error, notes, untimed};

pub use self::document::is_page;

/// The largest page in bytes: it opens at once, and fits in an e-mail.
const MOST_BYTES: usize = 4_800_000;

/// How much of what could be shown a page holds: less and less, until it is small enough.
const DIVISORS: [usize; 7] = [1, 2, 4, 8, 16, 64, 256];

/// Rows of a page.
const FUNCTIONS: usize = 2_000;
const NODES: usize = 8_000;
const EDGES: usize = 8_000;
const LANES: usize = 48;
const HEAT_MAPS: usize = 48;
const PLANNED: usize = 3_000;
const ROWS: usize = 1_000;

/// Functions and columns of the matrix.
const MATRIX: (usize, usize) = (24, 64);

/// Writes the page of the trace in `directory`, or of a part of its time. With `peaks` calls with operations are drawn against these.
///
/// # Errors
/// The trace cannot be read, has no such part, or the page cannot be written.
pub fn html(
    directory: &Path,
    part: Option<Part>,
    peaks: Option<&Peaks>,
    destination: &Destination,
) -> Result<(), Error> {
    let trace = TraceSet::open(directory)?;
    let gathered = PageData::read(&trace, Info::of(directory)?, part)?;
    let mut page = String::new();
    for divisor in DIVISORS {
        let mut data = gathered.data(divisor)?;
        data["peaks"] = json!(peaks);
        page = document::page(&gathered.about.line(None), data);
        if page.len() <= MOST_BYTES {
            break;
        }
    }
    destination.file(|output| Ok(output.write_all(page.as_bytes())?))?;
    Ok(())
}

/// All that is known of the trace before it is cut to a page's size.
struct PageData<'a> {
    trace: &'a TraceSet,
    info: Info,
    about: About,
    /// The time that it is of.
    span: ClockSpan,
    notes: Vec<String>,
    verdicts: Vec<Json>,
    tables: Tables<'a>,
    picture: Picture,
    messages: peers::PeerSums,
}

impl<'a> PageData<'a> {
    fn read(trace: &'a TraceSet, info: Info, part: Option<Part>) -> Result<PageData<'a>, Error> {
        let losses = trace.losses()?;
        let span = part.map_or(Ok(ClockSpan::ALL), |part| part.of(trace))?;
        let mut walks = tables::Walks::new(trace, span);
        let need = if part.is_some() { Need::Within(span) } else { Need::Paths };
        let shares = read(trace, need, &mut walks.readers())?;
        let picture = Picture::read(trace, span)?;
        let lost_callers = walks.lost_callers();
        let untimed = untimed::note(&shares, trace, part.is_some())?;
        let tables = walks.into_tables(trace, &losses, span, shares)?;
        let mut notes = notes::notes(trace, part, &losses, (lost_callers, 0))?;
        notes.extend(untimed.map(|note| Note { tone: Tone::Warning, ..note }));
        let verdicts = verdicts::verdicts(&notes, &tables);
        let notes = notes.into_iter().map(|note| note.text).chain(tables.remarks.iter().cloned()).collect();
        let about = About::new(trace).of_part(part);
        let messages = peers::messages(trace, span)?;
        Ok(PageData { trace, info, about, span, notes, verdicts, tables, picture, messages })
    }

    /// What the page's scripts draw, one part in `divisor` of what could be.
    fn data(&self, divisor: usize) -> Result<Json, Error> {
        let most = |rows: usize| (rows / divisor).max(8);
        let mut names = PageNames::new(self.trace);
        let functions = tables::first(&self.tables.functions, most(FUNCTIONS));
        let shown = rows::regions(&functions);
        let (lanes, places) = lanes::told(self.picture.overview(), LANES);
        let mut data = json!({
            "title": self.about.line(None),
            "from_ns": self.since_begin(self.span.from.unwrap_or_default()),
            "length_ns": self.about.length(),
            "is_part": self.span != ClockSpan::ALL,
            "verdicts": self.verdicts,
            "notes": self.notes,
            "info": self.info,
            "begin_ns": self.trace.header().begin.realtime_ns,
            "folded": !self.trace.profile().is_empty(),
            "total_ns": self.tables.total,
            "called": self.tables.functions.rows.len(),
            "functions": rows::functions(&functions, &mut names),
            "corrected": tables::corrected(&self.tables, &shown, &mut names),
            "histograms": tables::histograms(&self.tables.histograms, &shown, &mut names),
            "tree": tables::tree(&self.tables.tree, self.trace, most(NODES), &mut names)?,
            "edges": self.tables.callers.told(most(EDGES), &mut names),
            "sites": self.tables.sites.told(most(EDGES), &mut names),
            "threads": rows::table(&tables::first(&self.tables.threads, most(ROWS))),
            "processes": rows::table(&tables::first(&self.tables.processes, most(ROWS))),
            "lanes": lanes,
            "calls": self.calls(divisor, &places, &mut names)?,
            "heat": self.heat(most(HEAT_MAPS), &functions, &mut names),
            "matrix": self.matrix(&functions, &mut names),
            "roofline": rows::roofline(&functions, &mut names),
            "messages": peers::matrix(&self.messages),
            "plan": plan::plan(self.trace, &self.tables.functions, most(PLANNED), &mut names)?,
            "incidents": self.incidents(most(ROWS), &mut names)?,
            "costs": self.costs(),
        });
        data["locations"] = self.locations(&data);
        data["names"] = names.into_told().into();
        Ok(data)
    }

    fn since_begin(&self, time: Timestamp) -> u64 {
        time.since(self.trace.header().begin.monotonic)
    }

    /// Lane, function, start, duration or null, depth and ending; starts are differences from call to call of a lane.
    fn calls(
        &self,
        divisor: usize,
        lanes: &HashMap<LocationId, usize>,
        names: &mut PageNames<'_>,
    ) -> Result<Json, Error> {
        let (chosen, are_all) = self.picture.chosen(divisor);
        let place = |call: Call| Some((*lanes.get(&call.location)?, self.since_begin(call.start), call));
        let mut calls: Vec<(usize, u64, Call)> = chosen.into_iter().filter_map(place).collect();
        calls.sort_by_key(|&(lane, start, _)| (lane, start));
        let (mut rows, mut before) = (Vec::new(), (usize::MAX, 0));
        for &(lane, start, call) in &calls {
            let since = if before.0 == lane { before.1 } else { 0 };
            before = (lane, start);
            rows.extend([json!(lane), json!(start - since), json!(names.of(call.region)), json!(call.duration)]);
            rows.extend([json!(call.depth), json!(call.ending as u8)]);
        }
        let calls: Vec<Call> = calls.into_iter().map(|(_, _, call)| call).collect();
        let values = values::values(self.trace, &calls, names)?;
        Ok(json!({ "rows": rows, "all": are_all, "seen": self.picture.overview().calls(), "values": values }))
    }

    fn heat(&self, most: usize, functions: &crate::table::Table, names: &mut PageNames<'_>) -> Json {
        let regions = functions.rows.iter().filter_map(|row| rows::region(functions, row)).take(most);
        let maps = heat::of_functions(self.picture.overview(), &regions.collect::<Vec<_>>());
        let maps: Vec<Json> = maps.into_iter().map(|(region, map)| json!([names.of(region), map])).collect();
        json!({ "all": heat::of_all(self.picture.overview()), "functions": maps })
    }

    /// Calls and exclusive time of the first functions, by process where there are several, and else by thread.
    fn matrix(&self, functions: &crate::table::Table, names: &mut PageNames<'_>) -> Json {
        let regions: Vec<RegionId> =
            functions.rows.iter().filter_map(|row| rows::region(functions, row)).take(MATRIX.0).collect();
        let process = |location: LocationId| {
            let process = self.trace.process_of(self.trace.location(location)?)?;
            self.trace.processes().iter().position(|other| std::ptr::eq(other, process))
        };
        let locations: HashSet<LocationId> = self.tables.shares.keys().map(|&(_, location)| location).collect();
        let processes: HashSet<_> = locations.iter().filter_map(|&location| process(location)).collect();
        let by_process = processes.len() > 1;
        // A process goes by the first of its threads.
        let mut first = HashMap::default();
        for location in self.trace.locations().iter().filter(|_| by_process) {
            first.entry(process(location.id)).or_insert(location.id);
        }
        let column = |location| first.get(&process(location)).copied().unwrap_or(location);
        let mut times = HashMap::<LocationId, u64>::default();
        for (&(_, location), &Totals { exclusive, .. }) in &self.tables.shares {
            let time = times.entry(column(location)).or_default();
            *time = time.saturating_add(exclusive);
        }
        // Where they are too many, those with most time, and one of all others.
        let mut columns: Vec<LocationId> = times.keys().copied().collect();
        columns.sort_by_key(|&column| (Reverse(times[&column]), column));
        let are_more = columns.len() > MATRIX.1;
        columns.truncate(if are_more { MATRIX.1 - 1 } else { MATRIX.1 });
        columns.sort_unstable();
        let mut columns: Vec<Option<LocationId>> = columns.into_iter().map(Some).collect();
        columns.extend(are_more.then_some(None));
        let mut sums = BTreeMap::<_, Totals>::new();
        for (&(region, location), &share) in &self.tables.shares {
            let Some(row) = regions.iter().position(|&other| other == region) else { continue };
            let own = Some(column(location)).filter(|own| columns.contains(&Some(*own)));
            sums.entry((own, row)).or_default().add(share);
        }
        let cells: Vec<Json> = sums
            .iter()
            .filter_map(|(&(column, row), sum)| {
                let column = columns.iter().position(|&other| other == column)?;
                Some(json!([row, column, sum.calls, (sum.timed() > 0).then_some(sum.exclusive)]))
            })
            .collect();
        json!({
            "by": if by_process { "process" } else { "thread" },
            "functions": regions.iter().map(|&region| names.of(region)).collect::<Vec<_>>(),
            "columns": columns.iter().map(|column| column.map(|location| location.0)).collect::<Vec<_>>(),
            "cells": cells,
        })
    }

    /// What lanes and matrix refer to: name, thread, process, program, host and rank.
    fn locations(&self, data: &Json) -> Json {
        let of_lanes = data["lanes"]["lanes"].as_array().into_iter().flatten().map(|lane| &lane["location"]);
        let of_matrix = data["matrix"]["columns"].as_array().into_iter().flatten();
        let ids: HashSet<u64> = of_lanes.chain(of_matrix).filter_map(Json::as_u64).collect();
        let mut told = serde_json::Map::new();
        for id in ids {
            let Some(location) = u32::try_from(id).ok().and_then(|id| self.trace.location(LocationId(id))) else {
                continue;
            };
            let header = self.trace.header_of(location.id).filter(|_| self.trace.traces().len() > 1);
            told.insert(
                id.to_string(),
                json!({
                    "name": location.name,
                    "tid": location.tid,
                    "pid": location.pid,
                    "program": self.trace.process_of(location).map(Process::name).unwrap_or_default(),
                    "host": header.map(|header| header.host.as_str()),
                    "rank": self.trace.rank_of(location),
                }),
            );
        }
        told.into()
    }

    /// What went otherwise than it should: lost and untimed calls by function, and events.
    fn incidents(&self, most: usize, names: &mut PageNames<'_>) -> Result<Json, Error> {
        let name = |region: Option<RegionId>, names: &mut PageNames<'_>| region.map(|region| names.of(region));
        let (mut lost, mut untimed, mut events) = (Vec::new(), Vec::new(), Vec::new());
        // How many of them were in a part is not known.
        let is_all = self.span == ClockSpan::ALL;
        for loss in self.trace.losses()?.into_iter().filter(|_| is_all) {
            lost.push((loss.count, json!([loss.reason.name(), name(loss.region, names), loss.count])));
        }
        for of in self.trace.untimed()?.into_iter().filter(|_| is_all) {
            untimed.push((of.count, json!([of.reason.name(), name(of.region, names), of.count])));
        }
        let mut left_out = 0_u64;
        for batch in self.trace.events() {
            for event in batch? {
                let is_told = !matches!(
                    event.kind,
                    EventKind::Refused { .. } | EventKind::Loss(_) | EventKind::Untimed(_) | EventKind::Armed
                );
                let is_told = is_told && self.span.contains(event.time);
                if is_told && events.len() < most {
                    let kind = serde_json::to_value(&event.kind).unwrap_or_default();
                    events.push(json!([self.since_begin(event.time), event.pid, event.kind.name(), kind]));
                } else if is_told {
                    left_out += 1;
                }
            }
        }
        let sorted = |mut rows: Vec<(u64, Json)>| -> Vec<Json> {
            rows.sort_by_key(|&(count, _)| std::cmp::Reverse(count));
            rows.truncate(most);
            rows.into_iter().map(|(_, row)| row).collect()
        };
        let (lost, untimed) = (sorted(lost), sorted(untimed));
        Ok(json!({ "lost": lost, "untimed": untimed, "events": events, "left_out": left_out }))
    }

    /// What tracing a call cost, of each recording that measured it.
    fn costs(&self) -> Vec<Json> {
        let told = |host: &str, cost: &CallCost| {
            let entry = match cost {
                CallCost { single_stepped: true, .. } => "single-stepped",
                CallCost { written: true, .. } => "executed by BPF",
                _ => "emulated",
            };
            json!([escape(host), entry, cost.exit.name(), cost.inner, cost.whole, cost.spread])
        };
        let headers = self.trace.traces().map(rtrace_exporters::Trace::header).take(ROWS / 10);
        headers.flat_map(|header| header.calibration.iter().map(|cost| told(&header.host, cost))).collect()
    }
}

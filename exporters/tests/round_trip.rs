//! What goes into a trace directory comes out of it.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use common::*;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use proptest::prelude::*;
use rtrace_exporters::{Trace, TraceSet};
use rtrace_model::{
    Batch, Call, CallSite, CallSiteId, Context, ContextEnding, ContextId, Count, Definition, Ending, EventKind,
    HISTOGRAM_BUCKETS, Inlined, LocationId, Loss, LossReason, MetricId, PathId, PathProfile, Reading, RegionId,
    ReturnSites, Sample, Scope, Sink, SourceLine, Summary, Timestamp, Untimed, UntimedReason,
};

#[test]
fn a_whole_recording() {
    let parent = tempfile::tempdir().unwrap();
    let (mut writer, path) = begin(parent.path());
    for definition in definitions() {
        writer.define(&definition).unwrap();
    }
    let events = [
        event(1_000, EventKind::Armed),
        event(2_000, EventKind::Fork { child: 41 }),
        event(2_001, EventKind::Exec { executable: "/bin/two".into() }),
        event(2_002, EventKind::Exit { code: 139 }),
        event(2_003, EventKind::Attached { library: "/l".into(), regions: 7 }),
        event(2_004, EventKind::BlindWindow { library: "/l".into(), since: Timestamp(3) }),
        event(2_005, EventKind::Refused { library: "/l".into(), region: "f".into(), reason: "no \"way\"".into() }),
        event(2_005, EventKind::NoLines { file: "/l".into() }),
        event(2_005, EventKind::NoValues { library: "/l".into(), region: "f".into(), reason: "why".into() }),
        event(2_005, EventKind::Overwritten { library: "/l".into(), region: None, sites: 3 }),
        event(2_006, EventKind::Estimated { metric: "cycles".into() }),
        event(2_007, EventKind::Watched { variable: "v:w".into(), since: Timestamp(5) }),
        event(2_007, EventKind::Unwatched { variable: "v:w".into(), reason: "r".into() }),
        event(2_007, EventKind::Plugin { command: "c".into(), problem: "p".into() }),
        event(2_008, EventKind::Loss(Loss { reason: LossReason::TooDeep, region: Some(RegionId(0)), count: 2 })),
        event(9_000, EventKind::Disarmed),
    ];
    for event in &events {
        writer.event(event).unwrap();
    }
    writer.calls(&vec![call(2, 1), call(1, 2), call(1, 1)].into()).unwrap();
    writer.define(&Definition::Process(process("/bin/two"))).unwrap();
    writer.finish(&summary()).unwrap();

    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.header(), &header());
    assert_eq!(trace.summary(), Some(&summary()));
    assert_eq!(trace.libraries(), [library(0)]);
    assert_eq!(trace.regions(), [region(0)]);
    assert_eq!(trace.processes(), [process("/bin/two")], "a newer state replaces the older");
    assert_eq!(trace.locations(), [location(1)]);
    assert_eq!(trace.process_of(&location(1)), Some(&process("/bin/two")));
    assert_eq!(calls(&trace).unwrap(), [call(1, 1), call(1, 2), call(2, 1)]);
    assert_eq!(trace.events().collect::<Result<Vec<_>, _>>().unwrap().concat(), events);
    assert!(trace.warnings().is_empty());
}

#[test]
fn readings_stay_with_their_calls_and_samples_beside_them() {
    let parent = tempfile::tempdir().unwrap();
    let (mut writer, path) = begin(parent.path());
    let metrics = [metric(0, "msr/tsc/", Scope::Call), metric(1, "page-faults", Scope::Call)];
    let resident = metric(2, "process/resident", Scope::Process);
    for metric in metrics.iter().chain([&resident]) {
        writer.define(&Definition::Metric(metric.clone())).unwrap();
    }
    let reading = |inclusive| Reading { inclusive, child: inclusive / 2 };
    let readings = [31, 32, 21, 22, 11, 12].map(reading).to_vec();
    writer.calls(&Batch::measured(vec![call(2, 1), call(1, 2), call(1, 1)], 2, readings)).unwrap();
    let sample = |time, value| Sample { metric: MetricId(2), time: Timestamp(time), instance: 40, value };
    writer.samples(&[sample(2_000, -0.5)]).unwrap();
    writer.samples(&[sample(1_500, 4096.0)]).unwrap();
    let error = writer.calls(&vec![call(3, 1)].into()).unwrap_err();
    assert!(error.to_string().ends_with("they have 0 readings each, and 2 metrics of calls are defined"), "{error}");
    writer.finish(&summary()).unwrap();

    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.metrics(), [metrics[0].clone(), metrics[1].clone(), resident]);
    let batches: Vec<Batch> = trace.calls().collect::<Result<_, _>>().unwrap();
    let readings = [11, 12, 21, 22, 31, 32].map(reading).to_vec();
    assert_eq!(batches, [Batch::measured(vec![call(1, 1), call(1, 2), call(2, 1)], 2, readings)]);
    let samples = trace.samples().collect::<Result<Vec<_>, _>>().unwrap().concat();
    assert_eq!(samples, [sample(1_500, 4096.0), sample(2_000, -0.5)]);
}

#[test]
fn contexts_are_kept_and_equal_ones_become_one() {
    let parent = tempfile::tempdir().unwrap();
    let (mut writer, path) = begin(parent.path());
    let context = |id, sites: &[u32], ending| Context {
        id: ContextId(id),
        sites: sites.iter().copied().map(CallSiteId).collect(),
        ending,
    };
    let contexts: Vec<Context> = (1..)
        .zip(ContextEnding::ALL)
        .map(|(id, ending)| context(id, &[1, 0][..id as usize % 3], ending))
        .chain([context(9, &[1], ContextEnding::Complete)])
        .collect();
    for context in &contexts {
        writer.define(&Definition::Context(context.clone())).unwrap();
    }
    for id in 0..2 {
        let site = CallSite { id: CallSiteId(id), file: Some("/p".to_owned()), ..CallSite::default() };
        writer.define(&Definition::CallSite(CallSite { offset: id.into(), ..site })).unwrap();
    }
    let of = |id, context| Call { context: Some(ContextId(context)), ..call(1, id) };
    writer.calls(&vec![of(1, 1), of(2, 9), call(1, 3), of(4, 77)].into()).unwrap();
    writer.finish(&summary()).unwrap();
    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.contexts(), contexts);
    let set = TraceSet::open(&path).unwrap();
    assert_eq!(set.contexts().len(), contexts.len() - 1, "the last one is like the first");
    let calls: Vec<Call> = set.calls().flat_map(|batch| batch.unwrap().into_calls()).collect();
    let found: Vec<_> = calls.iter().map(|call| call.context).collect();
    assert_eq!(found, [Some(ContextId(1)), Some(ContextId(1)), None, None]);
    assert_eq!(set.context(ContextId(1)), Some(&contexts[0]));
    std::fs::remove_file(path.join("contexts.parquet")).unwrap();
    assert!(Trace::open(&path).unwrap().contexts().is_empty());
}

#[test]
fn call_sites_get_their_names_later_and_older_traces_have_none() {
    let parent = tempfile::tempdir().unwrap();
    let (mut writer, path) = begin(parent.path());
    let at = |line| Some(SourceLine { file: "/src/w.c".to_owned(), line });
    let place = |id, file: Option<&str>| CallSite {
        id: CallSiteId(id),
        file: file.map(str::to_owned),
        offset: 0x1000 + u64::from(id),
        ..CallSite::default()
    };
    let named = CallSite {
        function: Some("main".to_owned()),
        function_offset: Some(7),
        source: at(12),
        inlined: vec![
            Inlined { function: "one".to_owned(), called_at: at(32) },
            Inlined { function: "two".to_owned(), called_at: None },
        ],
        ..place(1, Some("/bin/w"))
    };
    let near = CallSite { nearest: Some("puts+0x1f0".to_owned()), ..place(0, None) };
    for site in [near.clone(), place(1, Some("/bin/w")), named.clone()] {
        writer.define(&Definition::CallSite(site)).unwrap();
    }
    let from = |id, site| Call { call_site: Some(CallSiteId(site)), ..call(1, id) };
    writer.calls(&vec![from(1, 0), from(2, 1)].into()).unwrap();
    writer.finish(&summary()).unwrap();
    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.call_sites(), [near, named.clone()]);
    assert_eq!(trace.call_site(CallSiteId(1)), Some(&named));
    assert_eq!(calls(&trace).unwrap(), [from(1, 0), from(2, 1)]);
    std::fs::remove_file(path.join("call_sites.parquet")).unwrap();
    assert!(Trace::open(&path).unwrap().call_sites().is_empty());
}

#[test]
fn a_recording_without_calls_has_all_files() {
    let parent = tempfile::tempdir().unwrap();
    let (mut writer, path) = begin(parent.path());
    writer.finish(&Summary::default()).unwrap();
    for file in ["calls/000001.parquet", "events/000001.parquet", "regions.parquet", "trace.json"] {
        assert!(path.join(file).is_file(), "{file}");
    }
    assert_eq!(calls(&Trace::open(&path).unwrap()).unwrap(), []);
}

#[test]
fn a_profile() {
    let parent = tempfile::tempdir().unwrap();
    let (mut writer, path) = begin(parent.path());
    let mut histogram = [0; HISTOGRAM_BUCKETS];
    (histogram[3], histogram[HISTOGRAM_BUCKETS - 1]) = (5, 2);
    let row = |location, path, calls| PathProfile {
        path: PathId(path),
        parent: (path > 1).then_some(PathId(1)),
        region: RegionId(0),
        location: LocationId(location),
        calls,
        timed: 7,
        unwound: 3,
        open: 2,
        unseen: 1,
        inclusive: 1 << 60,
        exclusive: 1 << 59,
        open_time: 9,
        min: Some(4),
        max: Some(1 << 58),
        histogram,
        counts: vec![Count { inclusive: 9, exclusive: 4 }, Count { inclusive: 1 << 60, exclusive: 0 }],
    };
    writer.profile(&[row(2, 1, 10), row(1, 7, 10)]).unwrap();
    writer.profile(&[row(1, 1, 10), row(1, 7, 11)]).unwrap();
    writer.finish(&summary()).unwrap();
    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.profile(), [row(1, 1, 10), row(1, 7, 11), row(2, 1, 10)], "a newer row replaces the older");
}

/// The first file of a kind, column by column.
fn columns(path: &Path) -> RecordBatch {
    let file = std::fs::File::open(path).unwrap();
    ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap().next().unwrap().unwrap()
}

fn integers(batch: &RecordBatch, column: &str) -> Vec<Option<i64>> {
    batch[column].as_primitive::<Int64Type>().iter().collect()
}

#[test]
fn what_was_not_timed_is_null() {
    let parent = tempfile::tempdir().unwrap();
    let (mut writer, path) = begin(parent.path());
    writer.define(&Definition::Metric(metric(0, "page-faults", Scope::Call))).unwrap();
    let readings = [7, 8].map(|inclusive| Reading { inclusive, child: 1 });
    let batch = Batch::measured(vec![untimed(1, 1), call(1, 2)], 1, readings.to_vec());
    writer.calls(&batch).unwrap();
    let row = |path, timed, unseen| PathProfile {
        path: PathId(path),
        region: RegionId(0),
        location: LocationId(1),
        calls: timed + unseen,
        timed,
        unseen,
        inclusive: 5 * timed,
        exclusive: 5 * timed,
        min: (timed > 0).then_some(5),
        max: (timed > 0).then_some(5),
        ..PathProfile::default()
    };
    let rows = [row(1, 0, 3), row(2, 2, 1)];
    writer.profile(&rows).unwrap();
    let untimed = |region, count| Untimed { reason: UntimedReason::NotYetPlaced, region, count };
    let told = [untimed(Some(RegionId(0)), 1), untimed(None, 2)];
    for untimed in told {
        writer.event(&event(2_000, EventKind::Untimed(untimed))).unwrap();
    }
    second();
    writer.tick().unwrap();
    assert_eq!(Trace::open(&path).unwrap().untimed().unwrap(), told, "until the end, events say it");
    let return_sites = ReturnSites { placed: 4, hits: 3, unmatched: 2, single_stepped: 1, waited: 5 };
    let at_end = vec![untimed(Some(RegionId(0)), 3)];
    writer.finish(&Summary { untimed: at_end.clone(), unseen: 3, return_sites, ..summary() }).unwrap();

    let calls = columns(&path.join("calls/000001.parquet"));
    assert_eq!(integers(&calls, "duration_ns"), [None, Some(5)]);
    assert_eq!(integers(&calls, "page_faults"), [None, Some(8)]);
    assert_eq!(integers(&calls, "page_faults_child"), [None, Some(1)]);
    assert_eq!(integers(&calls, "child_ns"), [Some(0), Some(0)]);
    let profile = columns(&path.join("profile.parquet"));
    for column in ["inclusive_ns", "exclusive_ns"] {
        assert_eq!(integers(&profile, column), [None, Some(10)], "{column}");
    }
    for column in ["min_ns", "max_ns"] {
        assert_eq!(integers(&profile, column), [None, Some(5)], "{column}");
    }

    let trace = Trace::open(&path).unwrap();
    let found = trace.calls().next().unwrap().unwrap();
    assert_eq!((found.readings(0), found.readings(1)), (&[][..], &readings[1..]));
    assert_eq!(found, batch);
    assert_eq!(trace.profile(), rows);
    assert_eq!(trace.untimed().unwrap(), at_end, "at the end, the summary does");
    assert_eq!(trace.summary().unwrap().return_sites, return_sites);
}

/// Rewrites a file with other columns in place of those of the same names.
fn replace(path: &Path, replacements: &[(&str, ArrayRef)]) {
    let batch = columns(path);
    let schema = batch.schema();
    let replaced = schema.fields().iter().zip(batch.columns()).map(|(field, column)| {
        let other = replacements.iter().find(|(name, _)| name == field.name());
        (field.name().clone(), other.map_or_else(|| column.clone(), |(_, other)| other.clone()))
    });
    let batch = RecordBatch::try_from_iter(replaced.collect::<Vec<_>>()).unwrap();
    let mut writer = ArrowWriter::try_new(std::fs::File::create(path).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

#[test]
fn a_call_of_another_ending_must_have_a_duration_and_counts() {
    let parent = tempfile::tempdir().unwrap();
    let (mut writer, path) = begin(parent.path());
    writer.define(&Definition::Metric(metric(0, "page-faults", Scope::Call))).unwrap();
    writer.calls(&Batch::measured(vec![untimed(1, 1), call(1, 2)], 1, vec![Reading::default(); 2])).unwrap();
    writer.finish(&summary()).unwrap();
    let nothing = || -> ArrayRef { Arc::new(Int64Array::from(vec![None, None])) };
    let file = path.join("calls/000001.parquet");
    replace(&file, &[("page_faults", nothing())]);
    let error = || calls(&Trace::open(&path).unwrap()).unwrap_err().to_string();
    assert!(error().ends_with("column `page_faults` holds nothing in row 1"), "{}", error());
    replace(&file, &[("duration_ns", nothing())]);
    assert!(error().ends_with("column `duration_ns` holds nothing in row 1"), "{}", error());
}

#[test]
fn segments_are_replaced_until_large_and_then_numbered() {
    let parent = tempfile::tempdir().unwrap();
    let (mut writer, path) = begin(parent.path());
    let all: Vec<Call> = (1..=400_000).map(|id| call(1, id)).collect();
    let segments = || std::fs::read_dir(path.join("calls")).unwrap().count();

    writer.calls(&all[..10].to_vec().into()).unwrap();
    second();
    writer.tick().unwrap();
    assert_eq!(calls(&Trace::open(&path).unwrap()).unwrap(), all[..10]);

    writer.calls(&all[10..100_000].to_vec().into()).unwrap();
    second();
    writer.tick().unwrap();
    assert_eq!(segments(), 1);
    let trace = Trace::open(&path).unwrap();
    assert_eq!(calls(&trace).unwrap(), all[..100_000]);

    writer.calls(&all[100_000..].to_vec().into()).unwrap();
    writer.finish(&summary()).unwrap();
    assert_eq!(segments(), 2);
    assert_eq!(calls(&trace).unwrap(), all[..100_000], "a trace that was open stays readable");
    let trace = Trace::open(&path).unwrap();
    assert_eq!(calls(&trace).unwrap(), all);

    let backward: Vec<usize> = trace.calls().rev().map(|batch| batch.unwrap().len()).collect();
    assert_eq!(backward, [400_000 - 100_000 - 2 * 131_072, 131_072, 131_072, 100_000]);
    assert_eq!(trace.calls().next_back().unwrap().unwrap().last(), all.last());
}

prop_compose! {
    fn any_call()(
        location in 1..5_u32,
        id in 1..1_000_000_u64,
        parent in 0..1_000_000_u64,
        region in any::<u16>(),
        depth in 0..200_u32,
        start in 0..=i64::MAX.cast_unsigned(),
        duration in 0..=i64::MAX.cast_unsigned(),
        child in any::<u32>(),
        ending in 0..4_usize,
        call_site in prop::option::of(0..5_u32),
        context in prop::option::of(0..5_u32),
    ) -> Call {
        Call {
            region: RegionId(region.into()),
            parent,
            depth,
            start: Timestamp(start),
            duration: (Ending::ALL[ending] != Ending::Unseen).then_some(duration),
            child: child.into(),
            ending: Ending::ALL[ending],
            call_site: call_site.map(CallSiteId),
            context: context.map(ContextId),
            ..call(location, id)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn any_batches(batches in prop::collection::vec(prop::collection::vec(any_call(), 0..50), 0..8)) {
        let parent = tempfile::tempdir().unwrap();
        let (mut writer, path) = begin(parent.path());
        for batch in &batches {
            writer.calls(&batch.to_vec().into()).unwrap();
        }
        writer.finish(&summary()).unwrap();
        let mut expected = batches.concat();
        expected.sort_by_key(|call| (call.location, call.id));
        prop_assert_eq!(calls(&Trace::open(&path).unwrap()).unwrap(), expected);
    }
}

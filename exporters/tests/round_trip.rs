//! What goes into a trace directory comes out of it.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::*;
use proptest::prelude::*;
use rtrace_exporters::Trace;
use rtrace_model::{
    Base, Batch, Call, CallCost, Count, Definition, Ending, EventKind, ExitPolicy, HISTOGRAM_BUCKETS, Header,
    LocationId, Loss, LossReason, Metric, MetricId, PathId, PathProfile, Reading, RegionId, Sample, Scope, Sink, Span,
    Summary, Timestamp,
};

fn cost() -> CallCost {
    CallCost {
        single_stepped: true,
        written: false,
        exit: ExitPolicy::ReturnSite,
        exit_single_stepped: true,
        inner: 400,
        whole: 1_000,
        spread: 50,
    }
}

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
    let costs = [cost()];
    writer.calibrated(&costs).unwrap();
    assert_eq!(Trace::open(&path).unwrap().header().calibration, costs, "known while it is recorded");
    writer.define(&Definition::Process(process("/bin/two"))).unwrap();
    writer.finish(&summary()).unwrap();

    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.header(), &Header { calibration: costs.to_vec(), ..header() });
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

fn metric(id: u32, name: &str, scope: Scope) -> Metric {
    Metric {
        id: MetricId(id),
        name: name.to_owned(),
        unit: "B".to_owned(),
        base: Base::Binary,
        exponent: -3,
        scope,
        span: Span::Point,
    }
}

#[test]
fn a_trace_without_metrics_and_samples_is_read() {
    let parent = tempfile::tempdir().unwrap();
    let (mut writer, path) = begin(parent.path());
    writer.calls(&vec![call(1, 1)].into()).unwrap();
    writer.finish(&summary()).unwrap();
    std::fs::remove_dir_all(path.join("samples")).unwrap();
    std::fs::remove_file(path.join("metrics.parquet")).unwrap();
    let trace = Trace::open(&path).unwrap();
    assert_eq!((trace.metrics().len(), trace.samples().count()), (0, 0));
    assert_eq!(calls(&trace).unwrap(), [call(1, 1)]);
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
        min: 4,
        max: 1 << 58,
        histogram,
        counts: vec![Count { inclusive: 9, exclusive: 4 }, Count { inclusive: 1 << 60, exclusive: 0 }],
    };
    writer.profile(&[row(2, 1, 10), row(1, 7, 10)]).unwrap();
    writer.profile(&[row(1, 1, 10), row(1, 7, 11)]).unwrap();
    writer.finish(&summary()).unwrap();
    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.profile(), [row(1, 1, 10), row(1, 7, 11), row(2, 1, 10)], "a newer row replaces the older");
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
    ) -> Call {
        Call {
            location: LocationId(location),
            region: RegionId(region.into()),
            id,
            parent,
            depth,
            start: Timestamp(start),
            duration,
            child: child.into(),
            ending: Ending::ALL[ending],
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

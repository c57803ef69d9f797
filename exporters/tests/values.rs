//! Calls with their values: every call has its own, whatever the order, the number of segments and of traces.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use common::*;
use rtrace_exporters::{Destination, Error, FORMATS, Selection, Trace, TraceSet, TraceWriter, export};
use rtrace_model::{
    Batch, Call, CallValues, Definition, EventKind, LocationId, Loss, LossReason, RegionId, Sink, Summary, Value,
    ValueBatch, ValueColumn, ValueType, Values,
};

fn column(region: u32, position: u32, name: &str, value_type: ValueType) -> Definition {
    Definition::ValueColumn(ValueColumn {
        region: RegionId(region),
        position,
        name: name.to_owned(),
        value_type,
        c_type: "long".to_owned(),
        unit: None,
        role: None,
        at_exit: name == "result",
        source: "a table".to_owned(),
    })
}

/// A number that tells the call from all others.
fn number(call: &Call) -> i64 {
    (i64::from(call.location.0) << 40) + call.id as i64
}

/// The values of the calls of a region, of which each seventh has none.
fn batch(region: u32, calls: &[Call]) -> ValueBatch {
    let calls: Vec<&Call> = calls.iter().filter(|call| call.region.0 == region && !call.id.is_multiple_of(7)).collect();
    ValueBatch {
        region: RegionId(region),
        calls: calls.iter().map(|call| (call.location, call.id)).collect(),
        columns: vec![
            Values::Integer(calls.iter().map(|call| Some(number(call))).collect()),
            Values::Text(
                calls.iter().map(|call| (call.id.is_multiple_of(2)).then(|| number(call).to_string())).collect(),
            ),
        ],
    }
}

/// Calls of two functions on three threads. On the first, a call of function 0 ends after all others.
fn many(count: u64) -> Vec<Call> {
    let of = |location, id: u64| Call {
        region: RegionId((id % 3 % 2) as u32),
        parent: u64::from(location == 1),
        ..call(location, id)
    };
    let mut calls: Vec<Call> = (2..=count).flat_map(|id| (1..4).map(move |location| of(location, id))).collect();
    calls.push(Call { duration: Some(1 << 40), region: RegionId(0), ..call(1, 1) });
    calls
}

fn record(path: &Path, calls: &[Call], at_once: usize) -> PathBuf {
    let mut writer = TraceWriter::create(path, None).unwrap();
    writer.begin(&header()).unwrap();
    let mut all = definitions();
    all.push(Definition::Region(region(1)));
    all.extend((2..4).map(|id| Definition::Location(location(id))));
    for region in 0..2 {
        all.push(column(region, 0, "number", ValueType::Integer));
        all.push(column(region, 1, "text", ValueType::Text));
    }
    all.iter().for_each(|definition| writer.define(definition).unwrap());
    for calls in calls.chunks(at_once) {
        writer.calls(&Batch::from(calls.to_vec())).unwrap();
        writer.values(&[batch(0, calls), batch(1, calls)]).unwrap();
    }
    writer.finish(&summary()).unwrap();
    path.to_owned()
}

/// The values of all calls, by location and call, read in the order of the batches or against it.
fn found(set: &TraceSet, reversed: bool) -> BTreeMap<(u32, u64), Option<CallValues>> {
    let mut reader = set.value_reader();
    let mut batches: Vec<Batch> = set.calls().map(Result::unwrap).collect();
    if reversed {
        batches.reverse();
    }
    let mut found = BTreeMap::new();
    for batch in batches {
        for (call, values) in batch.iter().zip(reader.of(&batch).unwrap()) {
            assert!(found.insert((call.location.0, call.id), values).is_none());
        }
    }
    found
}

fn check(found: &BTreeMap<(u32, u64), Option<CallValues>>, locations_before: u32) {
    for (&(location, id), values) in found {
        let own = call(location - locations_before, id);
        assert_eq!(values.is_none(), id.is_multiple_of(7), "call {id} of {location}");
        let Some(values) = values else { continue };
        assert_eq!(values.named("number"), Some(Some(&Value::Integer(number(&own)))));
        let text = id.is_multiple_of(2).then(|| Value::Text(number(&own).to_string()));
        assert_eq!(values.named("text"), Some(text.as_ref()));
        assert_eq!(values.named("other"), None);
    }
}

#[test]
fn every_call_has_its_own_values_in_either_order() {
    let folder = tempfile::tempdir().unwrap();
    // Three segments of each function.
    let calls = many(200_000);
    let path = record(&folder.path().join("a"), &calls, 50_000);
    let segments =
        |region: u32| fs::read_dir(path.join(format!("values/_Z8function{region}i.{region}"))).unwrap().count();
    assert!(segments(0) > 2 && segments(1) > 1, "{} {}", segments(0), segments(1));
    let set = TraceSet::open(&path).unwrap();
    for reversed in [false, true] {
        let found = found(&set, reversed);
        assert_eq!(found.len(), calls.len());
        check(&found, 0);
    }
}

#[test]
fn several_traces_have_the_values_of_each() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (many(100), many(300));
    record(&folder.path().join("a"), &first, 1_000);
    // The second trace has the functions the other way round, and one column that the first has not.
    let mut writer = TraceWriter::create(&folder.path().join("b"), None).unwrap();
    writer.begin(&header()).unwrap();
    writer.define(&Definition::Library(library(0))).unwrap();
    writer.define(&Definition::Region(rtrace_model::Region { id: RegionId(9), ..region(0) })).unwrap();
    writer.define(&Definition::Location(location(1))).unwrap();
    writer.define(&column(9, 0, "more", ValueType::Float)).unwrap();
    writer.define(&column(9, 1, "number", ValueType::Integer)).unwrap();
    let calls: Vec<Call> = second.iter().map(|call| Call { region: RegionId(9), ..*call }).collect();
    let calls: Vec<Call> = calls.into_iter().filter(|call| call.location == LocationId(1)).collect();
    writer.calls(&calls.clone().into()).unwrap();
    let values = ValueBatch {
        region: RegionId(9),
        calls: calls.iter().map(|call| (call.location, call.id)).collect(),
        columns: vec![
            Values::Float(vec![Some(0.25); calls.len()]),
            Values::Integer(calls.iter().map(|call| Some(-number(call))).collect()),
        ],
    };
    writer.values(&[values]).unwrap();
    writer.finish(&summary()).unwrap();

    let set = TraceSet::open(folder.path()).unwrap();
    // Calls of both traces at once have the values that they have apart.
    let all: Vec<Call> = set.calls().flat_map(|batch| batch.unwrap().into_calls()).collect();
    let apart = found(&set, false);
    for (call, values) in all.iter().zip(set.value_reader().of(&all).unwrap()) {
        assert_eq!(values, apart[&(call.location.0, call.id)], "call {} of {}", call.id, call.location.0);
    }
    let names: Vec<&str> = set.value_columns_of(RegionId(0)).iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["number", "text", "more"]);
    let mut of_first = found(&set, true);
    let of_second = of_first.split_off(&(4, 0));
    assert_eq!((of_first.len(), of_second.len()), (first.len(), calls.len()));
    check(&of_first, 0);
    for ((_, id), values) in of_second {
        let values = values.unwrap();
        assert_eq!(values.columns[0].region, RegionId(0));
        assert_eq!(values.named("number"), Some(Some(&Value::Integer(-number(&call(1, id))))));
        assert_eq!(values.named("more"), Some(Some(&Value::Float(0.25))));
    }
}

#[test]
fn a_trace_without_values_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let (mut writer, path) = begin(folder.path());
    writer.calls(&vec![call(1, 1)].into()).unwrap();
    writer.finish(&summary()).unwrap();
    let set = TraceSet::open(&path).unwrap();
    assert_eq!(set.value_reader().of(&[call(1, 1)]).unwrap(), [None]);
    // A thread and a function that nobody knows.
    assert_eq!(set.value_reader().of(&[Call { region: RegionId(77), ..call(0, 1) }]).unwrap(), [None]);
}

/// The remarks of an export of a trace in which a value could not be read.
fn remarks(folder: &Path, is_finished: bool) -> serde_json::Value {
    let (mut writer, path) = begin(folder);
    definitions().iter().for_each(|definition| writer.define(definition).unwrap());
    writer.define(&column(0, 0, "number", ValueType::Integer)).unwrap();
    let loss = Loss { reason: LossReason::ValueUnread, region: Some(RegionId(0)), count: 3 };
    writer.event(&event(1_500, EventKind::Loss(loss))).unwrap();
    match is_finished {
        true => writer.finish(&Summary { losses: vec![loss], ..summary() }).unwrap(),
        false => {
            second();
            writer.tick().unwrap();
        }
    }
    let format = FORMATS.iter().find(|format| format.name == "jsonl").unwrap();
    let output = folder.join("out");
    let destination = Destination::Path { path: output.clone(), force: false, owner: None };
    export(&TraceSet::open(&path).unwrap(), format, &Selection::default(), &destination).unwrap();
    let text = fs::read_to_string(output).unwrap();
    serde_json::from_str::<serde_json::Value>(text.lines().next().unwrap()).unwrap()["remarks"].clone()
}

#[test]
fn exports_say_which_values_are_missing() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let finished = remarks(folders[0].path(), true);
    assert!(finished["loss"].as_str().unwrap().starts_with("3 values of one::function0(int): "), "{finished}");
    assert!(finished["values"].is_null());
    let unfinished = remarks(folders[1].path(), false);
    assert_eq!(unfinished["values"], "arguments and results of up to the last ten seconds are missing");
}

/// The file with the values of function 0.
fn segment(path: &Path) -> PathBuf {
    path.join("values/_Z8function0i.0/000001.parquet")
}

#[test]
fn a_damaged_table_is_an_error_and_in_an_unfinished_trace_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let path = record(&folder.path().join("a"), &many(100), 1_000);
    let whole = fs::read(segment(&path)).unwrap();
    fs::write(segment(&path), &whole[..whole.len() / 2]).unwrap();
    let calls = Trace::open(&path).unwrap().calls().next().unwrap().unwrap();
    let error = TraceSet::open(&path).unwrap().value_reader().of(&calls).unwrap_err();
    assert!(error.to_string().contains("000001.parquet"), "{error}");

    let manifest = fs::read_to_string(path.join("trace.json")).unwrap();
    let mut manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    manifest["status"] = "recording".into();
    fs::write(path.join("trace.json"), manifest.to_string()).unwrap();
    let set = TraceSet::open(&path).unwrap();
    assert_eq!(set.warnings().len(), 1);
    let values = set.value_reader().of(&calls).unwrap();
    assert!(values.iter().zip(calls.iter()).all(|(values, call)| call.region.0 == 1 || values.is_none()));
    assert!(values.iter().any(Option::is_some));
}

#[test]
fn a_table_whose_rows_are_not_sorted_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = record(&folder.path().join("a"), &many(10), 1_000);
    let batches: Vec<_> = {
        let file = fs::File::open(segment(&path)).unwrap();
        let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
        reader.build().unwrap().map(Result::unwrap).collect()
    };
    let file = fs::File::create(segment(&path)).unwrap();
    let mut writer = parquet::arrow::ArrowWriter::try_new(file, batches[0].schema(), None).unwrap();
    writer.write(&batches[0]).unwrap();
    writer.write(&batches[0]).unwrap();
    writer.close().unwrap();
    let set = TraceSet::open(&path).unwrap();
    let calls = set.calls().next().unwrap().unwrap();
    let error = set.value_reader().of(&calls).unwrap_err();
    assert!(matches!(error, Error::Content { .. }), "{error}");
    assert!(error.to_string().contains("not sorted by location and call"), "{error}");
}

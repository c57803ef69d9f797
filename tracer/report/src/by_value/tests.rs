#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use rtrace_exporters::TraceWriter;
use rtrace_model::{
    Call, Definition, LocationId, PathProfile, Sink, Summary, ValueBatch, ValueColumn, ValueType, Values,
};

use super::*;
use crate::testing::{path, script, writer};
use crate::{By, Format, Histogram, Options, Sort, run};

fn column(region: u32, name: &str, value_type: ValueType, unit: Option<&str>) -> Definition {
    Definition::ValueColumn(ValueColumn {
        region: RegionId(region),
        position: u32::from(name != "n"),
        name: name.to_owned(),
        value_type,
        c_type: if name == "buf" { "void *" } else { "int" }.to_owned(),
        unit: unit.map(str::to_owned),
        role: None,
        at_exit: false,
        source: String::new(),
    })
}

/// Calls of `a` with a number and a text, of `b` with a number alone, and of `c`. One of `a` is not known, of one of
/// `b` there is no row.
fn recorded(folder: &Path) {
    record(folder).finish(&Summary { calls: 8, ..Summary::default() }).unwrap();
}

fn record(folder: &Path) -> TraceWriter {
    let mut writer = writer(folder);
    for column in [
        column(0, "n", ValueType::Integer, Some("B")),
        column(0, "text", ValueType::Text, None),
        column(1, "n", ValueType::Integer, Some("B")),
        column(1, "buf", ValueType::Integer, None),
    ] {
        writer.define(&column).unwrap();
    }
    let text =
        "thread 1\n a 0 100\n  c 10 20\n  a 30 60\n a 200 210\n a 300 301\n b 400 500\n b 600 700\n thread 2\n b 0 7";
    let calls = script(text);
    writer.calls(&calls.into()).unwrap();
    let ids = |ids: &[(u32, u64)]| ids.iter().map(|&(location, id)| (LocationId(location), id)).collect();
    let texts = [Some("-"), Some(""), None, Some("=\u{1b}\"")].map(|text| text.map(str::to_owned));
    let of_a = ValueBatch {
        region: RegionId(0),
        calls: ids(&[(1, 1), (1, 3), (1, 4), (1, 5)]),
        columns: vec![Values::Integer(vec![Some(4_096), Some(4_096), None, Some(-7)]), Values::Text(texts.to_vec())],
    };
    let of_b = ValueBatch {
        region: RegionId(1),
        calls: ids(&[(1, 6), (2, 1)]),
        columns: vec![Values::Integer(vec![Some(0), Some(3)]), Values::Integer(vec![Some(0x7fff_0000_1234), Some(-1)])],
    };
    writer.values(&[of_a, of_b]).unwrap();
    writer
}

fn report(folder: &Path, options: &Options) -> Result<String, Error> {
    let mut out = Vec::new();
    run(folder, options, &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

fn by(name: &str) -> Options {
    Options { by: By::Value(name.to_owned()), ..Options::default() }
}

/// The rows, with some columns.
fn rows(folder: &Path, name: &str) -> Vec<String> {
    let columns = ["calls", "inclusive", "exclusive"].map(str::to_owned).to_vec();
    let text = report(folder, &Options { columns, sort: Sort::Calls, ..by(name) }).unwrap();
    text.split("\n\n").nth(1).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn calls_are_told_apart_by_a_value() {
    let folder = tempfile::tempdir().unwrap();
    recorded(folder.path());
    // A call within one of the same value adds no time.
    assert_eq!(
        rows(folder.path(), "n"),
        [
            "calls  inclusive ns  exclusive ns  library    function  n B",
            "    2           100            90  libone.so  a         4096",
            "    1            10            10  libone.so  a         -",
            "    1           100           100  libone.so  b         -",
            "    1             1             1  libone.so  a         -7",
            "    1           100           100  libone.so  b         0",
            "    1             7             7  libone.so  b         3",
        ]
    );
    let text = report(folder.path(), &by("n")).unwrap();
    assert!(text.contains("\n`-`: 2 calls of which n could not be read or was not there\n"), "{text}");
    assert!(!text.contains("  c  "), "{text}");
    let of_buf = rows(folder.path(), "buf");
    assert!(of_buf.iter().any(|row| row.ends_with(" 0x7fff00001234")), "{of_buf:?}");
    assert!(of_buf.iter().any(|row| row.ends_with(" 0xffffffffffffffff")), "{of_buf:?}");
}

/// Values are written less often than calls.
#[test]
fn values_that_are_not_written_yet_are_not_known() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = record(folder.path());
    std::thread::sleep(std::time::Duration::from_millis(910));
    writer.tick().unwrap();
    let text = report(folder.path(), &by("n")).unwrap();
    let expected = "`-`: 7 calls of which n could not be read, was not there, or is not written yet";
    assert!(text.lines().any(|line| line == expected), "{text}");
}

#[test]
fn texts_cannot_be_taken_for_what_is_not_known() {
    let folder = tempfile::tempdir().unwrap();
    recorded(folder.path());
    let ends = |text: &str| text.lines().map(|line| line.rsplit("a,").next().unwrap().to_owned()).collect::<Vec<_>>();
    let csv = report(folder.path(), &Options { format: Format::Csv, sort: Sort::Name, ..by("text") }).unwrap();
    let mut values = ends(&csv);
    assert!(values.remove(0).ends_with("function,value"));
    values.sort();
    assert_eq!(values, ["", "\"\"", "\"'=\\x1b\"\"\"", "'-"]);
    let rows = rows(folder.path(), "text");
    for shown in [" \"-\"", " \"\"", " \"=\\x1b\\\"\"", " -"] {
        assert!(rows.iter().any(|row| row.ends_with(shown)), "{shown} {rows:?}");
    }
    let json = report(folder.path(), &Options { format: Format::Json, ..by("text") }).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let values: Vec<&serde_json::Value> = json["rows"].as_array().unwrap().iter().map(|row| &row["value"]).collect();
    assert_eq!(values.iter().filter(|value| value.is_null()).count(), 1);
    assert!(values.contains(&&"".into()) && values.contains(&&"-".into()), "{values:?}");
}

#[test]
fn numbers_are_distributed_over_powers_of_two() {
    let folder = tempfile::tempdir().unwrap();
    recorded(folder.path());
    let options = Options { histogram: Some(Histogram::Value("n".into())), format: Format::Csv, ..Options::default() };
    let csv = report(folder.path(), &options).unwrap();
    let rows: Vec<&str> = csv.lines().collect();
    assert_eq!(rows[0], "from,below,calls,share,region,file_offset,library,function,value");
    let of_b = [
        ",,1,0.333333,1,64,libone.so,b,n B",
        "0,1,1,0.333333,1,64,libone.so,b,n B",
        "1,2,0,0.000000,1,64,libone.so,b,n B",
        "2,4,1,0.333333,1,64,libone.so,b,n B",
    ];
    assert_eq!(rows[1..5], of_b);
    let of_a: Vec<&str> = rows[5..].iter().copied().filter(|row| !row.contains(",0,0.0")).collect();
    assert_eq!(
        of_a,
        [
            ",,1,0.250000,0,64,libone.so,a,n B",
            "-7,-3,1,0.250000,0,64,libone.so,a,n B",
            "4096,8192,2,0.500000,0,64,libone.so,a,n B",
        ]
    );
    let text = report(folder.path(), &Options { format: Format::Table, limit: Some(1), ..options.clone() }).unwrap();
    assert!(text.contains("libone.so  b  n B\nfrom  below  calls  share %\n"), "{text}");
    assert!(text.contains("\n1 more row\n"), "{text}");
    let by_thread = report(folder.path(), &Options { by: By::Thread, ..options }).unwrap();
    assert!(by_thread.lines().any(|line| line.starts_with("2,4,1,1.000000,2,,,70,72,worker")), "{by_thread}");
}

#[test]
fn what_there_is_not_is_said() {
    let folder = tempfile::tempdir().unwrap();
    recorded(folder.path());
    let error = |options: &Options| report(folder.path(), options).unwrap_err().to_string();
    assert_eq!(error(&by("fd")), "failed to find `fd`: no function has it; there are `buf`, `n`, `text`");
    let of = |name: &str| Options { histogram: Some(Histogram::Value(name.to_owned())), ..Options::default() };
    assert_eq!(error(&of("fd")), error(&by("fd")));
    assert!(error(&of("text")).ends_with("its values are no integers; --by arg:text shows them"));

    let many = tempfile::tempdir().unwrap();
    let mut writer_of_many = writer(many.path());
    for number in 10..90 {
        writer_of_many.define(&column(number, &format!("n{number}\u{1b}"), ValueType::Integer, None)).unwrap();
    }
    writer_of_many.finish(&Summary::default()).unwrap();
    let error_of_many = report(many.path(), &by("fd")).unwrap_err().to_string();
    assert!(error_of_many.ends_with("`n48\\x1b`, `n49\\x1b`, and 40 more"), "{error_of_many}");

    let without = tempfile::tempdir().unwrap();
    writer(without.path()).finish(&Summary::default()).unwrap();
    let error = report(without.path(), &by("n")).unwrap_err().to_string();
    assert_eq!(error, "failed to find values: none were recorded, as the recording was made without --args");

    let aggregated = tempfile::tempdir().unwrap();
    let mut writer = writer(aggregated.path());
    writer.define(&column(0, "n", ValueType::Integer, None)).unwrap();
    writer.profile(&[PathProfile { calls: 1, unseen: 1, ..path(RegionId(0), LocationId(1)) }]).unwrap();
    writer.finish(&Summary::default()).unwrap();
    let error = report(aggregated.path(), &by("n")).unwrap_err().to_string();
    assert!(error.contains("calls are aggregated"), "{error}");
}

#[test]
fn too_many_values_are_one_row() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path());
    writer.define(&column(0, "n", ValueType::Integer, None)).unwrap();
    let count = MOST_ROWS as u64 + 100;
    let calls: Vec<Call> = (0..count)
        .map(|id| Call {
            location: LocationId(1),
            id: id + 1,
            start: rtrace_model::Timestamp(id * 10),
            duration: Some(5),
            ..Call::default()
        })
        .collect();
    let ids = calls.iter().map(|call| (call.location, call.id)).collect();
    writer.calls(&calls.into()).unwrap();
    let columns = vec![Values::Integer((0..count).map(|number| Some(number as i64)).collect())];
    writer.values(&[ValueBatch { region: RegionId(0), calls: ids, columns }]).unwrap();
    writer.finish(&Summary::default()).unwrap();
    let csv = report(folder.path(), &Options { format: Format::Csv, sort: Sort::Calls, ..by("n") }).unwrap();
    assert_eq!(csv.lines().count(), 1 + MOST_ROWS + 1);
    let first = csv.lines().nth(1).unwrap();
    assert!(first.starts_with("100,") && first.ends_with(",[more],[more]"), "{first}");
}

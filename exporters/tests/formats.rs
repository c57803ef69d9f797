//! Every format of the registry on one small trace, compared with files that a person has read.
//!
//! The files are in `golden/`; `RTRACE_BLESS=1 cargo test -p rtrace-exporters --test formats` writes
//! them anew. Binary formats are compared as text that says the same.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;
mod golden;

use std::collections::HashSet;
use std::fs;
use std::io::Read as _;
use std::path::Path;

use rtrace_exporters::{Destination, ExportError, ExportFormat, Exported, FORMATS, Selection, TraceSet, export};
use rtrace_model::{
    Call, CallSite, CallSiteId, Context, ContextEnding, ContextId, Definition, ExitPolicy, LibraryId, Region, RegionId,
    Sink as _, SymbolName, Timestamp,
};

fn write(trace: &TraceSet, format: &ExportFormat, selection: &Selection, path: &Path) -> Result<Exported, ExportError> {
    let destination = Destination::Path { path: path.to_owned(), force: false, owner: None };
    export(trace, format, selection, &destination)
}

#[test]
fn every_format_has_its_golden_file() {
    let folder = tempfile::tempdir().unwrap();
    let trace = golden::trace(folder.path());
    let mut wrong = Vec::new();
    for format in FORMATS {
        let path = folder.path().join(format.extension);
        let exported = write(&trace, format, &Selection::default(), &path).unwrap();
        assert_eq!(exported.calls, golden::CALLS, "{}", format.name);
        assert_eq!(exported.moved, 0, "{}", format.name);
        if !golden::matches(format.name, &golden::readable(format.name, &path)) {
            wrong.push(format.name);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?} are not as they were: read the difference, then bless it");
}

#[test]
fn names_and_extensions_are_unique() {
    let unique = |of: fn(&ExportFormat) -> &str| FORMATS.iter().map(of).collect::<HashSet<_>>().len();
    assert_eq!(unique(|format| format.name), FORMATS.len());
    assert_eq!(unique(|format| format.extension), FORMATS.len());
}

#[test]
fn the_document_has_the_table_of_the_registry() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/formats.md");
    let document = fs::read_to_string(&path).unwrap();
    let (begin, end) = ("<!-- table: begin -->\n", "<!-- table: end -->\n");
    let (before, rest) = document.split_once(begin).unwrap();
    let (table, after) = rest.split_once(end).unwrap();
    let expected = golden::table();
    if golden::blessing() {
        fs::write(&path, format!("{before}{begin}{expected}{end}{after}")).unwrap();
    } else {
        assert_eq!(table, expected, "RTRACE_BLESS=1 writes the table anew");
    }
}

#[test]
fn an_export_never_takes_the_place_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let trace = golden::trace(folder.path());
    for format in FORMATS {
        let path = folder.path().join(format.extension);
        write(&trace, format, &Selection::default(), &path).unwrap();
        let error = write(&trace, format, &Selection::default(), &path).unwrap_err();
        assert!(error.to_string().ends_with("it exists"), "{error}");
        let destination = Destination::Path { path, force: true, owner: None };
        export(&trace, format, &Selection::default(), &destination).unwrap();
    }
}

#[test]
fn a_selection_is_kept_by_every_format() {
    let folder = tempfile::tempdir().unwrap();
    let trace = golden::trace(folder.path());
    let chosen =
        Selection { from: Some(Timestamp(1_150)), to: Some(Timestamp(1_800)), regions: Some([RegionId(0)].into()) };
    let expected: u64 =
        trace.calls().map(|batch| batch.unwrap().iter().filter(|call| chosen.keeps(call)).count() as u64).sum();
    assert!(expected > 2 && expected < golden::CALLS / 2, "{expected}");
    for format in FORMATS {
        let path = folder.path().join(format.extension);
        let exported = write(&trace, format, &chosen, &path).unwrap();
        assert_eq!(exported.calls, expected, "{}", format.name);
    }
}

#[test]
fn a_trace_without_calls_can_be_exported() {
    use rtrace_model::Sink;
    let folder = tempfile::tempdir().unwrap();
    let (mut writer, path) = common::begin(folder.path());
    writer.finish(&common::summary()).unwrap();
    let trace = TraceSet::open(&path).unwrap();
    for format in FORMATS {
        let exported = write(&trace, format, &Selection::default(), &folder.path().join(format.extension)).unwrap();
        assert_eq!(exported, Exported::default(), "{}", format.name);
    }
}

#[test]
fn no_name_is_a_formula_in_a_spreadsheet() {
    use rtrace_model::{Definition, Sink};
    let folder = tempfile::tempdir().unwrap();
    let (mut writer, path) = common::begin(folder.path());
    let mut hostile = common::region(0);
    hostile.name = "=cmd|' /C calc'!A1".to_owned();
    for definition in common::definitions().into_iter().chain([Definition::Region(hostile)]) {
        writer.define(&definition).unwrap();
    }
    writer.calls(&vec![common::call(1, 1)].into()).unwrap();
    writer.finish(&common::summary()).unwrap();
    let exported = |name: &str| {
        let format = FORMATS.iter().find(|format| format.name == name).unwrap();
        let file = folder.path().join(name);
        write(&TraceSet::open(&path).unwrap(), format, &Selection::default(), &file).unwrap();
        std::fs::read_to_string(file).unwrap()
    };
    let csv = exported("csv");
    assert!(csv.contains(",'=cmd|' /C calc'!A1,"), "{csv}");
    assert!(!exported("jsonl").contains("\"'=cmd"), "others stay as they are");
}

#[test]
fn an_unfinished_trace_can_be_exported() {
    let folder = tempfile::tempdir().unwrap();
    let trace = golden::unfinished_trace(folder.path());
    assert!(trace.summary().is_none());
    for format in FORMATS {
        let exported = write(&trace, format, &Selection::default(), &folder.path().join(format.extension)).unwrap();
        assert_eq!(exported.calls, golden::CALLS, "{}", format.name);
    }
}

#[test]
fn a_full_disk_is_an_error_that_names_the_output() {
    let folder = tempfile::tempdir().unwrap();
    let trace = golden::trace(folder.path());
    for format in FORMATS.iter().filter(|format| format.is_stream()) {
        let error = write(&trace, format, &Selection::default(), Path::new("/dev/full")).unwrap_err();
        assert!(error.to_string().contains("`/dev/full`: No space left on device"), "{}: {error}", format.name);
    }
}

/// A call under `main` and two more functions that are not traced, and one that a callback of the first made.
#[test]
fn stacks_begin_with_the_untraced_functions_that_led_to_calls() {
    let folder = tempfile::tempdir().unwrap();
    let (mut writer, path) = common::begin(folder.path());
    let names = ["_start", "main", "solve", "step", "callback", "traced"];
    for (id, name) in (0..).zip(names) {
        let site =
            CallSite { id: CallSiteId(id), file: Some("/p".to_owned()), offset: id.into(), ..CallSite::default() };
        writer.define(&Definition::CallSite(CallSite { function: Some(name.to_owned()), ..site })).unwrap();
    }
    for (id, sites, ending) in [
        (1, &[][..], ContextEnding::Complete),
        (2, &[2, 1, 0], ContextEnding::Complete),
        (3, &[5], ContextEnding::Complete),
        (4, &[2], ContextEnding::Cut),
    ] {
        let sites = sites.iter().copied().map(CallSiteId).collect();
        writer.define(&Definition::Context(Context { id: ContextId(id), sites, ending })).unwrap();
    }
    let of = |id, parent, site, context, duration| Call {
        parent,
        call_site: Some(CallSiteId(site)),
        context: Some(ContextId(context)),
        duration: Some(duration),
        depth: u32::from(parent > 0),
        ..common::call(1, id)
    };
    let outer = Call { child: 20, ..of(1, 0, 3, 2, 100) };
    let calls =
        vec![of(2, 1, 4, 3, 10), of(3, 1, 5, 1, 10), outer, Call { start: Timestamp(5_000), ..of(4, 0, 3, 4, 7) }];
    writer.calls(&calls.into()).unwrap();
    writer.finish(&common::summary()).unwrap();
    let format = FORMATS.iter().find(|format| format.name == "folded").unwrap();
    let output = folder.path().join("out.folded");
    write(&TraceSet::open(&path).unwrap(), format, &Selection::default(), &output).unwrap();
    let text = std::fs::read_to_string(output).unwrap();
    let stacks: Vec<&str> = text.lines().map(|line| line.splitn(3, ';').nth(2).unwrap()).collect();
    assert_eq!(
        stacks,
        [
            "main (p);solve (p);step (p);not defined 80",
            "main (p);solve (p);step (p);not defined;callback (p);not defined 10",
            "main (p);solve (p);step (p);not defined;not defined 10",
            "[cut];solve (p);step (p);not defined 7",
        ]
    );
    let text = |format: &str| {
        let format = FORMATS.iter().find(|known| known.name == format).unwrap();
        let output = folder.path().join(format.name);
        write(&TraceSet::open(&path).unwrap(), format, &Selection::default(), &output).unwrap();
        std::fs::read(output).unwrap()
    };
    let contexts = ["main (p) > solve (p) > step (p)", "callback (p)", "[cut] > solve (p) > step (p)"];
    for format in ["chrome", "perfetto"] {
        let bytes = text(format);
        let is_there = |context: &&str| bytes.windows(context.len()).any(|window| window == context.as_bytes());
        assert!(contexts.iter().all(is_there), "{format}");
    }
    let rows = String::from_utf8(text("csv")).unwrap();
    let in_rows: Vec<&str> = rows.lines().skip(1).map(|row| row.rsplit(',').next().unwrap()).collect();
    assert_eq!(in_rows, [contexts[0], contexts[1], "", contexts[2]]);
    let mut profile = Vec::new();
    flate2::read::GzDecoder::new(text("firefox").as_slice()).read_to_end(&mut profile).unwrap();
    let profile: serde_json::Value = serde_json::from_slice(&profile).unwrap();
    let of_thread = |table: &str, column: &str, row: &serde_json::Value| {
        row.as_u64().map(|row| profile["threads"][0][table][column][row as usize].clone())
    };
    let stack = |stack: &serde_json::Value| {
        let (mut names, mut next) = (Vec::new(), stack.clone());
        while let Some(frame) = of_thread("stackTable", "frame", &next) {
            let name = profile["threads"][0]["stringArray"][frame.as_u64().unwrap() as usize].clone();
            names.insert(0, name.as_str().unwrap().to_owned());
            next = of_thread("stackTable", "prefix", &next).unwrap();
        }
        names.join(";")
    };
    let samples = profile["threads"][0]["samples"]["stack"].as_array().unwrap();
    let mut shown: Vec<String> = samples.iter().map(stack).filter(|stack| !stack.is_empty()).collect();
    shown.sort();
    shown.dedup();
    let mut of_folded: Vec<&str> = stacks.iter().map(|stack| stack.rsplit_once(' ').unwrap().0).collect();
    of_folded.sort_unstable();
    assert_eq!(shown, of_folded);
    text("pprof");
    let profile = golden::readable("pprof", &folder.path().join("pprof"));
    assert_eq!(
        ["main (p)", "solve (p)", "step (p)", "callback (p)", "[cut]"].map(|name| profile.matches(name).count()),
        [1; 5]
    );
    text("arrow");
    let arrow = golden::readable("arrow", &folder.path().join("arrow"));
    assert!(arrow.contains("untraced_callers List"), "{arrow}");
    let lines = String::from_utf8(text("jsonl")).unwrap();
    let calls = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let of_calls: Vec<_> = calls.filter(|line| line["type"] == "call").map(|call| call["context"].clone()).collect();
    // Of the call that a traced one made itself there is none.
    let expected = [
        serde_json::json!(["main (p)", "solve (p)", "step (p)"]),
        serde_json::json!(["callback (p)"]),
        serde_json::Value::Null,
        serde_json::json!(["[cut]", "solve (p)", "step (p)"]),
    ];
    assert_eq!(of_calls, expected);
}

#[test]
fn folded_calls_go_by_the_time_without_tracing() {
    let folder = tempfile::tempdir().unwrap();
    let (mut writer, path) = common::begin(folder.path());
    writer.define(&Definition::Library(common::library(0))).unwrap();
    writer.define(&Definition::Location(common::location(1))).unwrap();
    let exit = ExitPolicy::ReturnSite;
    let region = |id, single_stepped| Region { single_stepped, exit, stub: false, ..common::region(id) };
    for region in [region(0, false), region(1, true)] {
        writer.define(&Definition::Region(region)).unwrap();
    }
    let outer = Call { region: RegionId(0), start: Timestamp(2_000), duration: Some(10_000), ..common::call(1, 1) };
    let outer = Call { parent: 0, depth: 0, child: 1_000, ..outer };
    let inner =
        Call { region: RegionId(1), start: Timestamp(3_000), duration: Some(1_000), child: 0, ..common::call(1, 2) };
    writer.calls(&vec![Call { parent: 1, depth: 1, ..inner }, outer].into()).unwrap();
    writer.finish(&common::summary()).unwrap();
    let trace = TraceSet::open(&path).unwrap();
    let text = |name: &str| {
        let format = FORMATS.iter().find(|format| format.name == name).unwrap();
        let output = folder.path().join(format.extension);
        write(&trace, format, &Selection::default(), &output).unwrap();
        golden::readable(name, &output)
    };
    // Of the callee 400 ns are tracing's, and of its caller 600 ns; what tracing the caller takes was not measured.
    let folded = text("folded");
    let times: Vec<&str> = folded.lines().filter_map(|line| line.rsplit(' ').next()).collect();
    assert_eq!(times, ["8400", "600"], "{folded}");
    // 1 call, 9000 ns and 8400 ns.
    assert!(text("pprof").contains("2: [1, 168, 70, 208, 65]"), "{}", text("pprof"));
}

/// Two versions of a symbol in one library, and a function of one name in two.
#[test]
fn functions_of_one_name_are_told_apart_by_every_format() {
    let folder = tempfile::tempdir().unwrap();
    let (mut writer, path) = common::begin(folder.path());
    let names =
        [(0, "calc@VER_1", Some("VER_1")), (0, "calc@@VER_2", Some("VER_2")), (0, "init", None), (1, "init", None)];
    (0..2).for_each(|id| writer.define(&Definition::Library(common::library(id))).unwrap());
    for (id, (library, name, version)) in (0..).zip(names) {
        let symbol = name.split('@').next().unwrap().to_owned();
        let symbols = vec![SymbolName { symbol, version: version.map(str::to_owned) }];
        let library = LibraryId(library);
        let region = Region { library, name: name.to_owned(), symbols, ..common::region(id) };
        writer.define(&Definition::Region(region)).unwrap();
    }
    let call = |id: u32| Call {
        region: RegionId(id),
        start: Timestamp(2_000 + 10_000 * u64::from(id)),
        duration: Some(5_000),
        child: 0,
        parent: 0,
        depth: 0,
        ..common::call(1, u64::from(id) + 1)
    };
    writer.calls(&(0..4).map(call).collect::<Vec<_>>().into()).unwrap();
    writer.finish(&common::summary()).unwrap();
    let trace = TraceSet::open(&path).unwrap();
    for format in FORMATS {
        let output = folder.path().join(format.extension);
        write(&trace, format, &Selection::default(), &output).unwrap();
        let bytes = match format.name {
            "otf2" => fs::read(output.join("traces.def")).unwrap(),
            "cubex" => fs::read(&output).unwrap(),
            name => golden::readable(name, &output).into_bytes(),
        };
        let has = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        assert!(has("calc@VER_1") && has("calc@@VER_2"), "{}", format.name);
        // Where the library stands in a place of its own, the name is that of the function alone.
        let has_libraries = matches!(format.name, "csv" | "jsonl" | "arrow" | "callgrind");
        assert_eq!(has("init [libone.so.0]") && has("init [libone.so.1]"), !has_libraries, "{}", format.name);
        // The linker's name has the version, too, which is how a program asks for it.
        let has_symbols = matches!(format.name, "csv" | "jsonl" | "arrow" | "pprof" | "otf2" | "cubex");
        assert_eq!(has("calc@VER_2"), has_symbols, "{}", format.name);
    }
}

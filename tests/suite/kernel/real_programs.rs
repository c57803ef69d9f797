//! Real programs and libraries: every function's calls equal what callgrind counts.

use rtrace_code::restarting::{self, Restarts};
use rtrace_code::text::{FunctionCode, Text};
use rtrace_symbolizer::Image;

use crate::common::skip::{Turn, installed};
use crate::common::workload::Workload;
use crate::common::{launch, oracle, rtrace};

/// Compares function by function, for at least `expected` calls in all.
fn check(workload: Option<Workload>, expected: u64) {
    let Some(Workload { library, command, .. }) = &workload else { return };
    if !installed(&["valgrind"]) {
        return;
    }
    let Some(_turn) = Turn::take() else { return };
    let by_address = oracle::callgrind(library, command);
    let untraced = launch::alone(command);
    let options = ["--lib".to_owned(), library.display().to_string(), "--buffer".to_owned(), "64M".to_owned()];
    let (traced, recording) = rtrace::run(&options, command);
    assert_eq!(traced.status, untraced.status, "{}", String::from_utf8_lossy(&traced.stderr));
    assert!(traced.stdout == untraced.stdout, "the program prints something else when traced");

    let image = Image::open(library).unwrap();
    let functions = image.exports().unwrap().functions;
    let text = Text::new(&image, functions.iter().map(|function| function.address).collect());
    let recorded = recording.calls_by_region();
    let regions = recording.regions();
    let differences: Vec<String> = regions
        .iter()
        .filter_map(|region| {
            let address = image.address(region.file_offset).expect("regions lie in the file");
            let counted = by_address.get(&address).copied().unwrap_or(0);
            let traced = recorded.get(&region.id).copied().unwrap_or(0);
            // Callgrind takes a jump to a function's own first instruction for a call.
            let has_laps = || restarting::restarts(&text, FunctionCode { entry: address, size: region.size });
            let differs = traced != counted && !(traced < counted && has_laps() == Restarts::ByJump);
            differs.then(|| format!("{}: {traced} traced, {counted} counted", region.name))
        })
        .collect();
    assert!(differences.is_empty(), "{} of {} functions differ: {differences:#?}", differences.len(), regions.len());
    assert!(recording.summary().calls >= expected, "{} calls say little", recording.summary().calls);
}

#[test]
fn sqlite_runs_ten_thousand_statements() {
    check(Workload::sqlite(10_000), 1_000_000);
}

#[test]
fn python_packs_with_zlib() {
    check(Workload::python_zlib(), 10_000);
}

#[test]
fn xmllint_prints_a_document() {
    check(Workload::xmllint(), 10_000);
}

#[test]
fn xz_packs_a_text() {
    check(Workload::xz(), 500);
}

#[test]
fn git_prints_a_history() {
    check(Workload::git_log(), 1_000);
}

#[test]
fn openssl_reads_a_certificate() {
    check(Workload::openssl_x509(), 10_000);
}

#[test]
fn qpdf_repairs_a_document() {
    check(Workload::qpdf_broken(), 10_000);
}

#[test]
fn exiv2_reads_a_broken_picture() {
    check(Workload::exiv2_broken(), 100);
}

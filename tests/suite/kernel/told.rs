//! Metrics of values in calls that are nested in each other.

use std::collections::BTreeMap;
use std::process::Command;

use tempfile::TempDir;

use crate::common::recording::Recording;
use crate::common::rtrace;
use crate::common::skip::Turn;
use crate::common::target::compile_texts;

const TOLD_LIBRARY: &str = r#"
#include <stddef.h>
volatile size_t done;
void part(size_t n) { done += n; }
void same(size_t n) { part(n / 2); part(n / 2); done++; }
void less(size_t n) { part(n); done += 2; }
void more(size_t n) { part(n); done += 3; }
void silent(size_t n) { same(n); part(n); done += 4; }
"#;

const TOLD_PROGRAM: &str = r#"
#include <stddef.h>
void same(size_t n), less(size_t n), more(size_t n), silent(size_t n);
int main(void) { for (int i = 0; i < 20; i++) { same(10); less(10); more(10); silent(10); } }
"#;

const TOLD_TABLE: &str = r#"
[[function]]
c = "void part(size_t n)"
metrics = { flops = "n" }
[[function]]
c = "void same(size_t n)"
metrics = { flops = "n" }
[[function]]
c = "void less(size_t n)"
metrics = { flops = "n - 4" }
[[function]]
c = "void more(size_t n)"
metrics = { flops = "n + 5" }
"#;

#[test]
fn what_a_call_tells_is_also_what_the_calls_that_it_makes_tell() {
    let Some(_turn) = Turn::take() else { return };
    let library: (_, _, &[&str]) = (TOLD_LIBRARY, "libtold.so", &["-O1", "-shared", "-fPIC"]);
    let folder = compile_texts(&[library, (TOLD_PROGRAM, "program", &["-O1"])]);
    let table = folder.join("table.toml");
    std::fs::write(&table, TOLD_TABLE).unwrap();
    let options = ["--lib", "libtold.so", "--args-from", table.to_str().unwrap()].map(str::to_owned);
    let trace = TempDir::new().unwrap();
    let directory = trace.path().join("trace");
    rtrace::record(&options, &Command::new(folder.join("program")), &directory);
    let recording = Recording::open(&directory);
    let name = |region| &recording.regions().iter().find(|known| known.id == region).unwrap().name;
    // Of the last call of each, which nothing but the calls before may have kept from being timed.
    let last: BTreeMap<_, _> = recording
        .calls()
        .filter(|call| call.is_timed() && call.depth == 0)
        .map(|call| (name(call.region).as_str(), recording.readings(call)[0]))
        .map(|(name, reading)| (name, (reading.inclusive, reading.exclusive())))
        .collect();
    let wanted = [("less", (10, 0)), ("more", (15, 5)), ("same", (10, 0)), ("silent", (20, 0))];
    assert_eq!(last.into_iter().collect::<Vec<_>>(), wanted);
}

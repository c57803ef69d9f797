//! Memory that programs allocate and free, as they say themselves.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::common::rtrace;
use crate::common::skip::Turn;
use crate::common::target::compile_text;
use crate::common::tries::in_one_of_some_tries;

/// Two threads hold memory at the same time. Nothing else of the program allocates that much.
const PROGRAM: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static void *volatile kept[8];

__attribute__((noinline)) static void *leak(size_t size) { return malloc(size); }
__attribute__((noinline)) static void *borrow(size_t size) { return malloc(size); }
__attribute__((noinline)) static void *clear(size_t count, size_t size) { return calloc(count, size); }
__attribute__((noinline)) static void *grow(void *block, size_t size) { return realloc(block, size); }

static void *other(void *unused)
{
	for (int i = 0; i < 3; i++)
		kept[i] = leak(1000000);
	return unused;
}

int main(void)
{
	pthread_t thread;
	void *blocks[100];

	// The first calls may not be timed, so that what they return is not known.
	free(leak(16));
	free(borrow(16));
	free(clear(1, 16));
	free(grow(NULL, 16));
	sleep(1);
	for (int i = 0; i < 100; i++)
		blocks[i] = borrow(50000);
	pthread_create(&thread, NULL, other, NULL);
	pthread_join(thread, NULL);
	kept[4] = clear(10, 20000); // the peak: 5,000,000 + 3,000,000 + 200,000
	for (int i = 0; i < 100; i++)
		free(blocks[i]);
	kept[5] = grow(grow(NULL, 300000), 700000);
	free(kept[4]);
	_exit(0);
}
"#;

/// A machine that is too busy to place a return site within a second leaves the result of a later call unknown.
const TRIES: usize = 5;

#[test]
fn peak_and_leaks_are_those_of_the_program() {
    let Some(_turn) = Turn::take() else { return };
    let folder = TempDir::new().unwrap();
    compile_text(folder.path(), PROGRAM, "program", &["-O1", "-g", "-fno-builtin", "-pthread"]);
    in_one_of_some_tries(TRIES, || compare_memory(folder.path()));
}

#[test]
fn an_allocation_that_fails_has_no_bytes() {
    const FAILS: &str = "#include <stdlib.h>
        void *volatile p;
        int main(void) { for (int i = 0; i < 9; i++) { p = malloc((size_t)1 << 60); p = malloc(100); } }";
    let Some(_turn) = Turn::take() else { return };
    let folder = TempDir::new().unwrap();
    compile_text(folder.path(), FAILS, "program", &["-O1", "-fno-builtin"]);
    let directory = folder.path().join("trace");
    let options = ["--lib", "libc.so.6", "--func", "malloc", "--args"].map(str::to_owned);
    rtrace::record(&options, &Command::new(folder.path().join("program")), &directory);
    let report = rtrace::command().args(["report", "--format", "json"]).arg(&directory).output().unwrap();
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let bytes: Vec<_> =
        report["rows"].as_array().unwrap().iter().map(|row| &row["allocated_bytes_inclusive"]).collect();
    // The first call of each place may have no time.
    assert!(matches!(bytes[..], [bytes] if (800..2_000).contains(&bytes.as_u64().unwrap())), "{bytes:?}");
}

fn compare_memory(folder: &Path) -> Result<(), String> {
    let trace = TempDir::new_in(folder).unwrap();
    let directory = trace.path().join("trace");
    let options = ["--lib", "libc.so.6", "--func", "*alloc", "--func", "free", "--args"].map(str::to_owned);
    let output = rtrace::record(&options, &Command::new(folder.join("program")), &directory);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut report = rtrace::command();
    report.args(["report", "--memory", "--by", "callsite", "--format", "json"]).arg(&directory);
    let report = report.output().unwrap();
    assert!(report.status.success(), "{}", String::from_utf8_lossy(&report.stderr));
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let sums = |function: &str, at_least: u64| {
        let is_large = |row: &&Value| {
            row["function"] == function
                && row["allocated_bytes_inclusive"].as_u64().is_some_and(|bytes| bytes >= at_least)
        };
        let mut sums: Vec<_> = rows
            .iter()
            .filter(is_large)
            .map(|row| ["calls", "peak_bytes", "leaked_bytes", "leaks"].map(|key| row[key].as_u64().unwrap()))
            .collect();
        sums.sort_unstable();
        sums
    };
    let is_late = |row: &&Value| row["calls"] != 1 && row["timed"] != row["calls"];
    if let Some(late) = rows.iter().find(is_late) {
        return Err(late.to_string());
    }
    assert_eq!(sums("malloc", 1_000_000), [[4, 3_000_000, 3_000_000, 3], [101, 5_000_000, 0, 0]], "{rows:#?}");
    assert_eq!(sums("calloc", 100_000), [[2, 200_000, 0, 0]]);
    // The block of the first call moved to the second.
    assert_eq!(sums("realloc", 1_000_000), [[3, 0, 700_000, 1]]);
    let notes: Vec<_> = report["notes"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let said = notes.iter().find(|note| note.starts_with("memory: at most ")).expect("it is said");
    let peak: u64 = said.split_whitespace().nth(3).unwrap().replace(',', "").parse().unwrap();
    // The C library allocates a little for itself.
    assert!((8_200_000..8_300_000).contains(&peak), "{said}");
    Ok(())
}

//! What calls count, compared with what the kernel tells the program itself.

use std::collections::BTreeMap;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rtrace_exporters::Trace;
use rtrace_model::{Call, Reading, Sample, Scope};

use crate::common::rtrace;
use crate::common::scenario::{Scenario, Truth};
use crate::common::skip::{Turn, installed};
use crate::common::target::{Flavour, TESTS, Target};
use crate::common::tries::in_one_of_some_tries;
use crate::common::truth::Thread;

/// What a call cost by the program's own account, taken around the call.
struct Cost {
    clock: u64,
    /// Fresh pages that it touched.
    pages: u64,
    faults: u64,
    switches: u64,
}

/// The `cost` lines of `counted.c`, by thread.
fn costs(stderr: &[u8]) -> BTreeMap<Thread, Vec<Cost>> {
    let mut costs: BTreeMap<Thread, Vec<Cost>> = BTreeMap::new();
    for line in String::from_utf8_lossy(stderr).lines() {
        let Some(numbers) = line.strip_prefix("cost ") else { continue };
        let numbers: Vec<u64> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
        let [pid, tid, clock, pages, faults, switches] = numbers[..] else { panic!("{line}") };
        let thread = (pid.try_into().unwrap(), tid.try_into().unwrap());
        costs.entry(thread).or_default().push(Cost { clock, pages, faults, switches });
    }
    costs
}

/// Two threads move between CPUs on which neighbours spin and fault all the time.
#[test]
fn calls_count_what_the_kernel_tells_the_thread() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("counted", Flavour::Cet);
    in_one_of_some_tries(TRIES, || compare_costs(&target));
}

fn compare_costs(target: &Target) -> Result<(), String> {
    let options = ["--counters", "task-clock,page-faults,context-switches"].map(str::to_owned);
    let (output, recording) = rtrace::run(&[&target.selection()[..], &options].concat(), &target.command("costs"));
    let (costs, counted) = (costs(&output.stderr), recording.counted("visit"));
    assert_eq!(costs.len(), 2, "{}", String::from_utf8_lossy(&output.stderr));
    assert!(costs.keys().eq(counted.keys()));
    for (thread, calls) in &counted {
        assert_eq!(calls.len(), costs[thread].len());
        // The first call also faults code in.
        for (cost, (call, readings)) in costs[thread].iter().zip(calls).skip(1) {
            assert!(readings.iter().all(|reading| reading.child <= reading.inclusive), "{readings:?} {call:?}");
            let [clock, faults, switches] = readings.iter().map(|reading| reading.inclusive).collect::<Vec<_>>()[..]
            else {
                panic!("{readings:?}")
            };
            assert_eq!((faults, cost.faults), (cost.pages, cost.pages), "{call:?}");
            // One may fall between the program's look at its account and the call.
            assert!((switches..=switches + 2).contains(&cost.switches), "{switches} of {}: {call:?}", cost.switches);
            assert!(call.duration.is_some_and(|duration| clock <= duration), "{clock} {call:?}");
            // The difference is what the probes cost, and what is between the program's clock and them.
            if cost.clock.abs_diff(clock) >= cost.clock / 10 {
                return Err(format!("{clock} of {}: {call:?}", cost.clock));
            }
        }
    }
    Ok(())
}

/// A virtual machine that is not run for a moment shows in one clock and not in the other, mostly where threads
/// are switched: clocks of the kernel's own were up to a millisecond apart there.
const TRIES: usize = 8;

/// Short calls, of which all that is between the time stamps and the reading of counters would show.
#[test]
fn time_on_a_cpu_is_the_duration_of_a_call_that_stays_on_it() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("shapes", Flavour::Cet);
    let options = ["--counters", "task-clock,context-switches"].map(str::to_owned);
    let (_, recording) = rtrace::run(&[&target.selection()[..], &options].concat(), &target.command("nested"));
    let calls = recording.counted("outer").into_values().chain(recording.counted("leaf").into_values()).flatten();
    let stayed: Vec<_> = calls.filter(|(_, readings)| readings[1].inclusive == 0).collect();
    assert!(!stayed.is_empty());
    for (call, readings) in stayed {
        let timed = call.duration.map(|inclusive| Reading { inclusive, child: call.child });
        assert_eq!(Some(readings[0]), timed, "{call:?}");
    }
}

/// A counter of the CPU that is there in virtual machines, too.
#[test]
fn time_stamps_count_only_while_the_thread_runs() {
    let Some(_turn) = Turn::take() else { return };
    if !fs::exists("/sys/bus/event_source/devices/msr/events/tsc").unwrap_or(false) {
        return println!("skipped: this machine has no event msr/tsc/");
    }
    let target = Target::build("counted", Flavour::Cet);
    in_one_of_some_tries(TRIES, || compare_time_stamps(&target));
}

fn compare_time_stamps(target: &Target) -> Result<(), String> {
    let options = ["--counters", "msr/tsc/,task-clock,context-switches,sched:sched_switch"].map(str::to_owned);
    let (_, recording) = rtrace::run(&[&target.selection()[..], &options].concat(), &target.command("costs"));
    let calls: Vec<Vec<f64>> = recording
        .counted("visit")
        .into_values()
        .flatten()
        .map(|(_, readings)| readings.iter().map(|reading| reading.inclusive as f64).collect())
        .collect();
    assert_eq!(calls.len(), 60);
    let frequency = time_stamps_per_nanosecond();
    // The scheduler and its tracepoint look at the clock some microseconds apart.
    let is_right = |call: &&Vec<f64>| (call[0] / frequency - call[1]).abs() < call[1] * 0.05 + call[2] * 15e3;
    // Not every kernel tells of every switch. Neighbours that were counted would be so in each call.
    let right = calls.iter().filter(is_right).count();
    if right >= 50 { Ok(()) } else { Err(format!("{right} of {calls:?}, {frequency} per ns")) }
}

fn time_stamps_per_nanosecond() -> f64 {
    // SAFETY: each CPU that this builds for has time stamps.
    let stamp = || unsafe { core::arch::x86_64::_rdtsc() };
    let (begin, first) = (Instant::now(), stamp());
    sleep(Duration::from_millis(100));
    (stamp() - first) as f64 / begin.elapsed().as_nanos() as f64
}

const SOME: &str = "task-clock,page-faults,context-switches,cpu-migrations,minor-faults,major-faults,cpu-clock";

#[test]
fn deep_calls_are_counted() {
    Scenario::new("shapes", "recursion").option("--counters").option(SOME).run();
}

#[test]
fn calls_that_a_longjmp_leaves_are_counted() {
    Scenario::new("jumps", "long_jumps").option("--counters").option(SOME).run();
}

#[test]
fn calls_on_coroutines_are_counted() {
    Scenario::new("jumps", "interleaved").truth(Truth::Counts).option("--counters").option(SOME).run();
}

#[test]
fn threads_that_end_inside_a_call_are_counted() {
    Scenario::new("threads", "exit").option("--counters").option(SOME).run();
}

#[test]
fn what_cannot_be_counted_is_refused_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, witness) = (folder.path().join("trace"), folder.path().join("witness"));
    let output = rtrace::command()
        .args(["run", "--lib", "libc", "--counters", "task-clock,no/such/", "-o"])
        .arg(&trace)
        .args(["--", "touch"])
        .arg(&witness)
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    let Some(_turn) = Turn::take() else { return };
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    assert!(complaint.contains("failed to count `no/such/`: this machine has no unit `no`; it has "), "{complaint}");
    assert!(complaint.contains("hint: `rtrace counters` lists what works here"), "{complaint}");
    assert!(!trace.exists() && !witness.exists());
}

#[test]
fn memory_and_the_values_of_a_plug_in_stand_beside_the_calls() {
    let Some(_turn) = Turn::take().filter(|_| installed(&["python3"])) else { return };
    let target = Target::build("counted", Flavour::Cet);
    let plugin = format!("{TESTS}/../examples/metric_plugin.py");
    let options = ["--metric-plugin".to_owned(), plugin];
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("trace");
    rtrace::record(&[&target.selection()[..], &options].concat(), &target.command("costs"), &directory);
    let trace = Trace::open(&directory).unwrap();
    let calls: Vec<Call> = trace.calls().flat_map(|batch| batch.unwrap().into_calls()).collect();
    let first = calls.iter().map(|call| call.start.0).min().unwrap();
    let last = calls.iter().filter_map(Call::end).max().unwrap().0;
    for (name, scope) in [("process/resident", Scope::Process), ("node/available", Scope::Node)] {
        let metric = trace.metrics().iter().find(|metric| metric.name == name).unwrap();
        assert_eq!((metric.scope, metric.unit.as_str()), (scope, "B"));
        let samples: Vec<Sample> =
            trace.samples().flat_map(Result::unwrap).filter(|sample| sample.metric == metric.id).collect();
        // A process that has ended has no memory.
        assert!(samples.iter().filter(|sample| sample.time.0 < last).all(|sample| sample.value > 0.0), "{samples:?}");
        // Read about once a second at least, from the begin of the recording to its end.
        assert!(samples.iter().any(|sample| sample.time.0 < first + 2_000_000_000), "{samples:?}");
        assert!(samples.iter().any(|sample| sample.time.0 + 2_000_000_000 > last), "{samples:?}");
    }
}

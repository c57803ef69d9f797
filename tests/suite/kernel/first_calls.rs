//! The first call from a place, and the last of a function, have their time if it lasts: no return site was there when
//! they entered.

use std::process::Command;

use rtrace_model::Call;
use tempfile::TempDir;

use crate::common::recording::Recording;
use crate::common::rtrace::{self, Attached, Waiting};
use crate::common::skip::{Turn, installed};
use crate::common::target::compile_text;
use crate::common::tries::in_one_of_some_tries;

/// On a machine that is busy, more answers are late than these tests allow.
const TRIES: usize = 5;

/// `nap` says from when to when it ran, `beat` takes no time. At its end, the program says when that began.
const LIBRARY: &str = r#"
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static long times[100][2];
static int naps;

static long now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000 + time.tv_nsec;
}

int nap(int us)
{
    long *time = times[__atomic_fetch_add(&naps, 1, __ATOMIC_RELAXED)];

    time[0] = now();
    usleep(us);
    time[1] = now();
    return us;
}

__attribute__((destructor)) static void tell(void)
{
    long end = now();
    int i;

    for (i = 0; i < naps; i++)
        printf("nap %ld %ld\n", times[i][0], times[i][1]);
    printf("end %ld\n", end);
}

int beat(int n) { __asm__ volatile(""); return n + 1; }
"#;

/// Waits for a line if it is to.
const BEGINNING: &str = r#"
#include <stdio.h>
#include <unistd.h>
int nap(int), beat(int);
static void begin(int argc)
{
    printf("ready %d\n", getpid());
    fflush(stdout);
    if (argc > 1)
        getchar();
}
"#;

/// A program of this text, in the folder with its library.
struct Program(TempDir);

impl Program {
    fn of(text: &str, flags: &[&str]) -> Program {
        let folder = TempDir::new().unwrap();
        compile_text(folder.path(), LIBRARY, "libnap.so", &["-O1", "-shared", "-fPIC"]);
        let library = folder.path().join("libnap.so");
        let text = format!("{BEGINNING}{text}");
        compile_text(folder.path(), &text, "program", &[flags, &[library.to_str().unwrap(), "-pthread"]].concat());
        Program(folder)
    }

    fn command(&self) -> Command {
        Command::new(self.0.path().join("program"))
    }

    /// Recorded by `run`, with what it has printed.
    fn run(&self, options: &[String]) -> (Recording, String) {
        let (output, recording) = rtrace::run(options, &self.command());
        (recording, String::from_utf8(output.stdout).unwrap())
    }

    /// The same by `attach`.
    fn attach(&self, options: &[String]) -> (Recording, String) {
        let mut waiting = Waiting::start(&mut self.command());
        let attached = Attached::start(waiting.pid(), options);
        waiting.go();
        let output = waiting.finish();
        (attached.finish().1, String::from_utf8(output.stdout).unwrap())
    }
}

/// Each call of `nap` lasts at least as long as it says, and ends before the next begins, or the end of the program.
/// Returns which one is not timed.
fn compare(recording: &Recording, told: &str) -> Result<(), String> {
    let words = told.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let time = |word: &str| word.parse::<u64>().unwrap();
    let (mut naps, mut end) = (Vec::new(), 0);
    for line in words {
        match line[..] {
            ["nap", from, to] => naps.push((time(from), time(to))),
            ["end", at] => end = time(at),
            _ => {}
        }
    }
    let region = recording.regions().iter().find(|region| region.name == "nap").expect("it is traced").id;
    let mut calls: Vec<&Call> = recording.calls().filter(|call| call.region == region).collect();
    calls.sort_by_key(|call| call.start);
    assert_eq!(calls.len(), naps.len());
    let next = naps.iter().skip(1).map(|&(from, _)| from).chain([end]);
    for ((number, (call, &(from, to))), next) in calls.iter().zip(&naps).enumerate().zip(next) {
        let Some(duration) = call.duration else { return Err(format!("call {number} of {}: {told}", naps.len())) };
        let recorded = call.start.0..=call.start.0 + duration;
        assert!(
            recorded.contains(&from) && recorded.contains(&to) && *recorded.end() <= next,
            "call {number}: {recorded:?} is not {from} to {to}, before {next}"
        );
    }
    Ok(())
}

/// By `run` and by `attach`, compiled in each of these ways.
fn check(text: &str, ways: &[&[&str]]) {
    let Some(_turn) = Turn::take().filter(|_| installed(&["cc"])) else { return };
    for flags in ways {
        let program = Program::of(text, flags);
        let options = ["--lib".to_owned(), program.0.path().join("libnap.so").display().to_string()];
        for record in [Program::run, Program::attach] {
            in_one_of_some_tries(TRIES, || {
                let (recording, told) = record(&program, &options);
                compare(&recording, &told)
            });
        }
    }
}

/// Ways to compile in which calls stay calls.
const WAYS: [&[&str]; 5] = [
    &["-O0"],
    &["-O1", "-fno-optimize-sibling-calls"],
    &["-O2", "-fno-optimize-sibling-calls"],
    &["-O1", "-no-pie", "-fno-optimize-sibling-calls"],
    &["-O1", "-fno-plt", "-fno-optimize-sibling-calls"],
];

#[test]
fn a_call_is_the_last_thing_that_main_does() {
    check("int main(int argc, char **argv) { begin(argc); nap(400000); return 0; }", &WAYS);
}

#[test]
fn a_call_is_the_last_thing_that_a_function_does() {
    let text = "static __attribute__((noinline)) void last(void) { beat(1); nap(400000); }
        static __attribute__((noinline)) int same(int n) { return nap(n); }
        int main(int argc, char **argv) { begin(argc); last(); same(400000); return beat(0) - 1; }";
    check(text, &WAYS);
}

#[test]
fn each_call_of_a_function_that_only_returns_comes_from_another_place() {
    // The first one lasts until the site is there.
    let calls: String = (0..27)
        .map(|n| if n == 0 { 400_000 } else { 2_000 })
        .map(|us| format!("s += f({us}); __asm__ volatile(\"\" ::: \"memory\"); "))
        .collect();
    let text = format!(
        "__attribute__((noinline)) long f(long n) {{ return nap(n) + 1; }}
        int main(int argc, char **argv) {{ long s = 0; begin(argc); {calls} return s < 0; }}"
    );
    check(&text, &[&["-O1"], &["-O2", "-no-pie"]]);
}

/// The thread waits for its return site.
#[test]
fn the_first_call_from_a_place_that_nobody_knew_is_timed() {
    const CALLS: usize = 100;
    let Some(_turn) = Turn::take().filter(|_| installed(&["cc"])) else { return };
    let calls = "(*f)(300); __asm__ volatile(\"\" ::: \"memory\"); ".repeat(CALLS);
    let text = format!(
        "static int (*volatile f)(int) = nap; int main(int argc, char **argv) {{ begin(argc); {calls} return 0; }}"
    );
    let program = Program::of(&text, &["-O1"]);
    let options = ["--lib".to_owned(), program.0.path().join("libnap.so").display().to_string()];
    for record in [Program::run, Program::attach] {
        in_one_of_some_tries(TRIES, || {
            let (recording, _) = record(&program, &options);
            let waited = recording.summary().return_sites.waited;
            let can_wait = recording.can_wait();
            assert_eq!((recording.calls().count(), waited > 0), (CALLS, can_wait));
            are_timed(&recording, CALLS * 3 / 4)
        });
    }
}

/// Whether so many calls are timed, if threads wait.
fn are_timed(recording: &Recording, least: usize) -> Result<(), String> {
    let timed = recording.calls().filter(|call| call.duration.is_some()).count();
    let waited = recording.summary().return_sites.waited;
    match recording.can_wait() && timed < least {
        true => Err(format!("{timed}, waited {waited} ns")),
        false => Ok(()),
    }
}

/// With one call of a function, those behind it get their sites: the thread does not wait at each.
#[test]
fn a_plugin_calls_from_a_thousand_places_once_each() {
    const CALLS: usize = 1000;
    let Some(_turn) = Turn::take().filter(|_| installed(&["cc"])) else { return };
    let text = r#"#include <dlfcn.h>
        int main(int argc, char **argv)
        {
            void *plugin;

            begin(argc);
            plugin = dlopen("plugin.so", RTLD_NOW);
            return plugin ? ((int (*)(int))dlsym(plugin, "run"))(1) : puts(dlerror());
        }"#;
    let program = Program::of(text, &["-O1", "-Wl,-rpath,$ORIGIN"]);
    let folder = program.0.path();
    let library = folder.join("libnap.so").display().to_string();
    let calls: String = (0..CALLS).map(|n| format!("if (x > {n}) return n; usleep(50); n += beat(x); ")).collect();
    let plugin =
        format!("int beat(int); int usleep(unsigned); int run(int x) {{ int n = 0; x = -x; {calls} return 0; }}");
    compile_text(folder, &plugin, "plugin.so", &["-O1", "-shared", "-fPIC", &library]);
    let options = ["--lib", &library, "--func", "beat"].map(str::to_owned);
    for record in [Program::run, Program::attach] {
        in_one_of_some_tries(TRIES, || {
            let (recording, told) = record(&program, &options);
            assert_eq!(recording.calls().count(), CALLS, "{told}");
            are_timed(&recording, CALLS / 2)
        });
    }
}

/// Others come along behind an assertion all the time, and nobody returns there.
#[test]
fn calls_that_loops_pass_by_have_no_site_until_they_happen() {
    let Some(_turn) = Turn::take().filter(|_| installed(&["cc"])) else { return };
    let text = r#"int main(int argc, char **argv)
        {
            volatile long rounds = 300000;
            long n, sum = 0;

            begin(argc);
            for (n = 0; n < rounds; n++) {
                __asm__ volatile("test %0, %0; jns 1f; mov %0, %%rdi; call beat@PLT; 1: nop" : : "r"(n)
                                 : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory");
                sum += n;
            }
            return beat(sum & 7) > 8;
        }"#;
    let program = Program::of(text, &["-O2", "-mno-red-zone"]);
    let options = ["--lib".to_owned(), program.0.path().join("libnap.so").display().to_string()];
    for record in [Program::run, Program::attach] {
        let (recording, _) = record(&program, &options);
        let calls: Vec<&Call> = recording.calls().collect();
        assert!(matches!(calls[..], [call] if call.duration.is_some()), "{calls:?}");
        let in_vain = recording.summary().return_sites.unmatched;
        assert!(!recording.can_wait() || in_vain < 100, "{in_vain}");
    }
}

#[test]
fn main_is_timed_though_it_is_called_once_and_through_a_pointer() {
    let Some(_turn) = Turn::take().filter(|_| installed(&["cc"])) else { return };
    let text = "int main(int argc, char **argv) { begin(argc); beat(1); nap(1000); return beat(0) - 1; }";
    for flags in [&["-O0"][..], &["-O2"], &["-O1", "-no-pie"]] {
        let program = Program::of(text, flags);
        let library = program.0.path().join("libnap.so").display().to_string();
        let options = ["--lib", "exe", "--lib", &library, "--func", "main", "--func", "nap"].map(str::to_owned);
        let (recording, told) = program.run(&options);
        compare(&recording, &told).unwrap();
        let region = recording.regions().iter().find(|region| region.name == "main").expect("it is traced").id;
        let calls: Vec<&Call> = recording.calls().filter(|call| call.region == region).collect();
        assert!(
            matches!(calls[..], [call] if call.duration.is_some_and(|time| time > 1_000_000)),
            "{flags:?}: {calls:?}"
        );
    }
}

/// They are stopped until they have probes.
#[test]
fn children_that_call_at_once_miss_nothing() {
    const CHILDREN: usize = 20;
    const CALLS: usize = 50;
    let Some(_turn) = Turn::take().filter(|_| installed(&["cc"])) else { return };
    let text = format!(
        r#"
        #include <sys/wait.h>
        int main(int argc, char **argv)
        {{
            int i, n = 0;

            begin(argc);
            for (i = 0; i < {CHILDREN}; i++) {{
                if (!fork()) {{
                    for (i = 0; i < {CALLS}; i++)
                        n = beat(n);
                    _exit(0);
                }}
                wait(NULL);
            }}
            return beat(n) > 1;
        }}"#
    );
    let program = Program::of(&text, &["-O1"]);
    let options = ["--lib".to_owned(), program.0.path().join("libnap.so").display().to_string()];
    for (record, follow) in [(Program::run as fn(&Program, &[String]) -> _, &[][..]), (Program::attach, &["--follow"])]
    {
        let follow = follow.iter().map(|&option: &&str| option.to_owned()).collect::<Vec<_>>();
        in_one_of_some_tries(TRIES, || {
            let (recording, _) = record(&program, &[&options[..], &follow].concat());
            let whole = (recording.calls().count() - 1) / CALLS;
            let windows = recording.summary().blind_windows as usize;
            assert!(whole + windows >= CHILDREN, "{whole} whole, {windows} blind windows");
            let are_enough = !recording.can_wait() || whole >= CHILDREN * 3 / 4;
            are_enough.then_some(()).ok_or_else(|| format!("{whole} whole"))
        });
    }
}

/// Of the C library, thousands of functions: a child is stopped until all have their probes.
#[test]
fn children_that_execute_a_program_miss_no_call_of_the_c_library() {
    const CHILDREN: usize = 20;
    let Some(_turn) = Turn::take().filter(|_| installed(&["cc"])) else { return };
    let text = format!(
        r#"
        #include <sys/wait.h>
        int main(int argc, char **argv)
        {{
            int i;

            begin(argc);
            for (i = 0; i < {CHILDREN}; i++) {{
                if (!fork()) {{
                    execl("/bin/true", "true", (char *)0);
                    _exit(1);
                }}
                wait(NULL);
            }}
            return 0;
        }}"#
    );
    let program = Program::of(&text, &["-O1"]);
    let options = ["--lib".to_owned(), "libc.so.6".to_owned()];
    in_one_of_some_tries(TRIES, || {
        let (recording, _) = program.run(&options);
        let region = recording.regions().iter().find(|region| region.name == "execl").unwrap().id;
        let executed = recording.calls().filter(|call| call.region == region).count();
        let windows = recording.summary().blind_windows as usize;
        assert!(executed + windows >= CHILDREN, "{executed} have called, {windows} blind windows");
        let misses_none = !recording.can_wait() || (executed == CHILDREN && windows == 0);
        misses_none.then_some(()).ok_or_else(|| format!("{executed} have called, {windows} blind windows"))
    });
}

#[test]
fn each_of_several_processes_of_a_program_has_its_sites_ahead() {
    let Some(_turn) = Turn::take().filter(|_| installed(&["cc"])) else { return };
    let text = r#"
        #include <sys/wait.h>
        int main(int argc, char **argv)
        {
            int i;

            if (argc > 1) {
                if (beat(0) != 1)
                    puts("no");
                return 0;
            }
            begin(1);
            for (i = 0; i < 6; i++) {
                if (!fork()) {
                    execl(argv[0], argv[0], "child", NULL);
                    _exit(1);
                }
            }
            while (wait(NULL) > 0)
                ;
            return 0;
        }"#;
    let program = Program::of(text, &["-O1", "-fno-optimize-sibling-calls"]);
    let options = ["--lib".to_owned(), program.0.path().join("libnap.so").display().to_string()];
    let (recording, _) = program.run(&options);
    let region = recording.regions().iter().find(|region| region.name == "beat").expect("it is traced").id;
    let calls: Vec<&Call> = recording.calls().filter(|call| call.region == region).collect();
    assert_eq!(calls.len(), 6);
    assert!(calls.iter().all(|call| call.duration.is_some()), "{calls:?}");
}

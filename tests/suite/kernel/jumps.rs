//! Control that leaves functions by other ways than a return, and other stacks than the thread's.

use std::ops::RangeInclusive;
use std::process::Command;

use rtrace_model::Ending;

use crate::common::rtrace;
use crate::common::scenario::{Scenario, Truth};
use crate::common::skip::Turn;
use crate::common::spans::assert_left_soon;
use crate::common::target::compile_texts;
use crate::common::tree::Forest;
use crate::common::truth;

#[test]
fn longjmp_over_calls() {
    Scenario::new("jumps", "long_jumps").run();
}

/// Long enough for return sites to be judged by their hits.
#[test]
fn longjmp_over_calls_again_and_again() {
    Scenario::new("jumps", "long_jumps_for_a_second").run();
}

#[test]
fn calls_deeper_than_those_that_a_longjmp_left() {
    Scenario::new("jumps", "deeper_after_long_jumps").run();
}

#[test]
fn siglongjmp_out_of_a_handler_over_calls() {
    Scenario::new("jumps", "signal_jumps").run();
}

#[test]
fn signal_handlers_call() {
    Scenario::new("jumps", "signals").run();
}

#[test]
fn signal_handlers_call_on_a_stack_below() {
    Scenario::new("jumps", "signals_below").run();
}

#[test]
fn signal_handlers_call_on_a_stack_above() {
    Scenario::new("jumps", "signals_above").run();
}

/// How many signals come is another number in every run, so only one run is looked at.
#[test]
fn signals_at_any_time() {
    let scenario = Scenario::new("jumps", "timer");
    let Some(_turn) = Turn::take() else { return };
    let target = scenario.target();
    let (output, recording) = rtrace::run(&target.selection(), &target.command("timer"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (told, recorded) = (truth::trees(&output.stdout), recording.trees());
    assert_eq!(recorded.keys().collect::<Vec<_>>(), told.keys().collect::<Vec<_>>());
    for (thread, calls) in told {
        assert_eq!(recorded[&thread].counts(), calls.counts());
    }
}

#[test]
fn coroutines_on_a_stack_below() {
    Scenario::new("jumps", "coroutine_below").run();
}

#[test]
fn coroutines_on_a_stack_above() {
    Scenario::new("jumps", "coroutine_above").run();
}

#[test]
fn coroutines_that_stop_inside_calls() {
    Scenario::new("jumps", "interleaved").truth(Truth::Counts).run();
}

#[test]
fn what_returns_on_another_thread_is_not_timed() {
    let Some(recording) = Scenario::new("jumps", "coroutine_changes_threads").truth(Truth::Counts).run() else {
        return;
    };
    assert!(recording.calls().all(|call| call.ending == Ending::Unseen));
}

#[test]
fn coroutines_whose_stacks_share_a_mapping_do_not_call_each_other() {
    Scenario::new("jumps", "coroutines_in_one_mapping").run();
}

/// Who lands goes on for 20 ms, once it has said since when.
#[test]
fn a_call_that_is_left_ends_with_the_jump() {
    let Some((output, recording)) = Scenario::new("ways", "long_jumps_over_callers").run_with_output() else { return };
    assert_left_soon(&recording, &output.stdout);
}

#[test]
fn longjmp_is_traced_itself() {
    let Some(_turn) = Turn::take() else { return };
    let target = Scenario::new("jumps", "long_jumps").target();
    let options = ["--lib", "libc.so.6", "--func", "visit", "--func", "leaf", "--func", "*longjmp"];
    let options = [target.selection(), options.map(str::to_owned).to_vec()].concat();
    let (output, recording) = rtrace::run(&options, &target.command("long_jumps"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let jump = recording.regions().iter().find(|region| region.name.ends_with("longjmp")).unwrap();
    let told = Forest::parse(&format!("visit*100(visit!(visit!(leaf {}!)) leaf)", jump.name));
    let recorded: Vec<Forest> = recording.trees().into_values().collect();
    let [recorded] = &recorded[..] else { panic!("{} threads", recorded.len()) };
    let recorded = recorded.with_unseen_as(&told).unwrap_or_else(|| panic!("{recorded}"));
    assert_eq!(recorded.to_string(), told.to_string());
}

/// Calls of 200 that return, where every other one is left. The first may meet no return site yet.
const FIRST_MAY_MISS: RangeInclusive<usize> = 99..=100;

/// Of 200 calls of a function that ends in a jump through a pointer, the program leaves every other one in silence. The
/// next has its slot and its return address. So many have returned as far as rtrace can know.
fn leaves_every_other_call(program: &str, expected: RangeInclusive<usize>) {
    const LIBRARY: &str = "volatile int passed; void pass(void (*f)(void)) { passed++; f(); }";
    let Some(_turn) = Turn::take() else { return };
    let texts: [(&str, &str, &[&str]); 2] =
        [(LIBRARY, "libpass.so", &["-O2", "-shared", "-fPIC"]), (program, "program", &["-O2", "-lpass"])];
    let program = Command::new(compile_texts(&texts).join("program"));
    let (output, recording) = rtrace::run(&["--lib".to_owned(), "libpass.so".to_owned()], &program);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let endings: Vec<Ending> = recording.calls().map(|call| call.ending).collect();
    assert_eq!(endings.len(), 200);
    let returned = endings.iter().filter(|&&ending| ending == Ending::Returned).count();
    assert!(expected.contains(&returned), "{returned} {}", String::from_utf8_lossy(&output.stderr));
    assert!(recording.calls().all(|call| call.parent == 0));
}

#[test]
fn what_a_jump_of_the_program_leaves_has_not_returned() {
    leaves_every_other_call(
        "void pass(void (*)(void)); static void *buffer[5]; static int round;
        static void leave(void) { if (round % 2) __builtin_longjmp(buffer, 1); }
        __attribute__((noipa)) static void behind(void) {}
        __attribute__((noinline)) static void once(void) { pass(leave); behind(); __asm__ volatile(\"\"); }
        int main(void) { for (round = 0; round < 200; round++) if (!__builtin_setjmp(buffer)) once(); return 0; }",
        FIRST_MAY_MISS,
    );
}

/// The jump comes to where the call would have returned, or who called its caller.
#[test]
fn what_a_jump_leaves_has_not_returned_where_the_two_ways_join() {
    let program = |once: &str| {
        format!(
            "void pass(void (*)(void)); static void *buffer[5]; static volatile int round, left, back;
            static void leave(void) {{ if (round % 2) __builtin_longjmp(buffer, 1); }}
            __attribute__((noinline)) static void once(void) {{ pass(leave); back++; }}
            int main(void) {{
                for (round = 0; round < 200; round++) if (!__builtin_setjmp(buffer)) {once}; else left++;
                return left != 100;
            }}"
        )
    };
    leaves_every_other_call(&program("once()"), 0..=0);
    leaves_every_other_call(&program("pass(leave)"), 0..=0);
}

#[test]
fn what_a_coroutine_that_never_goes_on_calls_has_not_returned() {
    leaves_every_other_call(
        "#include <sys/mman.h>
        #include <ucontext.h>
        void pass(void (*)(void)); static ucontext_t caller, coroutine; static int round;
        static void leave(void) { if (round % 2) swapcontext(&coroutine, &caller); }
        static void body(void) { pass(leave); __asm__ volatile(\"\"); swapcontext(&coroutine, &caller); }
        int main(void) {
            coroutine.uc_stack.ss_sp = mmap(0, 65536, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            void *stack = coroutine.uc_stack.ss_sp;
            for (round = 0; round < 200; round++) {
                getcontext(&coroutine); coroutine.uc_stack.ss_sp = stack; coroutine.uc_stack.ss_size = 65536;
                makecontext(&coroutine, body, 0); swapcontext(&caller, &coroutine);
            }
            return 0;
        }",
        FIRST_MAY_MISS,
    );
}

/// A function that ends in a jump to a second one is left before that by `leave`. Then the second is called. Gives what is
/// recorded of the first.
fn leaves_the_first(program: &str) -> Option<Vec<Ending>> {
    const LIBRARY: &str = "volatile int sink;
        __attribute__((noipa)) void second(void (*hook)(void)) { for (int i = 0; i < 3; i++) sink = i; }
        void first(void (*hook)(void)) { hook(); sink++; second(hook); }";
    let _turn = Turn::take()?;
    let shared = ["-O2", "-shared", "-fPIC", "-fexceptions", "-Wl,-Bsymbolic"];
    let texts: [(&str, &str, &[&str]); 2] =
        [(LIBRARY, "libjumping.so", &shared), (program, "program", &["-O2", "-w", "-ljumping"])];
    let program = Command::new(compile_texts(&texts).join("program"));
    let (output, recording) = rtrace::run(&["--lib".to_owned(), "libjumping.so".to_owned()], &program);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let regions = recording.regions();
    let calls_of = |name: &str| {
        let region = regions.iter().find(|region| region.name == name).unwrap().id;
        recording.calls().filter(move |call| call.region == region)
    };
    let first: Vec<Ending> = calls_of("first").map(|call| call.ending).collect();
    let nested = calls_of("second").filter(|call| call.parent != 0).count();
    let returned = first.iter().filter(|&&ending| ending == Ending::Returned).count();
    assert_eq!(nested, returned, "{}", String::from_utf8_lossy(&output.stderr));
    Some(first)
}

#[test]
fn a_function_that_was_left_has_not_jumped_to_the_next_one() {
    let by_jump = leaves_the_first(
        "void first(void (*)(void)), second(void (*)(void)); static void *buffer[5]; static volatile int left;
        static void leave(void) { __builtin_longjmp(buffer, 1); }
        __attribute__((noipa)) static void behind(void) {}
        __attribute__((noinline)) static void call(void (*function)(void (*)(void))) {
            if (!__builtin_setjmp(buffer)) { function(leave); behind(); } else left++;
        }
        int main(void) { for (int i = 0; i < 100; i++) { call(first); call(second); } return left != 100; }",
    );
    let by_switch = leaves_the_first(
        "#include <sys/mman.h>
        #include <ucontext.h>
        void first(void (*)(void)), second(void (*)(void)); static ucontext_t caller, coroutine;
        static void (*volatile function)(void (*)(void));
        static void leave(void) { swapcontext(&coroutine, &caller); }
        static void body(void) { function(leave); __asm__ volatile(\"\"); swapcontext(&coroutine, &caller); }
        int main(void) {
            void *stack = mmap(0, 65536, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            for (int i = 0; i < 200; i++) {
                function = i & 1 ? second : first;
                getcontext(&coroutine); coroutine.uc_stack.ss_sp = stack; coroutine.uc_stack.ss_size = 65536;
                makecontext(&coroutine, body, 0); swapcontext(&caller, &coroutine);
            }
            return 0;
        }",
    );
    for first in [by_jump, by_switch].into_iter().flatten() {
        assert_eq!(first.len(), 100);
        assert!(!first.contains(&Ending::Returned));
    }
}

/// The call enters no other function.
#[test]
fn a_function_that_jumps_where_others_are_left_is_timed() {
    let Some(first) = leaves_the_first(
        "void first(void (*)(void)); static void *buffer[5]; static volatile int round, left, kept;
        static void leave(void) { if (round % 2) __builtin_longjmp(buffer, 1); kept++; }
        __attribute__((noipa)) static void behind(void) {}
        __attribute__((noinline)) static void call(void) {
            if (!__builtin_setjmp(buffer)) { first(leave); behind(); } else left++;
        }
        int main(void) { for (round = 0; round < 200; round++) call(); return left != 100; }",
    ) else {
        return;
    };
    let count = |meant| first.iter().filter(|&&ending| ending == meant).count();
    assert_eq!((count(Ending::Returned), count(Ending::Unwound)), (100, 100));
}

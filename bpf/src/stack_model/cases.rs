//! Known situations, each with the exact records it must give.
//!
//! A case is a script of hits, 10 ns apart: `f+80` enters function `f` with its return address at
//! slot 80, `f-80` exits it. Before it stands the stack if it is not the thread's own (`signal:`,
//! `other:`, `third:`), behind it `u` for a function with a uretprobe, `e` for one that is
//! entry-only and `i` for one that is left at once, and `t` for one that is reached by a tail call,
//! which leaves the slot as it is; other calls write a return address of their own to it. `w80`
//! stands for untraced code that writes to the address 80, `z80` for one that writes zeros, `h80` for
//! another tracer that hooks the return there, `x80` for a page that goes out. `end` ends the thread.

use crate::wire::{CallRecord, EndingCode, LossCode, PolicyCode};

use super::{FRAMES, FRAMES_NEAR, HOOKED_MAX, Hit, OTHER, OWN, SIGNAL, TRAMPOLINE, Thread};

const TICK: u64 = 10;

struct Script {
    thread: Thread,
    now: u64,
    exits_without_enter: u32,
}

impl Script {
    fn run(text: &str) -> Script {
        Script::run_on(Thread::new(), text)
    }

    fn run_on(thread: Thread, text: &str) -> Script {
        let mut script = Script { thread, now: 0, exits_without_enter: 0 };
        text.split_ascii_whitespace().for_each(|token| script.step(token));
        script
    }

    fn step(&mut self, token: &str) {
        self.now += TICK;
        if token == "end" {
            return self.thread.abandon(self.now);
        }
        if token.as_bytes()[1].is_ascii_digit() {
            let address = token[1..].parse().unwrap();
            return match token.as_bytes()[0] {
                b'w' => self.thread.memory.write(address, self.now),
                b'h' => self.thread.memory.write(address, TRAMPOLINE),
                b'z' => self.thread.memory.write(address, 0),
                _ => self.thread.memory.take_out(address),
            };
        }
        let (stack, token) = token.split_once(':').unwrap_or(("own", token));
        let stack = match stack {
            "own" => OWN,
            "signal" => SIGNAL,
            "other" => OTHER | 1,
            "third" => OTHER | 2,
            _ => panic!("no such stack: {stack}"),
        };
        let digits = token[2..].trim_end_matches(char::is_alphabetic);
        let flags = &token[2 + digits.len()..];
        let hit = Hit { slot: digits.parse().unwrap(), stack, now: self.now };
        let region = u32::from(token.as_bytes()[0]);
        if token.as_bytes()[1] == b'-' {
            self.thread.memory.write(hit.slot, self.now);
            self.exits_without_enter += u32::from(!self.thread.exit(hit, region));
            return;
        }
        let policy = match flags.as_bytes().first() {
            Some(b'u') => PolicyCode::RT_POLICY_URETPROBE,
            Some(b'e') => PolicyCode::RT_POLICY_ENTRY_ONLY,
            Some(b'i') => PolicyCode::RT_POLICY_INSTANT,
            _ => PolicyCode::RT_POLICY_RET_SITE,
        };
        if !flags.ends_with('t') {
            self.thread.memory.write(hit.slot, self.now);
        }
        if self.thread.enter(hit, region, policy) && policy == PolicyCode::RT_POLICY_URETPROBE {
            self.thread.memory.write(hit.slot, TRAMPOLINE);
        }
    }
}

/// `function id<parent depth ending duration/child`
fn line(call: &CallRecord) -> String {
    let ending = match call.ending {
        EndingCode::RT_RETURNED => "returned",
        EndingCode::RT_UNWOUND => "unwound",
        EndingCode::RT_OPEN => "open",
        _ => "unseen",
    };
    let function = char::from_u32(call.region).unwrap();
    format!("{function} {}<{} {} {ending} {}/{}", call.id, call.parent, call.depth, call.duration, call.child)
}

/// Runs a script and compares the records in the order in which they leave.
#[track_caller]
fn check(script: &str, expected: &[&str]) {
    let script = Script::run(script);
    assert_eq!(script.thread.records().iter().map(line).collect::<Vec<_>>(), expected);
    assert_eq!(script.exits_without_enter, 0);
    assert!(script.thread.is_intact());
    assert!(script.thread.counts_well());
}

#[test]
fn nested_calls() {
    check(
        "a+100 b+80 b-80 c+80 d+60 d-60 c-80 a-100",
        &["b 2<1 1 returned 10/0", "d 4<3 2 returned 10/0", "c 3<1 1 returned 30/10", "a 1<0 0 returned 70/40"],
    );
}

#[test]
fn a_folded_call_has_a_record_if_one_that_it_made_has() {
    let mut thread = Thread::new();
    thread.fold(u32::from(b'b'));
    let script = Script::run_on(thread, "b+120 a+100 b+80 c+60i b-80 b+80 b-80 b+80 b+60 b-60 b-80 a-100 b-120");
    let recorded: Vec<_> = script.thread.records().iter().map(line).collect();
    assert_eq!(
        recorded,
        ["c 4<3 3 returned 0/0", "b 3<2 2 returned 20/0", "a 2<1 1 returned 100/60", "b 1<0 0 returned 120/100",]
    );
}

/// `b` loses its probes while a call of it runs, at 30, and may have ended when others are hit.
#[test]
fn a_call_whose_exit_goes_unseen_is_nobodys_caller_and_says_so() {
    let run = |text: &str| {
        let mut thread = Thread::new();
        thread.blind(u32::from(b'b'), 25);
        let script = Script::run_on(thread, text);
        assert!(script.thread.counts_well());
        let records = script.thread.records().iter().map(line).collect::<Vec<_>>();
        (records, script.exits_without_enter)
    };
    // Its slot is as it was: it could still be running.
    let expected = ["b 2<1 1 unseen 0/0", "c 3<1 1 returned 10/0", "a 1<0 0 returned 40/10"];
    assert_eq!(run("a+100 b+80 c+60 c-60 a-100"), (expected.map(str::to_owned).to_vec(), 0));
    // Its exit comes after all, or that of a later call.
    let (records, _) = run("a+100 b+80 b-80 a-100");
    assert_eq!(records, ["b 2<1 1 unseen 0/0", "a 1<0 0 returned 30/0"]);
    // Later calls of it are seen.
    let (records, exits) = run("b+80 c+60 b+40 d+20 d-20 b-40 c-60 b-80 end");
    let expected = ["b 1<0 0 unseen 0/0", "d 4<3 2 returned 10/0", "b 3<2 1 returned 30/10", "c 2<0 0 returned 50/30"];
    assert_eq!((records, exits), (expected.map(str::to_owned).to_vec(), 1));
    assert_eq!(run("b+80 end").0, ["b 1<0 0 unseen 0/0"]);
}

/// Enters `depth` calls of `policy` in each other, then leaves those that wait for an exit.
fn recurse(thread: &mut Thread, depth: u64, policy: PolicyCode) {
    let hit = |level: u64, now| Hit { slot: 1_000_000 - 16 * level, stack: OWN, now };
    let waiting: Vec<u64> = (0..depth).filter(|&level| thread.enter(hit(level, level), 1, policy)).collect();
    for (step, &level) in (0..).zip(waiting.iter().rev()) {
        assert!(thread.exit(hit(level, depth + step), 1));
    }
}

/// The records of the outermost `recorded` calls of a recursion, the innermost first.
fn assert_recursion(records: &[CallRecord], recorded: u64, depth: u64) {
    assert_eq!(records.len() as u64, recorded);
    let mut callee = 0;
    for (step, call) in (0..).zip(records) {
        let level = recorded - 1 - step;
        assert_eq!((call.id, call.parent, u64::from(call.depth)), (level + 1, level, level));
        assert_eq!(call.ending, EndingCode::RT_RETURNED);
        assert_eq!((call.start, call.duration, call.child), (level, depth + step - level, callee));
        callee = call.duration;
    }
}

#[test]
fn recursion_beyond_the_near_frames() {
    for depth in [150, 1_000] {
        let mut thread = Thread::new();
        recurse(&mut thread, depth, PolicyCode::RT_POLICY_RET_SITE);
        assert_recursion(thread.records(), depth, depth);
        assert!(thread.is_intact());
        assert!(thread.counts_well());
    }
}

#[test]
fn calls_too_deep_are_lost_and_the_others_exact() {
    let mut thread = Thread::new();
    let depth = u64::from(FRAMES) + 10;
    recurse(&mut thread, depth, PolicyCode::RT_POLICY_RET_SITE);
    assert_recursion(thread.records(), u64::from(FRAMES), depth);
    assert_eq!(thread.lost(LossCode::RT_LOSS_TOO_DEEP), 10);
    assert_eq!(thread.calls(), depth);
    assert!(thread.is_intact());
    assert!(thread.counts_well());
}

#[test]
fn without_memory_for_deep_frames_their_calls_are_lost() {
    let mut thread = Thread::short_of_memory();
    recurse(&mut thread, 70, PolicyCode::RT_POLICY_RET_SITE);
    assert_recursion(thread.records(), u64::from(FRAMES_NEAR), 70);
    assert_eq!(thread.lost(LossCode::RT_LOSS_NO_MEMORY), 70 - u64::from(FRAMES_NEAR));
    assert_eq!(thread.lost(LossCode::RT_LOSS_TOO_DEEP), 0);
}

#[test]
fn longjmp_over_all_frames_there_can_be() {
    let mut thread = Thread::new();
    let enter = |thread: &mut Thread, slot| {
        thread.enter(Hit { slot, stack: OWN, now: 0 }, 1, PolicyCode::RT_POLICY_RET_SITE);
    };
    (0..u64::from(FRAMES)).for_each(|level| enter(&mut thread, 1_000_000 - 16 * level));
    enter(&mut thread, 1_000_016);
    let frames = thread.frames();
    assert_eq!(frames.iter().map(|frame| frame.call.parent).collect::<Vec<_>>(), [0]);
    assert!(thread.records().iter().all(|call| call.ending == EndingCode::RT_UNWOUND));
}

#[test]
fn returns_beyond_the_hooks_of_the_kernel_are_unseen() {
    let mut thread = Thread::new();
    let depth = u64::from(HOOKED_MAX) + 3;
    recurse(&mut thread, depth, PolicyCode::RT_POLICY_URETPROBE);
    let (unseen, returned) = thread.records().split_at(3);
    assert_eq!(
        unseen.iter().map(line).collect::<Vec<_>>(),
        ["\u{1} 57<56 56 unseen 0/0", "\u{1} 58<56 56 unseen 0/0", "\u{1} 59<56 56 unseen 0/0"]
    );
    assert_recursion(returned, u64::from(HOOKED_MAX), depth);
    assert_eq!(thread.hooked(), 0);
}

#[test]
fn hooks_are_kept_off_other_stacks() {
    check("other:a+900u signal:b+500u", &["a 1<0 0 unseen 0/0", "b 2<0 0 unseen 0/0"]);
}

#[test]
fn longjmp_over_three_frames_is_noticed_at_the_next_enter() {
    check(
        "a+100 b+90 c+80 d+70 e+95 e-95 a-100",
        &[
            "d 4<3 3 unwound 10/0",
            "c 3<2 2 unwound 20/10",
            "b 2<1 1 unwound 30/20",
            "e 5<1 1 returned 10/0",
            "a 1<0 0 returned 60/40",
        ],
    );
}

#[test]
fn longjmp_over_three_frames_is_noticed_at_the_next_exit() {
    check(
        "a+100 b+90 c+80 d+70 a-100",
        &["d 4<3 3 unwound 10/0", "c 3<2 2 unwound 20/10", "b 2<1 1 unwound 30/20", "a 1<0 0 returned 40/30"],
    );
}

#[test]
fn exception_caught_midway() {
    check(
        "a+100 b+90 c+80 d+70 e+85 e-85 b-90 a-100",
        &[
            "d 4<3 3 unwound 10/0",
            "c 3<2 2 unwound 20/10",
            "e 5<2 2 returned 10/0",
            "b 2<1 1 returned 50/30",
            "a 1<0 0 returned 70/50",
        ],
    );
}

#[test]
fn calls_left_by_an_exception_are_no_parents_of_deeper_ones() {
    for (b, c) in [("b+80", "c+60"), ("b+80u", "c+60u")] {
        check(
            &format!("a+100 {b} {c} w60 w80 d+40 d-40 a-100"),
            &["c 3<2 2 unwound 30/0", "b 2<1 1 unwound 40/30", "d 4<1 1 returned 10/0", "a 1<0 0 returned 70/50"],
        );
    }
}

#[test]
fn slots_not_written_to_since_an_exception_prove_nothing() {
    check("a+100 b+80 c+60 c-60 a-100", &["c 3<2 2 returned 10/0", "b 2<1 1 unwound 30/10", "a 1<0 0 returned 40/30"]);
}

#[test]
fn slots_that_cannot_be_read_prove_nothing() {
    check(
        "a+100 x100 b+80t w80 c+60 c-60 b-80 a-100",
        &["c 3<2 2 returned 10/0", "b 2<1 1 returned 40/10", "a 1<0 0 returned 70/40"],
    );
}

#[test]
fn slots_of_zeros_were_written_to_whether_there_is_a_trampoline_or_not() {
    for thread in [Thread::new(), Thread::without_trampoline()] {
        let script = Script::run_on(thread, "a+100 b+80 z80 c+60 c-60 a-100");
        let records: Vec<_> = script.thread.records().iter().map(line).collect();
        assert_eq!(records, ["b 2<1 1 unwound 20/0", "c 3<1 1 returned 10/0", "a 1<0 0 returned 50/30"]);
    }
}

#[test]
fn slots_hooked_by_others_prove_nothing() {
    check(
        "a+100 h100 b+80 h80 c+60 c-60 b-80 a-100",
        &["c 3<2 2 returned 10/0", "b 2<1 1 returned 40/10", "a 1<0 0 returned 70/40"],
    );
}

#[test]
fn exception_on_a_coroutine() {
    check(
        "other:a+900 other:b+880 other:c+860 w860 w880 other:d+840 other:d-840 other:a-900",
        &["c 3<2 2 unwound 30/0", "b 2<1 1 unwound 40/30", "d 4<1 1 returned 10/0", "a 1<0 0 returned 70/50"],
    );
}

#[test]
fn signal_after_an_exception_interrupts_what_goes_on() {
    check(
        "a+100 b+80 w80 signal:h+900 signal:h-900 a-100",
        &["b 2<1 1 unwound 20/0", "h 3<1 1 returned 10/0", "a 1<0 0 returned 50/30"],
    );
}

#[test]
fn tail_call_of_a_hooked_function_is_its_callee() {
    check(
        "a+100 b+80u c+80t c-80 b-80 a-100",
        &["c 3<2 2 returned 10/0", "b 2<1 1 returned 30/10", "a 1<0 0 returned 50/30"],
    );
}

#[test]
fn functions_on_one_slot_end_in_the_same_return() {
    check("b+80u c+80t b-80", &["c 2<1 1 returned 10/0", "b 1<0 0 returned 20/10"]);
}

#[test]
fn slot_in_use_again_after_a_longjmp() {
    check(
        "a+100u b+80u c+60 d+80 d-80 a-100",
        &["c 3<2 2 unwound 10/0", "b 2<1 1 unwound 20/10", "d 4<1 1 returned 10/0", "a 1<0 0 returned 50/30"],
    );
}

#[test]
fn tail_call_of_a_function_with_return_probes_follows_it() {
    check(
        "a+100 b+80 b-80 c+80 c-80 a-100",
        &["b 2<1 1 returned 10/0", "c 3<1 1 returned 10/0", "a 1<0 0 returned 50/20"],
    );
}

#[test]
fn signal_on_its_stack_counts_for_the_interrupted_call() {
    check(
        "a+100 signal:h+900 signal:i+880 signal:i-880 signal:h-900 a-100",
        &["i 3<2 2 returned 10/0", "h 2<1 1 returned 30/10", "a 1<0 0 returned 50/30"],
    );
}

#[test]
fn longjmp_out_of_a_signal_handler() {
    check(
        "a+100 b+80 signal:h+900 signal:i+880 c+90 c-90 a-100",
        &[
            "i 4<3 3 unwound 10/0",
            "h 3<2 2 unwound 20/10",
            "b 2<1 1 unwound 30/20",
            "c 5<1 1 returned 10/0",
            "a 1<0 0 returned 60/40",
        ],
    );
}

#[test]
fn longjmp_out_of_a_signal_handler_into_a_coroutine() {
    check(
        "other:a+500 signal:h+900 other:b+480 other:b-480 other:a-500",
        &["h 2<1 1 unwound 10/0", "b 3<1 1 returned 10/0", "a 1<0 0 returned 40/20"],
    );
}

#[test]
fn longjmp_out_of_a_signal_handler_is_noticed_at_the_next_signal() {
    check(
        "a+100 signal:h+900 signal:i+880 signal:h+900 signal:h-900 a-100",
        &["i 3<2 2 unwound 10/0", "h 2<1 1 unwound 20/10", "h 4<1 1 returned 10/0", "a 1<0 0 returned 50/30"],
    );
}

#[test]
fn signal_handler_on_the_own_stack() {
    check("a+1000 h+400 h-400 a-1000", &["h 2<1 1 returned 10/0", "a 1<0 0 returned 30/10"]);
}

#[test]
fn signal_beside_a_waiting_coroutine() {
    check(
        "a+100 other:b+500 c+80 c-80 signal:h+900 signal:h-900 other:b-500 a-100",
        &["c 3<1 1 returned 10/0", "h 4<1 1 returned 10/0", "b 2<0 0 returned 50/0", "a 1<0 0 returned 70/20"],
    );
}

#[test]
fn coroutine_outlives_its_creator_and_interleaves() {
    check(
        "a+100 other:f+500 b+80 other:g+480 b-80 a-100 c+100 other:g-480 c-100 other:f-500",
        &[
            "b 3<1 1 returned 20/0",
            "a 1<0 0 returned 50/20",
            "g 4<2 1 returned 40/0",
            "c 5<0 0 returned 20/0",
            "f 2<0 0 returned 80/40",
        ],
    );
}

#[test]
fn coroutines_above_and_below_in_one_mapping() {
    check(
        "other:f+500 other:p+900 other:g+480 other:q+880 other:g-480 other:q-880 other:p-900 other:f-500",
        &["g 3<1 1 returned 20/0", "q 4<2 1 returned 20/0", "p 2<0 0 returned 50/20", "f 1<0 0 returned 70/20"],
    );
}

#[test]
fn exceptions_on_a_coroutine_do_not_pile_up() {
    let mut script = Script::run("other:a+900");
    for _ in 0..2 * FRAMES {
        for token in ["other:b+880", "other:c+860", "other:d+840"] {
            script.step(token);
        }
    }
    assert_eq!(script.thread.frames().len(), 4);
    assert!(script.thread.frames().iter().all(|frame| frame.call.depth < 4));
    assert_eq!(script.thread.lost(LossCode::RT_LOSS_TOO_DEEP), 0);
}

#[test]
fn exceptions_under_a_coroutine_that_returns_do_not_pile_up() {
    let mut script = Script::run("other:z+920");
    for _ in 0..2 * FRAMES {
        for token in ["other:a+900", "other:b+880", "other:c+860", "other:a-900"] {
            script.step(token);
        }
    }
    assert_eq!(script.thread.frames().len(), 3);
    let (returned, depths): (Vec<_>, Vec<_>) = script
        .thread
        .records()
        .iter()
        .filter(|call| call.region == 'a' as u32)
        .map(|call| (call.parent, call.depth))
        .unzip();
    assert!(returned.iter().all(|&parent| parent == 1) && depths.iter().all(|&depth| depth == 1));
}

#[test]
fn exit_without_enter_changes_nothing() {
    let script = Script::run("b-80 a+100 b-80 c-100 a-100 a-100");
    assert_eq!(script.exits_without_enter, 4);
    assert_eq!(script.thread.records().iter().map(line).collect::<Vec<_>>(), ["a 1<0 0 returned 30/0"]);
}

#[test]
fn entry_only_functions_are_unseen_and_no_parents() {
    check("a+100 b+80e c+60 c-60 a-100", &["b 2<1 1 unseen 0/0", "c 3<1 1 returned 10/0", "a 1<0 0 returned 40/10"]);
}

#[test]
fn functions_left_at_once_return_at_once() {
    check("a+100 b+80i a-100", &["b 2<1 1 returned 0/0", "a 1<0 0 returned 20/0"]);
}

#[test]
fn calls_that_run_when_the_thread_ends_are_open() {
    check(
        "a+100 other:f+500 b+80u signal:h+900 end",
        &["h 4<3 2 open 10/0", "b 3<1 1 open 20/10", "f 2<0 0 open 30/0", "a 1<0 0 open 40/20"],
    );
}

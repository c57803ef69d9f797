//! Who called whom: known situations, each with the exact records it must give.

use crate::wire::{CallRecord, EndingCode, LossCode, PolicyCode, TailsCode, UntimedCode};

use super::script::{Script, check, check_with_missed};
use super::{FRAMES, FRAMES_NEAR, Function, Hit, LEFT_MAX, OWN, TAILS_MAX, Thread};

#[test]
fn nested_calls() {
    check(
        "a+100 b+80 b-80 c+80 d+60 d-60 c-80 a-100",
        &["a 1<0 0 returned 70/40", "b 2<1 1 returned 10/0", "c 3<1 1 returned 30/10", "d 4<3 2 returned 10/0"],
    );
}

#[test]
fn a_folded_call_has_a_record_if_one_that_it_made_has() {
    let mut thread = Thread::new();
    thread.fold(u32::from(b'b'));
    let script = Script::run_on(thread, "b+120 a+100 b+80 c+60/e b-80 b+80 b-80 b+80 b+60 b-60 b-80 a-100 b-120");
    assert_eq!(
        script.lines(),
        ["b 1<0 0 returned 120/100", "a 2<1 1 returned 100/60", "b 3<2 2 returned 20/0", "c 4<3 3 unseen 0/0"]
    );
}

#[test]
fn a_folded_call_has_a_record_if_one_that_it_made_was_left() {
    let mut thread = Thread::new();
    thread.fold(u32::from(b'b'));
    let mut script = Script::run_on(thread, "b+120 a+100 b-120");
    script.end();
    assert_eq!(script.lines(), ["b 1<0 0 returned 20/10", "a 2<1 1 unwound 10/0"]);
}

const FUNCTION: Function = Function {
    region: 1,
    policy: PolicyCode::RT_POLICY_RETURN_SITE,
    tails: TailsCode::RT_TAILS_NEVER,
    laps: false,
    pops: 0,
};

/// The slot of a level of a recursion, and what it holds.
fn level_slot(thread: &Thread, level: u64) -> (u64, u64) {
    let (slot, word) = (1_000_000 - 16 * level, 0x40_0000);
    thread.world.write(slot, word);
    (slot, word)
}

fn enter(thread: &mut Thread, level: u64, now: u64) {
    let (slot, _) = level_slot(thread, level);
    thread.enter(Hit { slot, stack: OWN, now }, FUNCTION);
}

/// Enters `depth` calls in each other, then returns from all. Those beyond `known` are not on the stack.
fn recurse(thread: &mut Thread, depth: u64, known: u64) {
    (0..depth).for_each(|level| enter(thread, level, level));
    for (step, level) in (0..depth).rev().enumerate() {
        let (slot, word) = level_slot(thread, level);
        let hit = Hit { slot, stack: OWN, now: depth + step as u64 };
        assert_eq!(thread.arrive(hit, word, true, 0), level < known);
    }
}

/// The records of the outermost `recorded` calls of a recursion.
fn assert_recursion(thread: &Thread, recorded: u64, depth: u64) {
    let records: &[CallRecord] = thread.records();
    assert_eq!(records.len() as u64, recorded);
    let mut callee = 0;
    for (step, call) in (0..).zip(records) {
        let level = recorded - 1 - step;
        assert_eq!((call.id, call.parent, u64::from(call.depth)), (level + 1, level, level));
        assert_eq!(call.ending, EndingCode::RT_RETURNED);
        assert_eq!((call.start, call.duration, call.child), (level, 2 * (depth - level) - 1, callee));
        callee = call.duration;
    }
    assert!(thread.is_intact());
    assert!(thread.counts_well());
}

#[test]
fn recursion_beyond_the_near_frames() {
    for depth in [u64::from(FRAMES_NEAR), u64::from(FRAMES_NEAR) + 1, 150, u64::from(FRAMES)] {
        let mut thread = Thread::new();
        recurse(&mut thread, depth, depth);
        assert_recursion(&thread, depth, depth);
    }
}

#[test]
fn calls_too_deep_are_lost_and_the_others_exact() {
    let mut thread = Thread::new();
    let depth = u64::from(FRAMES) + 10;
    recurse(&mut thread, depth, FRAMES.into());
    assert_recursion(&thread, FRAMES.into(), depth);
    assert_eq!(thread.lost(LossCode::RT_LOSS_TOO_DEEP), 10);
    assert_eq!(thread.calls(), depth);
}

#[test]
fn without_memory_for_deep_frames_their_calls_are_lost() {
    let mut thread = Thread::short_of_memory();
    recurse(&mut thread, 70, FRAMES_NEAR.into());
    assert_recursion(&thread, FRAMES_NEAR.into(), 70);
    assert_eq!(thread.lost(LossCode::RT_LOSS_NO_MEMORY), 70 - u64::from(FRAMES_NEAR));
    assert_eq!(thread.lost(LossCode::RT_LOSS_TOO_DEEP), 0);
}

#[test]
fn longjmp_over_all_frames_there_can_be() {
    let mut thread = Thread::new();
    (1..=u64::from(FRAMES)).for_each(|level| enter(&mut thread, level, 0));
    enter(&mut thread, 0, 0);
    assert_eq!(thread.frames().iter().map(|call| call.parent).collect::<Vec<_>>(), [0]);
    // Nobody knows of those for which there is no room.
    assert!(thread.records().iter().all(|call| call.ending == EndingCode::RT_UNSEEN));
    assert_eq!(thread.untimed(UntimedCode::RT_UNTIMED_AMBIGUOUS), u64::from(FRAMES - LEFT_MAX));
    thread.abandon(0);
    assert_eq!(thread.records().len() as u32, FRAMES + 1);
}

#[test]
fn functions_on_one_slot_end_in_the_same_return() {
    let chain = ["a 1<0 0 returned 50/30", "b 2<1 1 returned 30/20", "c 3<2 2 returned 20/10", "d 4<3 3 returned 10/0"];
    check("a+100 b+80/y c+80/ty d+80/t b-80 a-100", &chain);
    check("b>c c>d a+100 b+80/k c+80/tk d+80/t b-80 a-100", &chain);
}

#[test]
fn a_function_that_does_not_jump_there_was_left() {
    let expected = ["a 1<0 0 returned 40/20", "b 2<1 1 unwound 10/0", "c 3<1 1 returned 10/0"];
    for tails in ["", "b>d b/k"] {
        let (known, flags) = tails.split_once(' ').unwrap_or(("", "b/"));
        check(&format!("{known} a+100 {} c+80B b-80 a-100", flags.replace('b', "b+80")), &expected);
    }
    // It may jump anywhere, but what enters was called from elsewhere.
    check("a+100 b+80/y c+80 c-80 a-100", &expected);
}

#[test]
fn a_function_that_may_jump_anywhere_may_jump_to_itself() {
    check("b+80/y b+80/ty b-80", &["b 1<0 0 returned 20/10", "b 2<1 1 returned 10/0"]);
    check(
        "a+100 b+80/y c+80/ty b+80/t b-80 a-100",
        &["a 1<0 0 returned 50/30", "b 2<1 1 returned 30/20", "c 3<2 2 returned 20/10", "b 4<3 3 returned 10/0"],
    );
    // The caller only returns, so it gets no control back.
    check("X=skip2 A@96 b+80X/y b+80X/ty A-96", &["b 1<0 0 returned 20/10", "b 2<1 1 returned 10/0"]);
}

#[test]
fn it_was_left_if_its_caller_may_get_control_back() {
    check("B=catches b+80/y b+80/ty b-80", &["b 1<0 0 unwound 10/0", "b 2<0 0 returned 10/0"]);
    check(
        "B=catches b+80/y c+80B/ty b+80/t b-80",
        &["b 1<0 0 unwound 20/10", "c 2<1 1 unwound 10/0", "b 3<0 0 returned 10/0"],
    );
    // A jump to another function shows nothing, whoever catches.
    check("B=catches b+80/y c+80B/ty b-80", &["b 1<0 0 returned 20/10", "c 2<1 1 returned 10/0"]);
    // Known jumps are jumps, whoever catches.
    check("B=catches b>b b+80/k b+80/tk b-80", &["b 1<0 0 returned 20/10", "b 2<1 1 returned 10/0"]);
}

#[test]
fn it_was_left_if_it_may_have_returned_unseen() {
    for probe in ["asked", "impossible", "dropped"] {
        let expected = ["a 1<0 0 returned 40/10", "b 2<1 1 unseen 0/0", "b 3<1 1 returned 10/0"];
        check(&format!("X={probe} a+100 b+80X/y X=fixed b+80X/ty X-80 a-100"), &expected);
    }
}

#[test]
fn a_function_whose_jumps_to_itself_are_known_is_its_own_tail_caller() {
    check("b>b b+80/k b+80/tk b-80", &["b 1<0 0 returned 20/10", "b 2<1 1 returned 10/0"]);
}

/// Jumps in a circle more often than frames may stand at one slot: which calls are known to the last.
#[track_caller]
fn circle(known: &str, flags: &str) {
    let mut script = Script::run(&format!("{known} a+100 X@80"));
    let jumps = FRAMES + 6;
    for _ in 0..jumps {
        script.go_on(&format!("b+80X/t{flags}"));
    }
    let is_unseen = |call: &&CallRecord| call.ending == EndingCode::RT_UNSEEN;
    assert!(script.thread.records().iter().all(|call| is_unseen(&call)));

    script.go_on("X-80 a-100");
    assert_eq!(script.missed, 0);
    let records = script.thread.records();
    assert_eq!(records.len() as u32, jumps + 1);
    // No call returned with all that came after the limit: only the last ones, and who called the first.
    let unseen = records.iter().filter(is_unseen).count() as u32;
    assert!(unseen >= jumps - TAILS_MAX, "{unseen} of {jumps}");
    assert_eq!(script.thread.untimed(UntimedCode::RT_UNTIMED_AMBIGUOUS), u64::from(unseen));
    let early = |call: &&CallRecord| (2..=u64::from(jumps - TAILS_MAX)).contains(&call.id);
    assert!(records.iter().filter(early).all(|call| is_unseen(&call)));
    assert_eq!(script.thread.lost(LossCode::RT_LOSS_TOO_DEEP), 0);
    assert!(script.thread.counts_well());
}

#[test]
fn jumps_in_a_circle_beyond_a_limit_are_in_doubt() {
    circle("b>b", "k");
    circle("", "y");
}

#[test]
fn so_many_jumps_are_all_kept() {
    let mut script = Script::run("b>b a+100 X@80");
    for _ in 0..TAILS_MAX {
        script.go_on("b+80X/tk");
    }
    script.go_on("X-80 a-100");
    assert_eq!((script.missed, script.thread.records().len() as u32), (0, TAILS_MAX + 1));
    assert!(script.thread.records().iter().all(|call| call.ending == EndingCode::RT_RETURNED));
}

#[test]
fn tail_callers_end_with_the_last_whoever_entered_in_between() {
    check(
        "b+80/y other:x+900 c+80/t b-80 other:x-900",
        &["b 1<0 0 returned 30/10", "x 2<0 0 returned 30/0", "c 3<1 1 returned 10/0"],
    );
    check(
        "B=calls1 b>c other:b+880/k third:x+900 other:c+880/t other:b-880 third:x-900",
        &["b 1<0 0 returned 30/10", "x 2<0 0 returned 30/0", "c 3<1 1 returned 10/0"],
    );
    // On a stack further up in the same mapping.
    check(
        "B=calls1 b>c other:b+480/k other:x+900 other:c+480/t other:b-480 other:x-900",
        &["b 1<0 0 returned 30/10", "x 2<0 0 returned 30/0", "c 3<1 1 returned 10/0"],
    );
}

#[test]
fn a_coroutine_may_be_over_in_silence_and_its_stack_used_again() {
    check("other:b+880X/y other:c+880X other:X-880", &["b 1<0 0 unseen 0/0", "c 2<0 0 returned 10/0"]);
    check("other:b+880/y other:b+880 other:b-880", &["b 1<0 0 unseen 0/0", "b 2<0 0 returned 10/0"]);
    check("b>c other:b+880X/k other:c+880X other:X-880", &["b 1<0 0 unseen 0/0", "c 2<0 0 returned 10/0"]);
    // Its caller would not have called again: it is over.
    check("B=catches other:b+880/y other:b+880/y other:b-880", &["b 1<0 0 unwound 10/0", "b 2<0 0 returned 10/0"]);
}

#[test]
fn calls_left_by_an_exception_are_no_parents_of_deeper_ones() {
    check(
        "a+100 b+80 c+60 w60 w80 d+40 d-40 a-100",
        &["a 1<0 0 returned 70/50", "b 2<1 1 unwound 40/30", "c 3<2 2 unwound 30/0", "d 4<1 1 returned 10/0"],
    );
}

#[test]
fn slots_not_written_to_since_an_exception_prove_nothing() {
    check("a+100 b+80 c+60 c-60 a-100", &["a 1<0 0 returned 40/30", "b 2<1 1 unwound 30/10", "c 3<2 2 returned 10/0"]);
}

#[test]
fn slots_that_cannot_be_read_prove_nothing() {
    check(
        "a+100 b+80 x80 c+60 c-60 b-80 a-100",
        &["a 1<0 0 returned 60/40", "b 2<1 1 returned 40/10", "c 3<2 2 returned 10/0"],
    );
}

#[test]
fn slots_of_zeros_were_written_to_whether_there_is_a_trampoline_or_not() {
    for thread in [Thread::new(), Thread::without_trampoline()] {
        let mut script = Script::run_on(thread, "a+100 b+80 z80 c+60 c-60 a-100");
        script.end();
        assert_eq!(script.lines(), ["a 1<0 0 returned 50/30", "b 2<1 1 unwound 20/0", "c 3<1 1 returned 10/0"]);
    }
}

#[test]
fn slots_hooked_by_others_prove_nothing() {
    check(
        "a+100 h100 b+80 h80 c+60 c-60 b-80 a-100",
        &["a 1<0 0 returned 70/40", "b 2<1 1 returned 40/10", "c 3<2 2 returned 10/0"],
    );
}

#[test]
fn what_another_tracer_replaced_is_where_the_call_returns_to() {
    check("b+80/y h80 c+80/t b-80", &["b 1<0 0 returned 30/10", "c 2<1 1 returned 10/0"]);
    // It has been hooked when the probe is hit.
    check("B@80 h80 b+80/t b-80", &["b 1<0 0 returned 10/0"]);
}

#[test]
fn exception_on_a_coroutine() {
    check(
        "other:a+900 other:b+880 other:c+860 w860 w880 other:d+840 other:d-840 other:a-900",
        &["a 1<0 0 returned 70/50", "b 2<1 1 unwound 40/30", "c 3<2 2 unwound 30/0", "d 4<1 1 returned 10/0"],
    );
}

#[test]
fn slot_in_use_again_after_a_longjmp() {
    check(
        "a+100 b+80 c+60 d+80 d-80 a-100",
        &["a 1<0 0 returned 50/30", "b 2<1 1 unwound 20/10", "c 3<2 2 unwound 10/0", "d 4<1 1 returned 10/0"],
    );
}

#[test]
fn signal_after_an_exception_interrupts_what_goes_on() {
    check(
        "a+100 b+80 w80 signal:h+900 signal:h-900 a-100",
        &["a 1<0 0 returned 50/30", "b 2<1 1 unwound 20/0", "h 3<1 1 returned 10/0"],
    );
}

#[test]
fn signal_on_its_stack_counts_for_the_interrupted_call() {
    check(
        "a+100 signal:h+900 signal:i+880 signal:i-880 signal:h-900 a-100",
        &["a 1<0 0 returned 50/30", "h 2<1 1 returned 30/10", "i 3<2 2 returned 10/0"],
    );
}

#[test]
fn longjmp_out_of_a_signal_handler() {
    check(
        "a+100 b+80 signal:h+900 signal:i+880 c+90 c-90 a-100",
        &[
            "a 1<0 0 returned 60/40",
            "b 2<1 1 unwound 30/20",
            "h 3<2 2 unwound 20/10",
            "i 4<3 3 unwound 10/0",
            "c 5<1 1 returned 10/0",
        ],
    );
    check("a+100 signal:h+900 a-100", &["a 1<0 0 returned 20/10", "h 2<1 1 unwound 10/0"]);
}

#[test]
fn longjmp_out_of_a_signal_handler_into_a_coroutine() {
    let expected = ["a 1<0 0 returned 40/20", "h 2<1 1 unwound 10/0", "b 3<1 1 returned 10/0"];
    check("other:a+500 signal:h+900 other:b+480 other:b-480 other:a-500", &expected);
}

#[test]
fn longjmp_out_of_a_signal_handler_is_noticed_at_the_next_signal() {
    check(
        "a+100 signal:h+900 signal:i+880 signal:h+900 signal:h-900 a-100",
        &["a 1<0 0 returned 50/30", "h 2<1 1 unwound 20/10", "i 3<2 2 unwound 10/0", "h 4<1 1 returned 10/0"],
    );
}

#[test]
fn signal_handler_on_the_own_stack() {
    check("a+1000 h+400 h-400 a-1000", &["a 1<0 0 returned 30/10", "h 2<1 1 returned 10/0"]);
}

#[test]
fn signal_beside_a_waiting_coroutine() {
    check(
        "a+100 other:b+500 c+80 c-80 signal:h+900 signal:h-900 other:b-500 a-100",
        &["a 1<0 0 returned 70/20", "b 2<0 0 returned 50/0", "c 3<1 1 returned 10/0", "h 4<1 1 returned 10/0"],
    );
}

#[test]
fn coroutine_outlives_its_creator_and_interleaves() {
    check(
        "a+100 other:f+500 b+80 other:g+480 b-80 a-100 c+100 other:g-480 c-100 other:f-500",
        &[
            "a 1<0 0 returned 50/20",
            "f 2<0 0 returned 80/40",
            "b 3<1 1 returned 20/0",
            "g 4<2 1 returned 40/0",
            "c 5<0 0 returned 20/0",
        ],
    );
}

#[test]
fn coroutines_above_and_below_in_one_mapping() {
    check(
        "other:f+500 other:p+900 other:g+480 other:q+880 other:g-480 other:q-880 other:p-900 other:f-500",
        &["f 1<0 0 returned 70/20", "p 2<0 0 returned 50/20", "g 3<1 1 returned 20/0", "q 4<2 1 returned 20/0"],
    );
}

#[test]
fn exceptions_on_a_coroutine_do_not_pile_up() {
    let mut script = Script::run("other:a+900");
    for _ in 0..2 * FRAMES {
        script.go_on("other:b+880 other:c+860 other:d+840");
    }
    assert_eq!(script.thread.frames().len(), 4);
    assert!(script.thread.frames().iter().all(|call| call.depth < 4));
    assert_eq!(script.thread.lost(LossCode::RT_LOSS_TOO_DEEP), 0);
}

#[test]
fn exceptions_under_a_coroutine_that_returns_do_not_pile_up() {
    let mut script = Script::run("other:z+920");
    for _ in 0..2 * FRAMES {
        script.go_on("other:a+900 other:b+880 other:c+860 other:a-900");
    }
    assert_eq!(script.thread.frames().len(), 3);
    let returned = script.thread.records().iter().filter(|call| call.region == u32::from(b'a'));
    assert!(returned.clone().all(|call| call.parent == 1 && call.depth == 1));
    assert_eq!(returned.count() as u32, 2 * FRAMES);
}

#[test]
fn entry_only_functions_are_unseen_and_no_parents() {
    check("a+100 b+80/e c+60 c-60 a-100", &["a 1<0 0 returned 40/10", "b 2<1 1 unseen 0/0", "c 3<1 1 returned 10/0"]);
}

#[test]
fn arrivals_that_match_nothing_change_nothing_but_what_they_show_to_be_left() {
    // Another slot, another address, a call that has ended, one that has not begun.
    check_with_missed(
        4,
        "B-80 a+100 B-90 A-90 b+80 b-80 b-80 a-100",
        &["a 1<0 0 returned 60/10", "b 2<1 1 returned 10/0"],
    );
    // Untraced code has returned from below: what ran below it was left.
    check_with_missed(
        1,
        "a+100 b+80 c+60 X-70 b-80 a-100",
        &["a 1<0 0 returned 50/30", "b 2<1 1 returned 30/10", "c 3<2 2 unwound 10/0"],
    );
    // On another stack that says nothing of this one.
    check_with_missed(1, "a+100 b+80 other:X-900 b-80 a-100", &["a 1<0 0 returned 40/20", "b 2<1 1 returned 20/0"]);
}

#[test]
fn a_return_from_its_slot_to_elsewhere_shows_that_a_call_was_left() {
    check_with_missed(2, "a+100 b+80 X-80 b-80 a-100", &["a 1<0 0 returned 40/10", "b 2<1 1 unwound 10/0"]);
    // And with it all that it has called.
    check_with_missed(
        1,
        "a+100 b+80 c+60 X-80 a-100",
        &["a 1<0 0 returned 40/20", "b 2<1 1 unwound 20/10", "c 3<2 2 unwound 10/0"],
    );
    // Another call at its slot is over when that has returned.
    check_with_missed(
        1,
        "a+100 b+80Y c+80 C-80 Y-80 a-100",
        &["a 1<0 0 returned 50/20", "b 2<1 1 unwound 10/0", "c 3<1 1 returned 10/0"],
    );
    // Also where stacks may share a mapping, of which a return further up shows nothing.
    check_with_missed(2, "other:b+80 other:X-80 other:b-80", &["b 1<0 0 unwound 10/0"]);
    check_with_missed(1, "other:b+80 other:X-100 other:b-80", &["b 1<0 0 returned 20/0"]);
}

//! How calls end: known situations, each with the exact records it must give.

use crate::wire::{EndingCode, LossCode, UntimedCode};

use super::script::{Script, address, check, check_with_missed};
use super::{LEFT_MAX, SKIPS_MAX};

#[test]
fn a_caller_that_only_returns_is_skipped() {
    let expected = ["a 1<0 0 returned 20/10", "b 2<1 1 returned 10/0"];
    check("X=skip2 a+96 b+80X a-96", &expected);
    // The caller is not traced.
    check("X=skip2 a+120 W@96 b+80X W-96 a-120", &["a 1<0 0 returned 40/10", "b 2<1 1 returned 10/0"]);
    // It is, and between them stands a coroutine.
    check(
        "X=skip2 a+96 other:c+900 b+80X a-96 other:c-900",
        &["a 1<0 0 returned 30/10", "c 2<0 0 returned 30/0", "b 3<1 1 returned 10/0"],
    );
}

#[test]
fn a_caller_returns_with_its_callee_though_its_stack_was_mistaken() {
    let expected = ["a 1<0 0 returned 20/0", "b 2<0 0 returned 10/0"];
    check("X=skip2 other:a+96 third:b+80X third:a-96", &expected);
}

#[test]
fn several_callers_that_only_return_are_skipped() {
    check(
        "X=skip2 Y=skip3 a+120 b+96Y c+80X a-120",
        &["a 1<0 0 returned 30/20", "b 2<1 1 returned 20/10", "c 3<2 2 returned 10/0"],
    );
    check("X=skip2 Y=skip3 a+120 Y@96 b+80X a-120", &["a 1<0 0 returned 30/10", "b 2<1 1 returned 10/0"]);
}

/// A call above so many callers that only return, and the return of the last.
fn skip(levels: u64) -> Script {
    let mut script = Script::run("X=skip1 a+200 A@160");
    for level in (1..=levels).rev() {
        let slot = 160 - 8 * levels + 8 * (level - 1);
        script.go_on(&format!("X@{slot}"));
    }
    let slot = 160 - 8 * levels;
    script.go_on(&format!("b+{slot}X A=placed A-160 a-200"));
    script.end();
    script
}

#[test]
fn so_many_callers_are_skipped_at_the_most() {
    let script = skip(SKIPS_MAX.into());
    assert_eq!(script.lines()[1], "b 2<1 1 returned 10/0");
    assert_eq!(script.thread.untimed(UntimedCode::RT_UNTIMED_OTHER), 0);
    assert_eq!(script.thread.asked_for(), None);
    // The lowest of the callers is to get a probe then.
    let script = skip(u64::from(SKIPS_MAX) + 1);
    assert_eq!(script.lines()[1], "b 2<1 1 unseen 0/0");
    assert_eq!(script.thread.untimed(UntimedCode::RT_UNTIMED_NOT_YET_PLACED), 1);
    assert_eq!(script.thread.asked_for(), Some(address(b'X')));
}

#[test]
fn what_a_skipped_caller_returns_to_may_have_been_replaced() {
    check("X=skip2 W@96 h96 b+80X W-96", &["b 1<0 0 returned 10/0"]);
    untimed("X=skip2 W@96 h96 l96 b+80X", UntimedCode::RT_UNTIMED_OTHER);
}

/// The last call that enters ends with no duration, for this reason.
#[track_caller]
fn untimed(text: &str, reason: UntimedCode) {
    let mut script = Script::run(text);
    script.end();
    assert!(script.lines().last().unwrap().ends_with("unseen 0/0"), "{:?}", script.lines());
    let reasons = (0..UntimedCode::RT_UNTIMED_REASONS.0).map(UntimedCode);
    let counts = reasons.map(|reason| script.thread.untimed(reason));
    assert_eq!(
        counts.collect::<Vec<_>>(),
        (0..UntimedCode::RT_UNTIMED_REASONS.0).map(|code| u64::from(code == reason.0)).collect::<Vec<_>>()
    );
    assert!(script.thread.counts_well());
}

#[test]
fn calls_whose_return_is_not_detected_have_no_duration_and_a_reason() {
    untimed("X=asked a+100 b+80X a-100", UntimedCode::RT_UNTIMED_NOT_YET_PLACED);
    untimed("X=impossible a+100 b+80X a-100", UntimedCode::RT_UNTIMED_NOT_PROBEABLE);
    untimed("X=dropped a+100 b+80X a-100", UntimedCode::RT_UNTIMED_DROPPED);
    untimed("X=skip2 Y=impossible a+100 Y@96 b+80X a-100", UntimedCode::RT_UNTIMED_NOT_PROBEABLE);
    // A word that cannot be read.
    untimed("a+100 x80 b+80/t a-100", UntimedCode::RT_UNTIMED_OTHER);
    untimed("X=skip2 a+100 x96 b+80X a-100", UntimedCode::RT_UNTIMED_OTHER);
}

#[test]
fn a_call_that_was_in_doubt_returned_where_nothing_else_returns_to() {
    check("X=asked a+100 b+80X X=fixed X-80 a-100", &["a 1<0 0 returned 30/10", "b 2<1 1 returned 10/0"]);
    check(
        "X=asked a+100 b+80X c+60 c-60 X=fixed X-80 a-100",
        &["a 1<0 0 returned 50/30", "b 2<1 1 returned 30/10", "c 3<2 2 returned 10/0"],
    );
}

#[test]
fn else_it_may_have_been_another_call() {
    untimed("X=asked a+100 b+80X X=placed X-80 a-100", UntimedCode::RT_UNTIMED_NOT_YET_PLACED);
    // Neither is below what still runs.
    check(
        "X=asked a+100 b+80X X=placed c+60 c-60 X-80 a-100",
        &["a 1<0 0 returned 50/10", "b 2<1 1 unseen 0/0", "c 3<2 2 returned 10/0"],
    );
}

#[test]
fn what_an_unseen_call_has_called_took_time_of_its_caller() {
    check(
        "X=asked a+100 b+80X c+60 c-60 a-100",
        &["a 1<0 0 returned 40/10", "b 2<1 1 unseen 0/0", "c 3<2 2 returned 10/0"],
    );
}

#[test]
fn a_call_in_doubt_is_over_when_its_caller_calls_again() {
    check(
        "X=asked a+100 b+80X X=fixed b+80X X-80 a-100",
        &["a 1<0 0 returned 40/10", "b 2<1 1 unseen 0/0", "b 3<1 1 returned 10/0"],
    );
    // Even where it could have jumped there: then it would have been the second to do so.
    check(
        "b>c c>b X=asked a+100 b+80X/k c+80X/tk X=fixed b+80X X-80 a-100",
        &["a 1<0 0 returned 50/10", "b 2<1 1 unseen 0/0", "c 3<2 2 unseen 0/0", "b 4<1 1 returned 10/0"],
    );
}

#[test]
fn on_a_coroutine_it_is_so_if_the_caller_calls_from_further_up() {
    let b = "b 2<1 1 unseen 0/0";
    check(
        "X=asked other:a+960 other:b+880X other:c+900 other:d+860 other:d-860 other:c-900 other:a-960",
        &["a 1<0 0 returned 60/30", b, "c 3<1 1 returned 30/10", "d 4<3 2 returned 10/0"],
    );
    // Though what was called from there has returned.
    check(
        "X=asked other:a+960 other:b+880X other:c+900 other:c-900 other:d+860 other:d-860 other:a-960",
        &["a 1<0 0 returned 60/20", b, "c 3<1 1 returned 10/0", "d 4<1 1 returned 10/0"],
    );
    // From further down, the call in doubt may be the caller.
    check(
        "X=asked other:a+960 other:b+880X other:d+860 other:d-860 other:a-960",
        &["a 1<0 0 returned 40/0", b, "d 3<2 2 returned 10/0"],
    );
    // Or if whoever called that does.
    check(
        "X=asked other:a+960 other:b+880X other:e+980 other:d+860 other:d-860 other:e-980 other:a-960",
        &["a 1<0 0 returned 60/10", b, "e 3<0 0 returned 30/0", "d 4<1 1 returned 10/0"],
    );
}

#[test]
fn what_has_ended_before_was_on_another_stack() {
    check("other:f+500 other:g+480 other:f-500 other:g-480", &["f 1<0 0 returned 20/0", "g 2<0 0 returned 20/0"]);
}

#[test]
fn what_has_returned_on_another_thread_returns_nowhere_else() {
    check("other:f+500 m500 other:f-500", &["f 1<0 0 unseen 0/0"]);
    check("other:f+500 m500 other:f+500 other:f-500", &["f 1<0 0 unseen 0/0", "f 2<0 0 returned 10/0"]);
    untimed("other:f+500 m500", UntimedCode::RT_UNTIMED_AMBIGUOUS);
    // On its own stack, a thread is alone.
    check("f+500 m500 f-500", &["f 1<0 0 returned 20/0"]);
}

#[test]
fn longjmp_over_three_frames_is_noticed_at_the_next_enter() {
    check(
        "a+100 b+90 c+80 d+70 e+95 e-95 a-100",
        &[
            "a 1<0 0 returned 60/40",
            "b 2<1 1 unwound 30/20",
            "c 3<2 2 unwound 20/10",
            "d 4<3 3 unwound 10/0",
            "e 5<1 1 returned 10/0",
        ],
    );
}

#[test]
fn longjmp_over_three_frames_is_noticed_at_the_next_return() {
    let expected = ["a 1<0 0 returned 40/30", "b 2<1 1 unwound 30/20", "c 3<2 2 unwound 20/10", "d 4<3 3 unwound 10/0"];
    check("a+100 b+90 c+80 d+70 a-100", &expected);
}

#[test]
fn exception_caught_midway() {
    check(
        "a+100 b+90 c+80 d+70 e+85 e-85 b-90 a-100",
        &[
            "a 1<0 0 returned 70/50",
            "b 2<1 1 returned 50/30",
            "c 3<2 2 unwound 20/10",
            "d 4<3 3 unwound 10/0",
            "e 5<2 2 returned 10/0",
        ],
    );
}

#[test]
fn calls_that_run_when_the_thread_ends_are_open() {
    check(
        "X=asked a+100 other:f+500 b+80 signal:h+900 signal:i+880X",
        &["a 1<0 0 open 50/30", "f 2<0 0 open 40/0", "b 3<1 1 open 30/20", "h 4<3 2 open 20/0", "i 5<4 3 unseen 0/0"],
    );
}

#[test]
fn a_call_that_was_left_may_return_after_all() {
    // `f` runs on a coroutine's stack in `a`'s frame, on which `h` runs while `c` waits below it.
    check(
        "a+1000 f+600 c+400 h+560 h-560 c-400 f-600 a-1000",
        &["a 1<0 0 returned 70/50", "f 2<1 1 returned 50/40", "c 3<2 2 returned 30/0", "h 4<2 2 returned 10/0"],
    );
    // What returns there need not be `c`.
    check(
        "C=placed a+1000 f+600 c+400 h+560 h-560 c-400 f-600 a-1000",
        &["a 1<0 0 returned 70/50", "f 2<1 1 returned 50/10", "c 3<2 2 unseen 0/0", "h 4<2 2 returned 10/0"],
    );
    // Then what it has called took time of its caller.
    check(
        "C=placed a+1000 f+600 c+400 d+380 d-380 h+560 h-560 c-400 f-600 a-1000",
        &[
            "a 1<0 0 returned 90/70",
            "f 2<1 1 returned 70/20",
            "c 3<2 2 unseen 0/0",
            "d 4<3 3 returned 10/0",
            "h 5<2 2 returned 10/0",
        ],
    );
    // Its tail caller, too.
    check(
        "a+1000 f+600 b+400/y c+400/t h+560 h-560 b-400 f-600 a-1000",
        &[
            "a 1<0 0 returned 80/60",
            "f 2<1 1 returned 60/50",
            "b 3<2 2 returned 40/30",
            "c 4<3 3 returned 30/0",
            "h 5<2 2 returned 10/0",
        ],
    );
}

/// Nothing that returns on stacks which lie in the thread's own seems to be left there from then on.
#[test]
fn one_that_returns_after_what_seemed_to_be_its_caller_had_another() {
    let mut script = Script::run("a+800 b+600 c+400 a-800 b-600 c-400");
    assert_eq!(
        script.lines(),
        ["a 1<0 0 returned 30/20", "b 2<0 0 returned 30/10", "c 3<0 0 returned 30/0"],
        "what they took is known too late"
    );
    script.go_on("a+800 b+600 c+400 a-800 b-600 c-400");
    assert_eq!(script.lines()[3..], ["a 4<0 0 returned 30/0", "b 5<0 0 returned 30/0", "c 6<0 0 returned 30/0"]);
    assert_eq!((script.thread.left(), script.missed), (0, 0));
    assert!(script.thread.counts_well());
}

#[test]
fn so_may_its_caller_which_gets_all_of_its_time() {
    check(
        "a+1000 f+600 c+400 d+380 h+560 h-560 d-380 c-400 f-600 a-1000",
        &[
            "a 1<0 0 returned 90/70",
            "f 2<1 1 returned 70/60",
            "c 3<2 2 returned 50/30",
            "d 4<3 3 returned 30/0",
            "h 5<2 2 returned 10/0",
        ],
    );
    // Or only what it had when it was left: stacks lie in the thread's own, and it may wait on one of them for ever.
    check(
        "a+1000 f+600 c+400 d+380 h+560 h-560 d-380 f-600 a-1000",
        &[
            "a 1<0 0 returned 80/60",
            "f 2<1 1 returned 60/30",
            "c 3<2 2 unseen 0/0",
            "d 4<3 3 returned 30/0",
            "h 5<2 2 returned 10/0",
        ],
    );
}

#[test]
fn a_call_that_was_left_has_not_returned_if_its_place_was_used_again() {
    // The first `c` is thrown through; the second one waits while `h` runs again.
    check(
        "a+1000 f+600 c+400 h+560 h-560 c+400 h+560 h-560 c-400 f-600 a-1000",
        &[
            "a 1<0 0 returned 100/80",
            "f 2<1 1 returned 80/60",
            "c 3<2 2 unwound 10/0",
            "h 4<2 2 returned 10/0",
            "c 5<2 2 returned 30/0",
            "h 6<2 2 returned 10/0",
        ],
    );
    // By one whose return is not detected.
    check_with_missed(
        1,
        "a+1000 f+600 c+400/e d+400C/t h+560 h-560 c+400/e c-400 f-600 a-1000",
        &[
            "a 1<0 0 returned 90/70",
            "f 2<1 1 returned 70/20",
            "c 3<2 2 unseen 0/0",
            "d 4<2 2 unwound 10/0",
            "h 5<2 2 returned 10/0",
            "c 6<2 2 unseen 0/0",
        ],
    );
}

#[test]
fn nor_has_it_if_that_is_the_place_of_a_callee_which_returns_farther_up() {
    // The first `b` is thrown through, the second returns, then what has called both does not call it.
    check_with_missed(
        1,
        "X=skip2 a+120 W@96 b+80X c+104 c-104 W@96 b+80X W-96 W@96 W-96 a-120",
        &["a 1<0 0 returned 100/30", "b 2<1 1 unwound 10/0", "c 3<1 1 returned 10/0", "b 4<1 1 returned 10/0"],
    );
}

#[test]
fn a_folded_call_that_was_left_has_a_record_if_one_that_it_made_returns_after_all() {
    let mut thread = super::Thread::new();
    thread.fold(u32::from(b'c'));
    let mut script =
        Script::run_on(thread, "a+1000 f+600 c+400 c+380 d+360 h+560 h-560 d-360 c-380 c-400 f-600 a-1000");
    script.end();
    let functions: String = script.lines().iter().map(|line| &line[..1]).collect();
    assert_eq!(functions, "afccdh");
}

#[test]
fn of_more_that_are_left_than_there_is_room_for_nobody_knows_whether_they_return() {
    let mut script = Script::run("");
    for call in 0..=LEFT_MAX {
        script.go_on(&format!("c+{}", 400 + 8 * call));
    }
    assert_eq!((script.thread.left(), script.lines().len()), (LEFT_MAX, 0));
    script.go_on("c+1000");
    assert_eq!(script.thread.left(), LEFT_MAX);
    assert_eq!(script.lines(), [format!("c {}<0 0 unseen 0/0", LEFT_MAX + 1)]);
    assert_eq!(script.thread.untimed(UntimedCode::RT_UNTIMED_AMBIGUOUS), 1);
    // One whose slot was written to makes room.
    script.go_on("w408 c+1100 c+1200");
    assert_eq!(script.thread.untimed(UntimedCode::RT_UNTIMED_AMBIGUOUS), 2);
    assert!(script.lines().contains(&"c 2<0 0 unwound 10/0".to_owned()), "{:?}", script.lines());
    // The others can still return.
    script.go_on("c-400");
    assert_eq!(script.missed, 0);
    script.end();
    assert!(script.thread.counts_well());
}

/// `f` loops through its first instruction, and is called from `X`.
#[test]
fn a_lap_of_a_loop_that_begins_its_function_is_no_call() {
    let laps = |text: &str| {
        let mut script = Script::run(text);
        script.end();
        assert!(script.thread.counts_well());
        let lost = [LossCode::RT_LOSS_LAP, LossCode::RT_LOSS_MAYBE_LAP].map(|reason| script.thread.lost(reason));
        (script.lines(), lost)
    };
    let lines = |lines: &[&str]| lines.iter().map(|&line| line.to_owned()).collect::<Vec<_>>();
    let both = lines(&["a 1<0 0 returned 50/30", "f 2<1 1 returned 30/0"]);
    assert_eq!(laps("a+100 f+80/lk f+80/lkt f+80/lkt f-80 a-100"), (both, [2, 0]));
    // What it calls is over then. Another call is one.
    let expected = lines(&["f 1<0 0 returned 40/10", "c 2<1 1 returned 10/0", "f 3<0 0 returned 10/0"]);
    assert_eq!(laps("f+80/l c+60 c-60 f+80/lt f-80 f+80/l f-80"), (expected, [1, 0]));
    // On another stack, from another place, at another slot, by a tail call of another function it is a call.
    assert_eq!(laps("f+80/l other:f+80/l other:f-80 f+72/l f-72 f-80").1, [0, 0]);
    assert_eq!(laps("f+80/l g+80/tk f+80/lt f-80").1, [0, 0]);
    // Where its return may be missed, or its caller catches, nobody knows.
    for known in ["X=asked", "X=impossible", "X=dropped", "X=catches"] {
        let (lines, lost) = laps(&format!("{known} f+80X/l f+80X/lt f+80X/lt X=fixed X-80"));
        assert_eq!((lines, lost), (vec!["f 1<0 0 unseen 0/0".to_owned()], [0, 2]), "{known}");
    }
}

#[test]
fn what_may_have_jumped_or_been_left_has_no_known_end() {
    let mut script = Script::run("f+80/q g+80/t f-80 f+80/q f-80");
    script.end();
    assert_eq!(script.lines(), ["f 1<0 0 unseen 0/0", "g 2<0 0 returned 10/0", "f 3<0 0 returned 10/0"]);
    assert_eq!(script.thread.untimed(UntimedCode::RT_UNTIMED_AMBIGUOUS), 1);
}

#[test]
fn what_may_have_been_left_has_jumped_where_nothing_else_is_called() {
    check("X=calls1 f+80X/q g+80X/t X-80", &["f 1<0 0 returned 20/10", "g 2<1 1 returned 10/0"]);
    check("X=calls1 b>c b+80X/qk c+80X/t X-80", &["b 1<0 0 returned 20/10", "c 2<1 1 returned 10/0"]);
    // The function that is called there comes again.
    check("X=calls1 f+80X/q f+80X X-80", &["f 1<0 0 unseen 0/0", "f 2<0 0 returned 10/0"]);
    // Who calls may get control back by a jump that nobody sees.
    check("X=lands b>c b+80X/k c+80X X-80", &["b 1<0 0 unseen 0/0", "c 2<0 0 returned 10/0"]);
    // One that it never jumps to.
    check("b>c b+80X/qk d+80X X-80", &["b 1<0 0 unwound 10/0", "d 2<0 0 returned 10/0"]);
}

#[test]
fn a_function_that_takes_words_off_the_stack_returns_above_them() {
    check("a+100 f+80X/p X-96 a-100", &["a 1<0 0 returned 30/10", "f 2<1 1 returned 10/0"]);
    // By a caller that only returns.
    check("X=skip1 a+200 W@104 f+80X/p W-104 a-200", &["a 1<0 0 returned 40/10", "f 2<1 1 returned 10/0"]);
    // A tail call.
    check("f>g f+80X/pk g+80X/tp X-96", &["f 1<0 0 returned 20/10", "g 2<1 1 returned 10/0"]);
}

#[test]
fn one_that_may_have_done_so_has_no_known_end() {
    let mut script = Script::run("a+100 f+72X X-88 a-100");
    script.end();
    assert_eq!(script.lines(), ["a 1<0 0 returned 30/0", "f 2<1 1 unseen 0/0"]);
    assert_eq!(script.thread.untimed(UntimedCode::RT_UNTIMED_AMBIGUOUS), 1);
    // Or was left by a jump, which was seen.
    check_with_missed(1, "a+100 f+72X J60^96 X-88 a-100", &["a 1<0 0 returned 40/10", "f 2<1 1 unwound 10/0"]);
}

#[test]
fn one_that_is_left_for_long_outlasts_any_number_that_return_meanwhile() {
    // `a` resumes, by `b`, a coroutine whose stack lies above its own, on which `h` runs.
    let mut script = Script::run("a+400");
    for _ in 0..3 * LEFT_MAX {
        script.go_on("b+380 h+560 h-560 b-380");
    }
    script.go_on("a-400");
    script.end();
    let endings = script.thread.records().iter().map(|call| call.ending).collect::<Vec<_>>();
    assert!(endings.iter().all(|&ending| ending == EndingCode::RT_RETURNED), "{:?}", script.lines());
}

#[test]
fn without_memory_nobody_knows_of_calls_that_were_left() {
    let mut script = Script::run_on(super::Thread::short_of_memory(), "a+1000 f+600 c+400 h+560 h-560 c-400");
    assert_eq!(script.missed, 1);
    assert_eq!(script.lines(), ["c 3<2 2 unseen 0/0", "h 4<2 2 returned 10/0"]);
    script.end();
    assert!(script.thread.counts_well());
}

/// After a jump that nobody saw, control comes again to where the caller has saved its state, and then to where the call
/// would have returned.
#[test]
fn a_return_elsewhere_with_the_same_slot_shows_on_any_stack_that_a_call_was_left() {
    check_with_missed(
        2,
        "other:a+100 other:b+60 other:X-100 other:A-100",
        &["a 1<0 0 unwound 20/0", "b 2<1 1 open 30/0"],
    );
    check_with_missed(
        2,
        "X=skip2 other:a+96 other:b+80X other:Y-96 other:A-96",
        &["a 1<0 0 unwound 20/10", "b 2<1 1 unwound 10/0"],
    );
    // Another stack of the same mapping stays as it is.
    check_with_missed(1, "other:a+100 other:X-80 other:a-100", &["a 1<0 0 returned 20/0"]);
}

#[test]
fn a_coroutines_calls_are_over_when_a_caller_that_only_returns_enters_anew() {
    // `f` and `g` are thrown through, and `f` is called again.
    check(
        "X=skip2 other:a+960 other:f+896 other:g+880X other:f+896 other:f-896 other:a-960",
        &["a 1<0 0 returned 50/30", "f 2<1 1 unwound 20/10", "g 3<2 2 unwound 10/0", "f 4<1 1 returned 10/0"],
    );
}

#[test]
fn callers_that_only_return_end_with_a_callee_that_is_taken_for_anothers() {
    // `d` was thrown through, which nothing shows.
    check(
        "X=skip2 other:d+880 other:b+888 other:c+872X other:b-888",
        &["d 1<0 0 open 40/10", "b 2<0 0 returned 20/0", "c 3<1 1 returned 10/0"],
    );
}

#[test]
fn a_call_whose_slot_was_used_again_has_not_returned_where_its_caller_comes_by() {
    // `b` throws, its caller catches, calls others, and comes to where `b` would have returned.
    let expected = ["a 1<0 0 returned 40/20", "b 2<1 1 unwound 20/0"];
    check("a+100 b+80 w80 b-80/r a-100", &expected);
    // Farther from the stack pointer, a signal handler may have written there since.
    check("a+100 b+80 w80 b-80 a-100", &["a 1<0 0 returned 40/20", "b 2<1 1 returned 20/0"]);
    // A slot that is as it was, that is hooked, or that cannot be read, says nothing against a return.
    for what in ["w72", "h80", "x80"] {
        let expected = ["a 1<0 0 returned 40/20", "b 2<1 1 returned 20/0"];
        check(&format!("a+100 b+80 {what} b-80/r a-100"), &expected);
    }
}

#[test]
fn so_it_is_with_what_ends_with_it() {
    // Its tail caller has the same slot.
    check(
        "a+100 b+80/y c+80/t w80 b-80/r a-100",
        &["a 1<0 0 returned 50/30", "b 2<1 1 unwound 30/20", "c 3<2 2 unwound 20/0"],
    );
    // Its caller that only returns has not, nor has a callee of that.
    check(
        "X=skip2 a+120 b+96 c+80X w80 b-96/r a-120",
        &["a 1<0 0 returned 50/30", "b 2<1 1 returned 30/20", "c 3<2 2 unwound 20/0"],
    );
    check(
        "X=skip2 a+120 b+96 c+80X w96 b-96/r a-120",
        &["a 1<0 0 returned 50/30", "b 2<1 1 unwound 30/20", "c 3<2 2 returned 20/0"],
    );
}

#[test]
fn the_slots_of_callees_count_as_far_as_nothing_writes_there_after_the_return() {
    let returned = ["b 1<0 0 returned 20/0"];
    let unwound = ["b 1<0 0 unwound 20/0"];
    // 15 words below the slot of the return, and 16.
    check("X=skip15 W@200 b+80X w80 W-200/r", &unwound);
    check("X=skip16 W@208 b+80X w80 W-208/r", &returned);
}

#[test]
fn a_call_has_no_duration_where_who_has_left_it_comes_by() {
    untimed("X=joined a+100 b+80X X-80 a-100", UntimedCode::RT_UNTIMED_AMBIGUOUS);
    untimed("X=joined Y=skip2 a+120 X@96 b+80Y X-96 a-120", UntimedCode::RT_UNTIMED_AMBIGUOUS);
}

#[test]
fn a_call_in_doubt_whose_slot_was_used_again_has_no_duration() {
    untimed("X=asked a+100 b+80X w80 X=fixed X-80/r", UntimedCode::RT_UNTIMED_NOT_YET_PLACED);
    check("X=asked a+100 b+80X X=fixed X-80/r a-100", &["a 1<0 0 returned 30/10", "b 2<1 1 returned 10/0"]);
}

#[test]
fn a_call_in_doubt_ends_at_its_own_return_address_though_its_caller_only_returns() {
    let asked = |text: &str| Script::run(text).thread.asked_for();
    assert_eq!(asked("Y=asked X=skip2 Y@96 b+80X"), Some(address(b'X')));
    assert_eq!(asked("Y=fixed X=skip2 Y@96 b+80X"), None);
    check("Y=asked X=skip2 a+120 Y@96 b+80X X-80 a-120", &["a 1<0 0 returned 40/10", "b 2<1 1 returned 10/0"]);
    // Both return there: the callee of a callee that only returns.
    check_with_missed(1, "Y=asked X=skip2 Y@96 b+80X X-80 Y=placed Y-96", &["b 1<0 0 returned 10/0"]);
    // Not all calls from there enter the same function.
    untimed("X=placed X=skip2 Y=asked a+120 Y@96 b+80X X-80 a-120", UntimedCode::RT_UNTIMED_NOT_YET_PLACED);
}

#[test]
fn a_call_in_doubt_below_a_caller_that_only_returns_has_no_duration() {
    // What returns to `Y` may have called another function than `b` from there.
    untimed("Y=asked X=skip2 a+120 Y@96 b+80X Y=fixed Y-96", UntimedCode::RT_UNTIMED_NOT_YET_PLACED);
}

#[test]
fn a_call_that_was_left_returns_after_all_only_if_its_slot_is_as_it_was() {
    let lines = |c: &str| {
        let f = if c.contains("returned") { 50 } else { 20 };
        let a = "a 1<0 0 returned 80/60".to_owned();
        [a, format!("f 2<1 1 returned 60/{f}"), c.to_owned(), "h 4<2 2 returned 10/0".to_owned()]
    };
    let run = |what: &str| {
        let mut script = Script::run(&format!("a+1000 f+600 c+400 h+560 h-560 {what} c-400 f-600 a-1000"));
        script.end();
        (script.lines(), script.missed)
    };
    let (found, missed) = run("w392");
    assert_eq!((found, missed), (lines("c 3<2 2 returned 40/0").to_vec(), 0));
    let (found, missed) = run("w400");
    assert_eq!((found, missed), (lines("c 3<2 2 unwound 10/0").to_vec(), 1));
}

#[test]
fn below_a_caller_that_only_returns_it_may_return_to_where_others_do() {
    // Not all that returns to `W` is a call of `c`, but only `c` has left its slot as it was.
    let text = |what: &str| format!("X=skip2 W=placed a+1000 f+600 W@416 c+400X h+560 h-560 {what} W-416 f-600 a-1000");
    let expected = |c: &str, f: u32| {
        [
            "a 1<0 0 returned 90/70".to_owned(),
            format!("f 2<1 1 returned 70/{f}"),
            c.to_owned(),
            "h 4<2 2 returned 10/0".to_owned(),
        ]
    };
    let mut script = Script::run(&text("w392"));
    assert_eq!((script.lines(), script.missed), (expected("c 3<2 2 returned 40/0", 50).to_vec(), 0));
    script = Script::run(&text("w400"));
    script.end();
    assert_eq!((script.lines(), script.missed), (expected("c 3<2 2 unwound 10/0", 20).to_vec(), 1));
}

#[test]
fn a_call_that_was_left_is_put_aside_only_if_it_may_return() {
    let aside = |text: &str| {
        let script = Script::run(text);
        (script.thread.left(), script.lines())
    };
    // The stack pointer has come back from above it.
    assert_eq!(aside("a+100 b+80 c+90"), (1, vec![]));
    // Its slot, or that of a caller which only returns, is that of the hit.
    let unwound = vec!["b 2<1 1 unwound 10/0".to_owned()];
    assert_eq!(aside("a+120 b+80 c+80"), (0, unwound.clone()));
    assert_eq!(aside("a+120 b+80 X-80"), (0, unwound.clone()));
    assert_eq!(aside("X=skip2 a+120 W@96 b+80X c+88"), (0, unwound.clone()));
    assert_eq!(aside("X=skip2 a+120 W@96 b+80X c+96"), (0, unwound));
    assert_eq!(aside("X=skip2 a+120 W@96 b+80X c+104"), (1, vec![]));
    // Its slot has been used.
    assert_eq!(aside("a+120 b+80 w80 c+90"), (0, vec!["b 2<1 1 unwound 20/0".to_owned()]));
}

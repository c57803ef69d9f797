//! Jumps that a probe sees, and functions that do not return.

use super::script::{check, check_with_missed};

#[test]
fn what_a_jump_leaves_ends_with_it() {
    check(
        "a+1000 b+900 c+800 J700^950 d+600 d-600 a-1000",
        &["a 1<0 0 returned 60/30", "b 2<1 1 unwound 20/10", "c 3<2 2 unwound 10/0", "d 4<1 1 returned 10/0"],
    );
}

#[test]
fn it_is_not_the_caller_of_what_enters_at_its_slot() {
    for jump in ["J300^900", "E300^900"] {
        check(
            &format!("a+1000 f+400X/y {jump} w0 h+400X X-400 a-1000"),
            &["a 1<0 0 returned 60/20", "f 2<1 1 unwound 10/0", "h 3<1 1 returned 10/0"],
        );
    }
}

#[test]
fn a_call_in_whose_slot_the_jump_ends_goes_on() {
    check(
        "a+1000 b+900 f+600 E300^900 b-900 a-1000",
        &["a 1<0 0 returned 50/30", "b 2<1 1 returned 30/10", "f 3<2 2 unwound 10/0"],
    );
}

#[test]
fn a_jump_may_be_a_switch_of_stacks() {
    check("a+1000 c+400 J300^900 c-400 a-1000", &["a 1<0 0 returned 40/20", "c 2<1 1 returned 20/0"]);
    check_with_missed(1, "a+1000 c+400 E300^900 c-400 a-1000", &["a 1<0 0 returned 40/10", "c 2<1 1 unwound 10/0"]);
}

#[test]
fn what_a_jump_left_has_not_returned_if_another_call_is_made_within_its_reach() {
    check(
        "X=skip12 Y=skip1 W=placed a+1000 W@496 f+400X J300^900 W@496 g+488Y W-496 a-1000",
        &["a 1<0 0 returned 70/20", "f 2<1 1 unwound 10/0", "g 3<1 1 returned 10/0"],
    );
}

#[test]
fn a_jump_ends_handlers_on_the_signal_stack() {
    check(
        "a+1000 b+900 signal:h+5000 signal:i+4900 J0^950 d+600 d-600 a-1000",
        &[
            "a 1<0 0 returned 70/40",
            "b 2<1 1 unwound 30/20",
            "h 3<2 2 unwound 20/10",
            "i 4<3 3 unwound 10/0",
            "d 5<1 1 returned 10/0",
        ],
    );
}

#[test]
fn a_handler_may_jump_within_its_stack() {
    check(
        "a+400 signal:h+5000 signal:i+4900 signal:J4800^4950 signal:h-5000 a-400",
        &["a 1<0 0 returned 50/30", "h 2<1 1 returned 30/10", "i 3<2 2 unwound 10/0"],
    );
}

#[test]
fn on_stacks_that_share_a_mapping_only_what_lies_between_is_left() {
    check(
        "other:a+1000 other:c+400 other:b+900 other:E800^950 other:c-400 other:a-1000",
        &["a 1<0 0 returned 50/40", "c 2<1 1 returned 30/0", "b 3<1 1 unwound 10/0"],
    );
}

#[test]
fn a_call_in_doubt_may_have_returned_before_the_jump() {
    check("X=asked a+1000 b+900X J300^950 a-1000", &["a 1<0 0 returned 30/0", "b 2<1 1 unseen 0/0"]);
}

#[test]
fn a_function_that_does_not_return_has_not_where_others_do() {
    // The return address of such a call is where another way leads.
    check(
        "a+1000 n+800X/n w0 h+800X X-800 a-1000",
        &["a 1<0 0 returned 50/30", "n 2<1 1 unwound 20/0", "h 3<1 1 returned 10/0"],
    );
    check_with_missed(1, "a+1000 n+800X/n X-800 a-1000", &["a 1<0 0 returned 30/10", "n 2<1 1 unwound 10/0"]);
}

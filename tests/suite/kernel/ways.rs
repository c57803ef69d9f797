//! Every way to leave a call: what is on record is what the program says, and measured, of itself.

use crate::common::scenario::{Scenario, Truth};
use crate::common::spans;
use crate::common::tries::in_one_of_some_tries;

/// A machine that is busy with something else is given so many chances to measure durations.
const TRIES: usize = 3;

/// By `run` and by `attach`, with durations.
fn check(scenario: &Scenario) {
    for traced in [Scenario::run_with_output, Scenario::attach_with_output] {
        in_one_of_some_tries(TRIES, || {
            traced(scenario).map_or(Ok(()), |(output, recording)| spans::check(&recording, &output.stdout))
        });
    }
}

/// A test of each scenario of a program.
macro_rules! check {
    ($program:literal: $($name:ident $(. $setting:ident ($value:expr))*),* $(,)?) => {
        $(#[test]
        fn $name() {
            check(&Scenario::new($program, stringify!($name))$(.$setting($value))*);
        })*
    };
}

check! { "ways":
    direct_tail,
    indirect_tail,
    tail_into_library,
    tail_into_untraced,
    chained_tails,
    mutual_tails,
    self_tails,
    tail_out_of_recursion,
    jump_table,
    callee_pops,
    loops_from_the_entry,
    early_returns,
    only_returns,
    traced_only_returns,
    virtual_traced_or_not,
    virtual_traced,
    virtual_tails,
    virtual_jumps,
    jumps_to_the_same_place,
    long_jumps,
    long_jumps_over_tails,
    long_jumps_to_depths,
    long_jumps_over_callers,
    recursion,
    callbacks,
    signals,
    signals_on_another_stack,
    signal_jumps,
    signal_jumps_off_another_stack,
    faults_at_the_entry,
    faults_at_the_entry_and_another_stack,
    backtraces,
    context_in_frame.truth(Truth::Endings),
    thread_function,
    thread_exits,
    thread_cancelled,
    // No probe can be where it returns to.
    called_from_memory.may_be_unseen(&["w_leaf"]),
}

check! { "throws":
    // Of more calls than are kept aside, nobody knows whether they were left or have returned.
    destructors_at_each_depth.may_be_unseen(&["visit"]),
    rethrown_at_each_depth.may_be_unseen(&["visit"]),
    tail_thrown,
    thrown_through_c_library,
    thrown_over_callers,
    caller_is_destroyed,
    caught_inside,
    thrown_from_handler,
}

check! { "bare":
    asks_for_callers,
    saved_return_address,
    signals_often,
    // Who calls whom between stacks that cannot be told apart is a matter of opinion.
    coroutine_in_frame.truth(Truth::Endings),
    coroutine_beside_thread.truth(Truth::Endings),
}

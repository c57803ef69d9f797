//! The flags after a subtraction, as `flags.h` has them, against the processor.

use std::arch::asm;

use proptest::prelude::*;

unsafe extern "C" {
    safe fn rt_test_flags_after_sub(flags: u64, from: u64, what: u64) -> u64;
}

/// What the processor makes of the flags.
fn flags_after_sub(from: u64, what: u64) -> [u64; 2] {
    let (before, after): (u64, u64);
    // SAFETY: the stack is as before, and the flags are told to change.
    unsafe {
        asm!(
            "pushfq",
            "pop {before}",
            "sub {from}, {what}",
            "pushfq",
            "pop {after}",
            before = out(reg) before,
            after = out(reg) after,
            from = inout(reg) from => _,
            what = in(reg) what,
        );
    }
    [before, after]
}

proptest! {
    #[test]
    fn a_subtraction_leaves_the_flags_of_the_processor(from: u64, what: u64, near in 0_u64..0x1000) {
        for (from, what) in [(from, what), (near, what), (from, near), (near, near), (from, from ^ 1 << 63)] {
            let [before, after] = flags_after_sub(from, what);
            prop_assert_eq!(rt_test_flags_after_sub(before, from, what), after);
        }
    }
}

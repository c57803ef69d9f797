//! Readings of a CPU's counters, some of which shared their hardware.

/// `struct rt_raw` of `frame.h`: a count, and the nanoseconds that it was wanted and that it ran.
#[repr(C)]
#[derive(Clone, Copy)]
struct Raw(u64, u64, u64);

unsafe extern "C" {
    fn rt_test_count_between(from: *const Raw, to: *const Raw, is_estimate: *mut u32) -> u64;
}

fn between(from: Raw, to: Raw) -> (u64, bool) {
    let mut is_estimate = 0;
    // SAFETY: the function reads both values and writes the third, and keeps none.
    let count = unsafe { rt_test_count_between(&raw const from, &raw const to, &raw mut is_estimate) };
    (count, is_estimate != 0)
}

const BEGIN: Raw = Raw(5_000, 1_000_000, 800_000);

fn after(count: u64, enabled: u64, running: u64) -> (u64, bool) {
    between(BEGIN, Raw(BEGIN.0 + count, BEGIN.1 + enabled, BEGIN.2 + running))
}

#[test]
fn a_counter_that_ran_all_the_time_is_exact() {
    assert_eq!(after(1_234, 1_000, 1_000), (1_234, false));
    assert_eq!(after(0, 0, 0), (0, false));
    assert_eq!(after(u64::MAX / 2, 3_600_000_000_000, 3_600_000_000_000), (u64::MAX / 2, false));
}

#[test]
fn one_that_shared_its_hardware_is_scaled_and_says_so() {
    assert_eq!(after(1_000, 4_000, 1_000), (4_000, true));
    assert_eq!(after(10, 3, 2), (15, true));
    assert_eq!(after(7, 1_000, 0), (0, true));
}

/// Five events that took turns on four counters for 10 s at 3 GHz.
#[test]
fn large_counts_and_long_times_do_not_overflow() {
    let (cycles, is_estimate) = after(24_000_000_000, 10_000_000_000, 8_000_000_000);
    assert!(is_estimate);
    assert!(cycles.abs_diff(30_000_000_000) < 3_000_000, "{cycles}");
    let (cycles, _) = after(1 << 50, 1 << 45, 1 << 44);
    assert!(cycles.abs_diff(1 << 51) < 1 << 40, "{cycles}");
}

#[test]
fn a_reading_that_failed_counts_nothing_and_says_so() {
    assert_eq!(between(BEGIN, Raw(0, 0, 0)), (0, true));
}

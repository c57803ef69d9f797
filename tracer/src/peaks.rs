//! Measures what this machine can do at most: operations by a loop of multiplications and additions in registers, bytes by
//! a triad, `a[i] = b[i] + s * c[i]`, of arrays that no cache holds.
//!
//! Both loops are written in assembly, so that what they do is known, whatever the compiler makes of the rest.

use std::arch::{asm, is_x86_feature_detected};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use rtrace_model::{PeakRates, Peaks};

/// A measurement takes at least that long, and the best one of so many counts.
const SHORTEST: Duration = Duration::from_millis(40);
const ATTEMPTS: usize = 5;

/// The arrays of a triad are so many times as large as the last cache, in all, and no smaller than this.
const CACHES: usize = 4;
const LEAST_BYTES: usize = 3 << 26;

/// Bytes that a triad moves per number: two are read and one is written. That a processor may read what it writes first is
/// not counted, as in the STREAM benchmark.
const MOVED: usize = 3 * size_of::<f64>();

/// Registers that a loop of operations adds to; their additions do not wait for each other.
const REGISTERS: u64 = 14;

/// A loop of operations.
#[derive(Clone, Copy, Debug)]
struct OperationLoop {
    name: &'static str,
    /// Operations of a round.
    operations: u64,
    /// Does so many rounds; each adds 1 to all numbers of all registers. Gives the first number.
    run: unsafe fn(u64) -> f64,
}

macro_rules! operation_loop {
    ($name:ident, $zero:literal, $one:literal, $step:literal, $end:literal) => {
        /// # Safety
        /// The processor has the instructions.
        unsafe fn $name(rounds: u64) -> f64 {
            let first: f64;
            // SAFETY: It writes to registers only, which are all named.
            unsafe {
                asm!(
                    concat!(".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13\n", $zero, "\n.endr"),
                    $one,
                    "2:",
                    concat!(".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13\n", $step, "\n.endr"),
                    "sub {rounds}, 1",
                    "jnz 2b",
                    $end,
                    rounds = inout(reg) rounds.max(1) => _,
                    one = in(reg) 1.0_f64.to_bits(),
                    out("xmm0") first, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _,
                    out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                    out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                    options(nomem, nostack),
                );
            }
            first
        }
    };
}

operation_loop!(
    with_avx512,
    "vpxorq zmm\\n, zmm\\n, zmm\\n",
    "vpbroadcastq zmm15, {one}",
    "vfmadd231pd zmm\\n, zmm15, zmm15",
    "vzeroupper"
);
operation_loop!(
    with_fma,
    "vxorpd ymm\\n, ymm\\n, ymm\\n",
    "vmovq xmm15, {one}\nvbroadcastsd ymm15, xmm15",
    "vfmadd231pd ymm\\n, ymm15, ymm15",
    "vzeroupper"
);
operation_loop!(
    with_sse2,
    "xorpd xmm\\n, xmm\\n",
    "movq xmm15, {one}\nunpcklpd xmm15, xmm15",
    "mulpd xmm\\n, xmm15\naddpd xmm\\n, xmm15",
    ""
);

impl OperationLoop {
    /// The one with the widest registers of this processor.
    fn best() -> OperationLoop {
        let of = |name, numbers: u64, run| OperationLoop { name, operations: REGISTERS * numbers * 2, run };
        if is_x86_feature_detected!("avx512f") {
            of("AVX-512", 8, with_avx512 as unsafe fn(u64) -> f64)
        } else if is_x86_feature_detected!("fma") && is_x86_feature_detected!("avx2") {
            of("FMA", 4, with_fma)
        } else {
            of("SSE2", 2, with_sse2)
        }
    }

    fn run(self, rounds: u64) -> f64 {
        // SAFETY: `best` has asked the processor.
        unsafe { (self.run)(rounds) }
    }
}

/// Three arrays of one thread.
struct Triad([Vec<f64>; 3]);

impl Triad {
    /// Of so many bytes in all, written once, so that they are in memory.
    fn new(bytes: usize) -> Triad {
        // The loop below does two numbers at a time.
        let numbers = (bytes / MOVED).next_multiple_of(2);
        Triad([0.0, 1.0, 2.0].map(|number| vec![number; numbers]))
    }

    /// Adds the second array and `scale` times the third one up into the first one.
    fn run(&mut self, scale: f64) {
        let [a, b, c] = &mut self.0;
        let bytes = size_of_val(a.as_slice());
        // SAFETY: All three arrays have as many bytes, which `i` runs through from their begin to their end.
        unsafe {
            asm!(
                "unpcklpd {scale}, {scale}",
                "2:",
                "movupd {x}, [{c} + {i}]",
                "mulpd {x}, {scale}",
                "movupd {y}, [{b} + {i}]",
                "addpd {x}, {y}",
                "movupd [{a} + {i}], {x}",
                "add {i}, 16",
                "jnz 2b",
                a = in(reg) a.as_mut_ptr().wrapping_byte_add(bytes),
                b = in(reg) b.as_ptr().wrapping_byte_add(bytes),
                c = in(reg) c.as_ptr().wrapping_byte_add(bytes),
                i = inout(reg) bytes.wrapping_neg() => _,
                scale = inout(xmm_reg) scale => _,
                x = out(xmm_reg) _,
                y = out(xmm_reg) _,
                options(nostack),
            );
        }
    }
}

/// Measures the peaks. It takes a few seconds in which all CPUs are busy.
pub fn measure() -> Peaks {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let operations = OperationLoop::best();
    let of_operations = |threads| {
        rate(
            threads,
            || (),
            |(), rounds| {
                std::hint::black_box(operations.run(rounds));
                rounds as f64 * operations.operations as f64
            },
        )
    };
    let all_bytes = (CACHES * last_cache()).max(LEAST_BYTES);
    let of_bytes = |threads: usize| {
        rate(
            threads,
            || Triad::new(all_bytes / threads),
            |triad, rounds| {
                (0..rounds).for_each(|_| triad.run(3.0));
                rounds as f64 * size_of_val(triad.0[0].as_slice()) as f64 * 3.0
            },
        )
    };
    Peaks {
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        cpus,
        gigaflops: PeakRates { one: of_operations(1), all: of_operations(cpus) },
        gigabytes: PeakRates { one: of_bytes(1), all: of_bytes(cpus) },
        operations: format!(
            "multiplications and additions in double precision in {REGISTERS} registers ({}), the best of {ATTEMPTS}",
            operations.name
        ),
        bytes: format!(
            "a[i] = b[i] + s * c[i] of {} MB in all: 24 bytes per number, the best of {ATTEMPTS}",
            all_bytes / 1_000_000
        ),
    }
}

/// What so many threads do together per nanosecond: `work` does so many rounds with what `prepare` makes, and says how
/// much that was. The best of some attempts, each long enough for the clock.
fn rate<T>(threads: usize, prepare: impl Fn() -> T + Sync, work: impl Fn(&mut T, u64) -> f64 + Sync) -> f64 {
    let start = Barrier::new(threads);
    let measured = || {
        let mut prepared = prepare();
        // As many rounds as one thread does in that time.
        let mut rounds = 1;
        loop {
            let begin = Instant::now();
            work(&mut prepared, rounds);
            if begin.elapsed() >= SHORTEST {
                break;
            }
            rounds *= 2;
        }
        let attempt = |_| {
            start.wait();
            let begin = Instant::now();
            let done = work(&mut prepared, rounds);
            (begin, Instant::now(), done)
        };
        (0..ATTEMPTS).map(attempt).collect::<Vec<_>>()
    };
    let attempts: Vec<Vec<(Instant, Instant, f64)>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(measured)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let of_attempt = |attempt: usize| {
        let of_threads = || attempts.iter().map(|attempts| attempts[attempt]);
        let begin = of_threads().map(|(begin, ..)| begin).min();
        let end = of_threads().map(|(_, end, _)| end).max();
        let time = end.zip(begin).map_or(Duration::MAX, |(end, begin)| end - begin);
        of_threads().map(|(.., done)| done).sum::<f64>() / time.as_nanos() as f64
    };
    (0..ATTEMPTS).map(of_attempt).fold(0.0, f64::max)
}

/// Bytes of the largest cache of the first CPU; none is known in some virtual machines.
fn last_cache() -> usize {
    let size = |index: usize| {
        let text = std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size")).ok()?;
        text.trim().strip_suffix('K')?.parse::<usize>().ok()
    };
    (0..8).filter_map(size).max().unwrap_or(0) << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loops_do_what_is_counted() {
        let best = OperationLoop::best();
        // Each round adds 1 to each number.
        assert_eq!([1, 10, 1_000].map(|rounds| best.run(rounds)), [1.0, 10.0, 1_000.0]);
        // SAFETY: All processors have it.
        assert_eq!(unsafe { with_sse2(1_000) }, 1_000.0);
        let mut triad = Triad::new(24 * 1_000);
        triad.0[1].iter_mut().enumerate().for_each(|(place, number)| *number = place as f64);
        triad.run(3.0);
        let expected: Vec<f64> = (0..1_000).map(|place| f64::from(place) + 6.0).collect();
        assert_eq!(triad.0[0], expected);
    }

    #[test]
    fn a_rate_is_work_per_time() {
        let nap = Duration::from_millis(50);
        let per_nanosecond = rate(
            2,
            || (),
            |(), rounds| {
                std::thread::sleep(nap);
                rounds as f64 * 1e9
            },
        );
        // Two threads, each 10⁹ in 0.05 s.
        assert!((20.0..40.1).contains(&per_nanosecond), "{per_nanosecond}");
    }
}

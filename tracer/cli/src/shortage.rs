//! What happens when the system gives no memory, threads or descriptors: one message and status 1, where Rust would
//! panic or abort with a backtrace, for which there is no memory either; also when it refuses longer files. What was
//! written of a trace stays.

use std::alloc::{GlobalAlloc, Layout, System};
use std::panic;
use std::sync::Arc;

/// The system's allocator, which ends rtrace where it has no memory. Sizes that foreign files ask for are bounded
/// where these are read, so nobody wants to go on without.
pub struct Allocator;

// SAFETY: the system's allocator keeps the contract, and what it returns is passed on.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract.
        given(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        given(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        given(unsafe { System.realloc(block, layout, size) })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

fn given(block: *mut u8) -> *mut u8 {
    if block.is_null() {
        end(
            "rtrace: failed to get memory from the system\n\nhint: raise `ulimit -v`, or the memory limit of the cgroup\n",
        );
    }
    block
}

/// Ends rtrace with a message where the standard library would panic because it cannot start a thread. Says nothing of a
/// panic that only means that a file is damaged.
pub fn handle_missing_threads() {
    let others = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if rtrace_model::is_guarded() {
            return;
        }
        let message = panic.payload().downcast_ref::<String>();
        if message.is_some_and(|message| message.starts_with("failed to spawn thread")) {
            end(
                "rtrace: failed to start a thread\n\nhint: raise `ulimit -u` and `ulimit -v`, or the limits of the cgroup\n",
            );
        }
        others(panic);
    }));
}

/// Makes writes that go beyond `ulimit -f` fail as those on a full disk do, where a signal would end rtrace. What rtrace
/// starts gets the signal as before: a handler does not outlive `exec`.
pub fn handle_file_limit() {
    // SAFETY: asks how the signal is handled; the structure is filled where the call succeeds.
    let is_usual = unsafe {
        let mut handler = std::mem::zeroed::<libc::sigaction>();
        libc::sigaction(libc::SIGXFSZ, std::ptr::null(), &mut handler) == 0 && handler.sa_sigaction == libc::SIG_DFL
    };
    if is_usual {
        // Without it, rtrace ends as before.
        let _ = signal_hook::flag::register(libc::SIGXFSZ, Arc::default());
    }
}

/// Ends the process without a destructor, and without memory.
fn end(message: &str) -> ! {
    // SAFETY: writes bytes that are there, and ends the process.
    unsafe {
        libc::write(libc::STDERR_FILENO, message.as_ptr().cast(), message.len());
        libc::_exit(1)
    }
}

/// What helps where the system has refused something because descriptors or memory ran out, as its message tells:
/// libbpf's errors have no number of their own.
pub fn hint(message: &str) -> Option<&'static str> {
    let refused = |number: i32| message.contains(&format!("(os error {number})"));
    if refused(libc::EMFILE) {
        Some(
            "rtrace opens about 100 files, and with the mechanism `uprobe` one more per probe: raise `ulimit -n`, or select fewer functions with --func",
        )
    } else if refused(libc::ENFILE) {
        Some("raise the system's limit, `sysctl fs.file-max`, or select fewer functions with --func")
    } else if refused(libc::ENOMEM) {
        Some("raise `ulimit -v`, or the memory limit of the cgroup, or use smaller buffers with --buffer")
    } else {
        None
    }
}

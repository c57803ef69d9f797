//! Which of the kernel's abilities work here: tried, not inferred from a version.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::slice;
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread;

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};

use crate::attach::{attach_site, attach_sites};
use crate::kernel_types::leaves_out_hits;
use crate::skeleton::plain::PlainSkelBuilder;
use crate::{AttachTarget, Mechanism, Site};

/// What was tried, and what came of it.
#[derive(Debug)]
pub struct Abilities {
    /// Every mechanism, the best first, with the error of those that do not work.
    pub mechanisms: Vec<(Mechanism, Result<(), String>)>,
}

impl Abilities {
    /// The best mechanism that works.
    pub fn best(&self) -> Option<Mechanism> {
        self.mechanisms.iter().find(|(_, result)| result.is_ok()).map(|&(mechanism, _)| mechanism)
    }
}

/// The best mechanism that works.
///
/// # Errors
/// The reasons why none does.
pub fn best_mechanism() -> Result<Mechanism, String> {
    let mut reasons = Vec::new();
    for mechanism in Mechanism::ALL {
        match sees_a_call(mechanism) {
            Ok(()) => return Ok(mechanism),
            Err(error) => reasons.push(error.to_string()),
        }
    }
    Err(reasons.join("; "))
}

/// Tries every mechanism.
pub fn probe() -> Abilities {
    let mechanisms = Mechanism::ALL
        .into_iter()
        .map(|mechanism| (mechanism, sees_a_call(mechanism).map_err(|error| error.to_string())))
        .collect();
    Abilities { mechanisms }
}

/// The function that is probed.
#[inline(never)]
extern "C" fn probed(argument: u64) -> u64 {
    std::hint::black_box(argument) + 1
}

#[derive(Debug, thiserror::Error)]
enum TestFailure {
    #[error("failed to use {mechanism}: {source:#}")]
    Kernel { mechanism: &'static str, source: libbpf_rs::Error },
    #[error("failed to find rtrace's own code among its segments")]
    NotMapped,
    #[error(
        "failed to see a call on another thread than the first by {}: this kernel filters by thread instead of by \
         process, as Linux 6.6 to 6.9 do before they are updated",
        Mechanism::Multi.name()
    )]
    FiltersByThread,
    #[error(
        "failed to rely on {}: a preemptible kernel before Linux 6.0 leaves out hits without a word; Linux 6.1 or newer \
         does not, nor a kernel that is not preemptible",
        Mechanism::Single.name()
    )]
    LeavesOut,
    #[error("failed to see a call by {mechanism}: {enters} enters of 1")]
    Calls { mechanism: &'static str, enters: u64 },
}

/// Probes a function of this program itself, calls it, and looks whether that was seen.
fn sees_a_call(mechanism: Mechanism) -> Result<(), TestFailure> {
    told(move |told| try_a_call(mechanism, told))
}

/// Each waits until the probes of something that was tried are gone.
static LEFT: Mutex<Vec<Box<dyn FnOnce() + Send>>> = Mutex::new(Vec::new());

/// Waits until the probes of all that was tried are gone. A process that ends before leaves them behind in the kernel, which
/// takes out none for a thread that is killed meanwhile.
pub fn end_tries() {
    let left = std::mem::take(&mut *LEFT.lock().unwrap_or_else(PoisonError::into_inner));
    left.into_iter().for_each(|wait| wait());
}

/// What `trying` tells, while it goes on: to take probes out takes a while, for which nobody has to wait but the
/// [end](end_tries) of the process.
pub(crate) fn told<T, E>(trying: impl FnOnce(&Sender<T>) -> Result<(), E> + Send + 'static) -> Result<T, E>
where
    T: Send + 'static,
    E: Send + 'static,
{
    let (sender, told) = mpsc::channel();
    // The sender goes as soon as it fails, or is done.
    let trying = thread::spawn(move || trying(&{ sender }));
    match told.recv() {
        Ok(result) => {
            // What is wrong then concerns nobody any more.
            let wait = Box::new(move || drop(trying.join()));
            LEFT.lock().unwrap_or_else(PoisonError::into_inner).push(wait);
            Ok(result)
        }
        Err(_) => match trying.join().unwrap_or_else(|panic| resume_unwind(panic)) {
            Err(error) => Err(error),
            Ok(()) => unreachable!("it has told nothing"),
        },
    }
}

/// Why not 1 call was seen of the one that a thread has made that is not the first.
fn missed(mechanism: Mechanism, enters: u64) -> TestFailure {
    match (mechanism, enters) {
        (Mechanism::Multi, 0) => TestFailure::FiltersByThread,
        _ => TestFailure::Calls { mechanism: mechanism.name(), enters },
    }
}

/// Not on the first thread: see [`TestFailure::FiltersByThread`].
fn try_a_call(mechanism: Mechanism, told: &Sender<()>) -> Result<(), TestFailure> {
    let name = mechanism.name();
    let error = |source| TestFailure::Kernel { mechanism: name, source };
    if mechanism == Mechanism::Single && leaves_out_hits() {
        return Err(TestFailure::LeavesOut);
    }
    let (path, file_offset) = own_code(probed as *const () as usize).ok_or(TestFailure::NotMapped)?;
    let mut storage = MaybeUninit::uninit();
    let mut open = PlainSkelBuilder::default().open(&mut storage).map_err(error)?;
    open.progs.count_multi_enter.set_autoload(mechanism == Mechanism::Multi);
    open.progs.count_single_enter.set_autoload(mechanism == Mechanism::Single);
    let skel = open.load().map_err(error)?;
    let progs = &skel.progs;
    let target = AttachTarget { path: &path, pid: std::process::id() };
    let site = Site::new(file_offset, 0);
    let link = match mechanism {
        Mechanism::Multi => attach_sites(&progs.count_multi_enter, target, &[site]),
        Mechanism::Single => attach_site(&progs.count_single_enter, target, &site),
    };
    let _link = link.map_err(error)?;
    std::hint::black_box(probed(1));
    match skel.maps.bss_data.as_deref().expect("the programs have data").enters {
        1 => {
            told.send(()).expect("it is waited for");
            Ok(())
        }
        enters => Err(missed(mechanism, enters)),
    }
}

/// The file that holds the code at an address of this program, and the offset in it. The dynamic linker knows.
pub(crate) fn own_code(address: usize) -> Option<(PathBuf, u64)> {
    let mut search = TestSearch { address: address as u64, offset: None };
    // SAFETY: `find_in_program` is called before this returns, with the pointer that it expects.
    unsafe { libc::dl_iterate_phdr(Some(find_in_program), (&raw mut search).cast()) };
    // By the mapping it would take CAP_CHECKPOINT_RESTORE.
    search.offset.map(|offset| ("/proc/self/exe".into(), offset))
}

struct TestSearch {
    address: u64,
    offset: Option<u64>,
}

/// Looks among the segments of the first object, which is the program.
unsafe extern "C" fn find_in_program(object: *mut libc::dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
    // SAFETY: `own_code` passes nothing else, and has it borrowed meanwhile; the linker passes an object that stays
    // loaded, with as many program headers as it says.
    let (search, object, headers) = unsafe {
        let object = &*object;
        (&mut *search.cast::<TestSearch>(), object, slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()))
    };
    search.offset = headers.iter().filter(|header| header.p_type == libc::PT_LOAD).find_map(|header| {
        let within = search.address.checked_sub(object.dlpi_addr.wrapping_add(header.p_vaddr))?;
        (within < header.p_filesz).then(|| header.p_offset + within)
    });
    const ENOUGH: c_int = 1;
    ENOUGH
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel that filters by thread sees the calls of the first one, and would miss those of all others.
    #[test]
    fn the_call_that_decides_is_not_on_the_first_thread() {
        // SAFETY: both only return a number.
        let (process, thread) = unsafe { (libc::getpid(), told(|told| told.send(libc::gettid()))) };
        assert!(thread.is_ok_and(|thread| thread != process));
        assert!(missed(Mechanism::Multi, 0).to_string().contains("filters by thread instead of by process"));
        assert!(missed(Mechanism::Multi, 2).to_string().ends_with("2 enters of 1"));
        assert!(missed(Mechanism::Single, 0).to_string().ends_with("0 enters of 1"));
    }
}

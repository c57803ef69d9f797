//! Contexts of calls: what the kernel side has walked, and the rules by which it walks.

use std::cell::RefCell;
use std::hash::{BuildHasher as _, RandomState};
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::sync::atomic::Ordering;

use libbpf_rs::{MapCore as _, MapFlags, RingBuffer, RingBufferBuilder};
use rtrace_model::{CallerFrame, CallerStack, UnwindRule};

use crate::arrivals::{forget, write_all};
use crate::skeleton::rtrace::OpenRtraceSkel;
use crate::wire::{
    self, ArrivalKey, ContextEnd, ContextRecord, Limit, PythonFrameRecord, PythonRecord, RuleCode, RuleRecord,
    SavedCode,
};
use crate::{Error, Programs};

/// Return addresses that a context may have.
pub const MAX_LEVELS: u32 = Limit::RT_LEVELS.0;

/// Return addresses whose rules are known to the kernel side, contexts that it tells apart, and bytes of those that it
/// has for user space, most of which are copies of stacks.
const MOST_RULES: u32 = 1 << 17;
const MOST_CONTEXTS: u32 = 1 << 16;
const MOST_PYTHONS: u32 = 1 << 12;
const RING_BYTES: u32 = 8 << 20;

/// Contexts that are taken at a time. While they wait for an answer, the kernel side goes on asking: whoever took all that
/// come would answer nobody, and hold a copy of a stack for each.
const TOGETHER: usize = 16;

/// Bytes of a page of a stack.
const PAGE: usize = 4096;

/// Makes room for contexts of so many addresses; none where calls have no contexts.
pub(crate) fn configure(open: &mut OpenRtraceSkel<'_>, levels: u32) -> libbpf_rs::Result<()> {
    let data = open.maps.rodata_data.as_mut().expect("the programs have read-only data");
    data.rt_levels = levels.min(MAX_LEVELS);
    if levels == 0 {
        return Ok(());
    }
    data.context_seed = RandomState::new().hash_one(std::process::id());
    open.maps.rules.set_max_entries(MOST_RULES)?;
    open.maps.context_ids.set_max_entries(MOST_CONTEXTS)?;
    open.maps.pythons.set_max_entries(MOST_PYTHONS)?;
    open.maps.contexts.set_max_entries(RING_BYTES)
}

fn record_of(rule: UnwindRule) -> RuleRecord {
    let plain = |kind: RuleCode| RuleRecord { kind: kind.0 as u8, ..RuleRecord::default() };
    let (stack, frame) = match rule {
        UnwindRule::Up(stack, frame) => (stack, frame),
        UnwindRule::Outermost => return plain(RuleCode::RT_RULE_OUTERMOST),
        UnwindRule::Signal => return plain(RuleCode::RT_RULE_SIGNAL),
        UnwindRule::Unknown => return plain(RuleCode::RT_RULE_NONE),
    };
    let (kind, offset) = match stack {
        CallerStack::AboveStack(offset) => (RuleCode::RT_RULE_STACK, offset),
        CallerStack::AboveFrame(offset) => (RuleCode::RT_RULE_FRAME, offset),
        CallerStack::StoredAboveFrame(offset) => (RuleCode::RT_RULE_STORED, offset),
    };
    let (saved, saved_at) = match frame {
        CallerFrame::Untouched => (SavedCode::RT_SAVED_UNTOUCHED, 0),
        CallerFrame::AboveStack(offset) => (SavedCode::RT_SAVED_BY_STACK, offset),
        CallerFrame::AboveFrame(offset) => (SavedCode::RT_SAVED_BY_FRAME, offset),
        CallerFrame::Nowhere => (SavedCode::RT_SAVED_NOWHERE, 0),
    };
    RuleRecord { saved: saved.0 as u8, offset, saved_at, ..plain(kind) }
}

/// A context, as far as the kernel side has walked.
#[derive(Clone, Debug)]
pub struct Walked {
    /// Its number; 0: it is none, but its thread waits until it is said whether there is an interpreter of Python.
    pub id: u32,
    /// The process and its address space.
    pub pid: u32,
    /// The number of the address space.
    pub space: u32,
    /// The return addresses, the innermost first.
    pub addresses: Vec<u64>,
    /// Whether the code around the call, and that at each address, is of Python's interpreter.
    pub interprets: Vec<bool>,
    /// What the interpreter runs, where it was known to the kernel side.
    pub python: Option<PythonStack>,
    /// Why there are no more addresses.
    pub end: ContextEnd,
    /// Where the walk goes on, if user space can.
    pub rest: Option<Rest>,
}

/// A frame of a Python function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PythonFrame {
    /// Address of the code object.
    pub code: u64,
    /// Of the instruction, in bytes from the first one of the code object.
    pub offset: u32,
    /// What tells the code object from others that are at its address at other times.
    pub identity: u32,
}

/// What a call of Python's interpreter runs.
#[derive(Clone, Debug)]
pub struct PythonRun {
    /// The frames, the innermost first.
    pub frames: Vec<PythonFrame>,
    /// Whether there are more.
    pub is_cut: bool,
    /// The address of a variable of the interpreter in this call.
    pub call: u64,
}

/// The Python functions that led to a call.
#[derive(Clone, Debug)]
pub struct PythonStack {
    /// Each call of the interpreter, the innermost first.
    pub runs: Vec<PythonRun>,
    /// There are more.
    pub is_cut: bool,
    /// Those that the kernel side has met on the stack.
    pub passed: usize,
}

impl PythonStack {
    fn read(record: &ContextRecord) -> Option<PythonStack> {
        let entries = record.python.get(..record.frames.into()).filter(|_| record.is_python != 0)?;
        let (mut runs, mut frames) = (Vec::new(), Vec::new());
        for &PythonFrameRecord { code, key } in entries {
            match code {
                0 => runs.push(PythonRun { frames: std::mem::take(&mut frames), is_cut: key & 1 == 1, call: key & !1 }),
                _ => frames.push(PythonFrame { code, offset: key as u32, identity: (key >> 32) as u32 }),
            }
        }
        Some(PythonStack { runs, is_cut: !frames.is_empty(), passed: record.passed as usize })
    }
}

/// A stack from where the kernel side knew no rule.
#[derive(Clone, Debug)]
pub struct Rest {
    /// The return address without a rule: the call's own, or the last one of the context.
    pub word: u64,
    /// The stack pointer as a return to it leaves it.
    pub sp: u64,
    /// The frame pointer there, where it is known.
    pub bp: Option<u64>,
    /// Where the walk ends: the slot of the return address of a traced function; 0: at the end of the stack.
    pub limit: u64,
    start: u64,
    pages: u64,
    bytes: Vec<u8>,
}

impl Rest {
    /// The stack of a sample, behind its place: the walk goes on with the byte behind the sampled instruction, as if that
    /// were a call that returns there. Empty where the record is cut.
    pub(crate) fn of_sample(bytes: &[u8]) -> Rest {
        let (words, bytes) = bytes.split_at_checked(5 * size_of::<u64>()).unwrap_or_default();
        let mut words = words.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")));
        let mut next = || words.next().unwrap_or_default();
        let (ip, sp, bp, start, pages) = (next(), next(), next(), next(), next());
        Rest { word: ip.saturating_add(1), sp, bp: Some(bp), limit: 0, start, pages, bytes: bytes.to_vec() }
    }

    /// The word at an address of the stack.
    pub fn word_at(&self, address: u64) -> Option<u64> {
        let place = usize::try_from(address.checked_sub(self.start)?).ok()?;
        let bytes = self.bytes.get(place..place.checked_add(8)?)?;
        let is_read = |place: usize| self.pages >> (place / PAGE) & 1 == 1;
        let word = u64::from_ne_bytes(bytes.try_into().ok()?);
        (is_read(place) && is_read(place + 7)).then_some(word)
    }

    /// Whether the copy ends before that address.
    pub fn ends_before(&self, address: u64) -> bool {
        address.saturating_sub(self.start).saturating_add(8) > self.bytes.len() as u64
    }
}

impl Walked {
    /// The record of one; `None` where it is none.
    fn read(bytes: &[u8]) -> Option<Walked> {
        const SIZE: usize = size_of::<ContextRecord>();
        let mut front = [0; SIZE];
        let length = bytes.len().min(SIZE);
        front[..length].copy_from_slice(&bytes[..length]);
        let record: ContextRecord = wire::decode(&front).ok()?;
        let addresses = record.address.get(..record.count as usize)?.to_vec();
        if length < SIZE - size_of_val(&record.address) + size_of_val(&*addresses) {
            return None;
        }
        let rest = bytes.get(SIZE..).filter(|rest| !rest.is_empty());
        let rest = rest.and_then(|rest| {
            let (words, bytes) = rest.split_at_checked(3 * size_of::<u64>())?;
            let mut words = words.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")));
            let (limit, start, pages) = (words.next()?, words.next()?, words.next()?);
            let bp = (record.has_bp != 0).then_some(record.bp);
            Some(Rest { word: record.word, sp: record.sp, bp, limit, start, pages, bytes: bytes.to_vec() })
        });
        let interprets = (0..=addresses.len()).map(|place| record.interprets[place / 64] >> (place % 64) & 1 == 1);
        let (interprets, python) = (interprets.collect(), PythonStack::read(&record));
        let ContextRecord { id, pid, space, end, .. } = record;
        Some(Walked { id, pid, space, addresses, interprets, python, end: ContextEnd(end), rest })
    }
}

impl Programs {
    /// Return addresses of a context at most; 0 where calls have none.
    pub fn levels(&self) -> u32 {
        self.levels
    }

    /// Tells the kernel side how frames are left, by return address. It has no room for more where that fails: then it
    /// asks whenever it meets one.
    pub fn set_rules(&self, space: u32, rules: &[(u64, UnwindRule)]) {
        let pairs = rules.iter().map(|&(address, rule)| (key(space, address), record_of(rule)));
        let _ = write_all(&self.skel.maps.rules, pairs);
    }

    /// Tells the kernel side where the interpreter of an address space has its frames, or that there is none. Where it has no
    /// room for more, contexts of the space have no Python functions.
    pub fn set_python(&self, space: u32, python: Option<PythonRecord>) {
        let record = python.unwrap_or_default();
        if python.is_some() {
            // Before a thread that waits for the entry goes on.
            self.shared.reading_python.store(1, Ordering::Release);
        }
        let _ = self.skel.maps.pythons.update(&space.to_ne_bytes(), wire::bytes_of(&record), MapFlags::ANY);
    }

    /// Lets the kernel side ask about these return addresses when it meets them next.
    ///
    /// # Errors
    /// [`Error::Kernel`].
    pub fn forget_rules(&self, space: u32, addresses: impl Iterator<Item = u64>) -> Result<(), Error> {
        let error = || Error::kernel("forget how frames are left");
        for address in addresses {
            forget(&self.skel.maps.rules, &key(space, address)).map_err(error())?;
        }
        Ok(())
    }

    /// Looks for the contexts of calls from now on, which somebody must [read](Programs::contexts).
    pub fn walk_stacks(&self) {
        self.shared.walking_stacks.store(1, Ordering::Relaxed);
    }

    /// A reader of contexts.
    ///
    /// # Errors
    /// [`Error::Kernel`] if the ring cannot be mapped.
    pub fn contexts(&self) -> Result<ContextReader<'_>, Error> {
        let pending = Rc::new(RefCell::new(PendingContext::default()));
        let filled = Rc::clone(&pending);
        let take = move |bytes: &[u8]| {
            let mut filled = filled.borrow_mut();
            match Walked::read(bytes) {
                Some(walked) => filled.walked.push(walked),
                None => filled.bad_records += 1,
            }
            0
        };
        let mut builder = RingBufferBuilder::new();
        builder.add(&self.skel.maps.contexts, take).map_err(Error::kernel("map the ring of contexts"))?;
        let ring = builder.build().map_err(Error::kernel("map the ring of contexts"))?;
        Ok(ContextReader { ring, pending })
    }
}

fn key(space: u32, address: u64) -> ArrivalKey {
    ArrivalKey { address, space, ..ArrivalKey::default() }
}

#[derive(Default)]
struct PendingContext {
    walked: Vec<Walked>,
    bad_records: u64,
}

/// Contexts that the kernel side has met for the first time.
pub struct ContextReader<'a> {
    ring: RingBuffer<'a>,
    pending: Rc<RefCell<PendingContext>>,
}

impl AsFd for ContextReader<'_> {
    /// It can be read while there are some.
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring keeps its descriptor open.
        unsafe { BorrowedFd::borrow_raw(self.ring.epoll_fd()) }
    }
}

impl ContextReader<'_> {
    /// Some of those that there are, and how many records could not be understood; none of either where there are no
    /// more.
    ///
    /// # Errors
    /// [`Error::Kernel`] if the ring cannot be read.
    pub fn take(&mut self) -> Result<(Vec<Walked>, u64), Error> {
        let taken = self.ring.consume_raw_n(TOGETHER);
        if taken < 0 {
            let error = libbpf_rs::Error::from_raw_os_error(-taken);
            return Err(Error::kernel("read the ring of contexts")(error));
        }
        let PendingContext { walked, bad_records } = std::mem::take(&mut *self.pending.borrow_mut());
        Ok((walked, bad_records))
    }
}

//! The requests of a process: what began them, and what ends them.
//!
//! A handle is used again when its request has ended. Whoever waits for it means the last request that was begun before.

use std::collections::HashMap;

use rtrace_model::Timestamp;

use super::CallTime;
use super::calls::AskedEnd;
use super::event::Collective;
use super::files::FileOperation;

/// What a request has begun.
#[derive(Clone, Copy, Debug)]
pub(super) enum Begun {
    Send(AskedEnd),
    Recv(AskedEnd),
    Collective(Collective),
    /// An access to memory of another rank, by its number.
    Access(u64),
    File(FileOperation),
}

/// A request of a process.
#[derive(Clone, Copy, Debug)]
struct PendingRequest {
    /// Since when its handle is known.
    since: Timestamp,
    begun: Begun,
    /// The call that began it, and its number, while it is running.
    running: Option<(CallTime, Option<u64>)>,
    is_persistent: bool,
    is_cancelled: bool,
}

/// A request that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) begun: Begun,
    pub(super) posted: CallTime,
    pub(super) number: Option<u64>,
    pub(super) is_cancelled: bool,
}

/// The requests of a process.
#[derive(Debug, Default)]
pub(super) struct RequestTable {
    by_handle: HashMap<i64, Vec<PendingRequest>>,
    /// Requests that ended without a call that says so.
    lost: u64,
}

impl RequestTable {
    /// A call gave a handle when it returned.
    pub(super) fn add(&mut self, handle: i64, since: Timestamp, begun: Begun, at: CallTime, number: Option<u64>) {
        self.put(
            handle,
            PendingRequest { since, begun, running: Some((at, number)), is_persistent: false, is_cancelled: false },
        );
    }

    /// A call gave the handle of what can be started any number of times.
    pub(super) fn prepare(&mut self, handle: i64, since: Timestamp, begun: Begun) {
        self.put(handle, PendingRequest { since, begun, running: None, is_persistent: true, is_cancelled: false });
    }

    /// What has a handle gets another one from then on.
    pub(super) fn rename(&mut self, handle: i64, at: CallTime, new: i64, since: Timestamp) {
        if let Some(Ended { begun, posted, number, .. }) = self.end(handle, at) {
            self.add(new, since, begun, posted, number);
        }
    }

    fn put(&mut self, handle: i64, request: PendingRequest) {
        let of_handle = self.by_handle.entry(handle).or_default();
        of_handle.retain(|known| known.running.is_some());
        of_handle.push(request);
        of_handle.sort_by_key(|request| request.since);
    }

    fn find(&mut self, handle: i64, time: Timestamp) -> Option<&mut PendingRequest> {
        self.by_handle.get_mut(&handle)?.iter_mut().rfind(|request| request.since <= time)
    }

    /// What a persistent request begins each time.
    pub(super) fn prepared(&self, handle: i64, time: Timestamp) -> Option<Begun> {
        let request = self.by_handle.get(&handle)?.iter().rfind(|request| request.since <= time)?;
        request.is_persistent.then_some(request.begun)
    }

    /// A persistent request begins again.
    pub(super) fn start(&mut self, handle: i64, posted: CallTime, number: Option<u64>) {
        let Some(request) = self.find(handle, posted.start) else { return };
        let before = request.running.replace((posted, number));
        self.lost += u64::from(before.is_some_and(|(_, number)| number.is_some()));
    }

    /// The request of that handle ends in a call; `None` if none is running.
    ///
    /// Messages that were sent at once have one handle together: the first of the thread's own ends first. Of others only
    /// the last can be meant: those before it ended unseen.
    pub(super) fn end(&mut self, handle: i64, at: CallTime) -> Option<Ended> {
        let time = at.start;
        let of_handle = self.by_handle.get_mut(&handle)?;
        let running = |request: &&mut PendingRequest| request.since <= time && request.running.is_some();
        let mut candidates: Vec<&mut PendingRequest> = of_handle.iter_mut().filter(running).collect();
        let last = candidates.iter().rposition(|request| request.is_single());
        for ended in candidates.iter_mut().take(last.unwrap_or(0)) {
            ended.running = None;
            self.lost += u64::from(ended.is_single());
        }
        let is_own = |request: &&mut PendingRequest| request.running.is_some_and(|(of, _)| of.location == at.location);
        let ended = last.or_else(|| candidates.iter().position(is_own)).unwrap_or(0);
        let request = candidates.into_iter().nth(ended)?;
        let (posted, number) = request.running.take()?;
        let (begun, is_cancelled) = (request.begun, std::mem::take(&mut request.is_cancelled));
        Some(Ended { begun, posted, number, is_cancelled })
    }

    /// The handles of the requests that run when a call begins, each as often as there are such requests, by age.
    pub(super) fn running_before(&self, time: Timestamp) -> Vec<i64> {
        let of_handle = |(&handle, all): (&i64, &Vec<PendingRequest>)| {
            let running = all.iter().filter(|request| request.since <= time && request.running.is_some());
            running.map(|request| (request.since, handle)).collect::<Vec<_>>()
        };
        let mut running: Vec<(Timestamp, i64)> = self.by_handle.iter().flat_map(of_handle).collect();
        running.sort_unstable();
        running.into_iter().map(|(_, handle)| handle).collect()
    }

    /// Whether a request of that handle runs then.
    pub(super) fn is_running(&self, handle: i64, time: Timestamp) -> bool {
        let of_handle = self.by_handle.get(&handle);
        of_handle.is_some_and(|all| all.iter().any(|request| request.since <= time && request.is_running()))
    }

    pub(super) fn cancel(&mut self, handle: i64, time: Timestamp) {
        if let Some(request) = self.find(handle, time) {
            request.is_cancelled = true;
        }
    }

    /// The handle means nothing any more. What it has begun goes on, and nobody learns when it ends.
    pub(super) fn free(&mut self, handle: i64, _: Timestamp) {
        let requests = self.by_handle.remove(&handle).unwrap_or_default();
        self.lost += requests.iter().filter(|request| request.is_running()).count() as u64;
    }

    /// Requests whose end was not seen.
    pub(super) fn unfinished(&self) -> u64 {
        let running = self.by_handle.values().flatten().filter(|request| request.is_running()).count();
        running as u64 + self.lost
    }
}

impl PendingRequest {
    /// Whether a message has begun that has not ended.
    fn is_running(&self) -> bool {
        self.running.is_some_and(|(_, number)| number.is_some())
    }

    /// Whether no other that runs has its handle.
    fn is_single(&self) -> bool {
        self.is_persistent || (self.is_running() && matches!(self.begun, Begun::Recv(_)))
    }
}

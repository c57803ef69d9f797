//! From calls to records of messages.
//!
//! The calls of a process come in the order in which they begin. Memory grows with the requests and accesses that have not
//! ended, and not with the calls.

use std::collections::HashMap;

use rtrace_model::{FunctionEvent, LocationId, Role, Timestamp};

use super::CallTime;
use super::accesses::{AccessEnd, AccessKey, Accesses};
use super::calls::{AskedEnd, MessageCall, ProcessKey};
use super::communicators::{CommunicatorId, Communicators, HANDLES, WindowId};
use super::event::{Collective, Completion, MessageEvent, MessageGaps, MessageKind, Size, Transfer};
use super::files::OpenFiles;
use super::requests::{Begun, RequestTable};

/// The records of the calls of one trace, which are sorted by time.
pub(super) fn records(
    calls: &[MessageCall],
    processes: &HashMap<LocationId, ProcessKey>,
    communicators: &Communicators,
) -> (Vec<MessageEvent>, MessageGaps) {
    let mut recorder = Recorder::new(communicators);
    for call in calls {
        if let Some(&process) = processes.get(&call.at.location) {
            recorder.call(process, call);
        }
    }
    let mut events = std::mem::take(&mut recorder.events);
    events.sort_by_key(|event| (event.at.location, event.at.call, event.at_exit));
    (events, recorder.gaps())
}

/// Follows the requests and accesses of processes.
pub(super) struct Recorder<'a> {
    communicators: &'a Communicators,
    requests: HashMap<ProcessKey, RequestTable>,
    accesses: HashMap<ProcessKey, Accesses>,
    files: HashMap<ProcessKey, OpenFiles>,
    /// When the call of each thread returns that is not within another.
    outermost: HashMap<LocationId, Timestamp>,
    numbers: u64,
    pub(super) events: Vec<MessageEvent>,
    gaps: MessageGaps,
}

/// What a status says of a message that was received.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReceivedStatus {
    pub(super) source: Option<i64>,
    pub(super) tag: Option<i64>,
    pub(super) bytes: Option<u64>,
}

/// The other end of a message.
pub(super) enum Other {
    Known(Transfer),
    /// There is none: nothing is sent.
    Nobody,
    /// It is in a communicator whose members are not known.
    Elsewhere,
    /// It may be any.
    Unknown,
}

impl<'a> Recorder<'a> {
    pub(super) fn new(communicators: &'a Communicators) -> Recorder<'a> {
        Recorder {
            communicators,
            requests: HashMap::new(),
            accesses: HashMap::new(),
            files: HashMap::new(),
            outermost: HashMap::new(),
            numbers: 0,
            events: Vec::new(),
            gaps: MessageGaps::default(),
        }
    }

    /// What is not known, when all calls have come.
    pub(super) fn gaps(self) -> MessageGaps {
        let unfinished = self.requests.values().map(RequestTable::unfinished).sum::<u64>();
        MessageGaps { unseen_ends: self.gaps.unseen_ends + unfinished, ..self.gaps }
    }
}

impl Recorder<'_> {
    /// Adds the records of a call, in the order of their times.
    pub(super) fn call(&mut self, process: ProcessKey, call: &MessageCall) {
        use FunctionEvent as E;
        if self.is_within_another(call.at) || call.has_failed() {
            return;
        }
        let sent = AskedEnd::of(call, [Role::Peer, Role::Tag, Role::Bytes]);
        match call.event {
            E::Send => self.blocking(process, call, sent, None),
            E::Recv => self.blocking(process, call, sent, Some(ReceivedStatus::of(call))),
            E::SendRecv => {
                self.blocking(process, call, sent, None);
                let received = AskedEnd::of(call, [Role::RecvPeer, Role::RecvTag, Role::Posted]);
                self.blocking(process, call, received, Some(ReceivedStatus::of(call)));
            }
            E::Isend => self.begin(process, call, Begun::Send(sent), false),
            E::Irecv if call.has(Role::Handle) => self.go_on(process, call),
            E::Irecv => self.begin(process, call, Begun::Recv(sent), false),
            E::Probe => self.probe(process, call, sent),
            E::SendInit => self.begin(process, call, Begun::Send(sent), true),
            E::RecvInit => self.begin(process, call, Begun::Recv(sent), true),
            E::Start => self.start(process, call),
            E::Wait | E::Test => self.finish(process, call),
            E::Cancel => self.each(process, call, RequestTable::cancel),
            E::RequestFree => self.each(process, call, RequestTable::free),
            E::RmaPut | E::RmaGet | E::RmaAtomic | E::RmaIput | E::RmaIget | E::RmaIatomic => {
                self.access(process, call);
            }
            E::RmaComplete => self.complete(process, call, AccessEnd::Everywhere),
            E::RmaCompleteHere => self.complete(process, call, AccessEnd::Here),
            E::RmaUnlock => {
                self.complete(process, call, AccessEnd::Everywhere);
                self.lock(process, call);
            }
            E::RmaLock => self.lock(process, call),
            E::CommunicatorCreate | E::IntercommunicatorCreate | E::CommunicatorFree => self.handle(process, call),
            event if event.is_io() => self.file(process, call),
            event if event.is_collective() => {
                match event {
                    E::RmaFence | E::WindowFree => self.complete(process, call, AccessEnd::Epoch),
                    // Without windows, a barrier ends accesses, too.
                    E::Barrier if self.communicators.is_without_windows(call.at.region) => {
                        self.complete(process, call, AccessEnd::Everywhere);
                    }
                    _ => {}
                }
                self.collective(process, call);
            }
            _ => {}
        }
    }

    /// Whether a call is made by one that is on record itself, which says all of what it does: a library opens a file by
    /// messages of its own.
    fn is_within_another(&mut self, at: CallTime) -> bool {
        let outermost = self.outermost.entry(at.location).or_default();
        let is_within = at.start < *outermost && at.end.is_none_or(|end| end <= *outermost);
        *outermost = (*outermost).max(at.end.unwrap_or(at.start));
        is_within
    }

    fn put(&mut self, at: CallTime, at_exit: bool, kind: MessageKind) {
        self.events.push(MessageEvent { at, at_exit, kind });
    }

    fn blocking(&mut self, process: ProcessKey, call: &MessageCall, asked: AskedEnd, status: Option<ReceivedStatus>) {
        match self.other(process, asked, status) {
            Other::Known(transfer) if status.is_none() => self.put(call.at, false, MessageKind::Send(transfer)),
            Other::Known(transfer) => self.put(call.at, true, MessageKind::Recv(transfer)),
            Other::Nobody => {}
            Other::Elsewhere => self.gaps.unknown_communicators += 1,
            Other::Unknown if status.is_none() => self.gaps.unknown_sends += 1,
            Other::Unknown => self.gaps.unknown_receives += 1,
        }
    }

    /// A message that a probe has found is received by a request.
    fn go_on(&mut self, process: ProcessKey, call: &MessageCall) {
        let handles = call.value(Role::Handle).zip(call.value(Role::Request)).zip(call.at.end);
        let requests = self.requests.entry(process).or_default();
        match handles {
            Some(((message, request), end)) => requests.rename(message, call.at, request, end),
            None => self.gaps.unseen_ends += 1,
        }
    }

    fn probe(&mut self, process: ProcessKey, call: &MessageCall, asked: AskedEnd) {
        if call.value(Role::Flag) == Some(0) {
            return;
        }
        let status = ReceivedStatus::of(call);
        if let Other::Known(transfer) = self.other(process, asked, Some(status)) {
            self.put(call.at, true, MessageKind::Probed(transfer));
        }
        if call.has(Role::Request) {
            // Which message it receives is known, whether or not the program asks again.
            let (peer, tag) = (status.source.or(asked.peer), status.tag.or(asked.tag));
            self.begin(process, call, Begun::Recv(AskedEnd { peer, tag, bytes: status.bytes, ..asked }), false);
        }
    }

    fn begin(&mut self, process: ProcessKey, call: &MessageCall, begun: Begun, is_persistent: bool) {
        let handle = call.value(Role::Request);
        let number = if is_persistent { None } else { self.started(process, call.at, begun) };
        let Some((handle, end)) = handle.zip(call.at.end) else {
            self.gaps.unseen_ends += u64::from(number.is_some());
            return;
        };
        let requests = self.requests.entry(process).or_default();
        match is_persistent {
            true => requests.prepare(handle, end, begun),
            false => requests.add(handle, end, begun, call.at, number),
        }
    }

    /// A request begins: its number, if it is one whose message can be told.
    fn started(&mut self, process: ProcessKey, at: CallTime, begun: Begun) -> Option<u64> {
        let number = self.numbers;
        let kind = match begun {
            Begun::Access(_) | Begun::File(_) => return Some(number),
            Begun::Collective(collective) => MessageKind::CollectiveRequest { collective, request: number },
            Begun::Recv(asked) => match self.other(process, asked, Some(ReceivedStatus::default())) {
                Other::Nobody => return None,
                Other::Elsewhere => {
                    self.gaps.unknown_communicators += 1;
                    return None;
                }
                Other::Known(transfer) => MessageKind::IrecvRequest { request: number, asked: Some(transfer) },
                Other::Unknown => MessageKind::IrecvRequest { request: number, asked: None },
            },
            Begun::Send(asked) => match self.other(process, asked, None) {
                Other::Known(transfer) => MessageKind::Isend { transfer, request: number },
                Other::Nobody => return None,
                Other::Elsewhere => {
                    self.gaps.unknown_communicators += 1;
                    return None;
                }
                Other::Unknown => {
                    self.gaps.unknown_sends += 1;
                    return None;
                }
            },
        };
        self.numbers += 1;
        self.put(at, false, kind);
        Some(number)
    }

    fn start(&mut self, process: ProcessKey, call: &MessageCall) {
        let handles: Vec<Option<i64>> = call.all(Role::Request).collect();
        self.gaps.unseen_ends += unseen(call, handles.len());
        for handle in handles {
            let known = handle.and_then(|handle| {
                let requests = self.requests.get(&process)?;
                Some((handle, requests.prepared(handle, call.at.start)?))
            });
            let Some((handle, begun)) = known else {
                self.gaps.unseen_begins += 1;
                continue;
            };
            let number = self.started(process, call.at, begun);
            self.requests.entry(process).or_default().start(handle, call.at, number);
        }
    }

    fn each(&mut self, process: ProcessKey, call: &MessageCall, act: fn(&mut RequestTable, i64, Timestamp)) {
        let requests = self.requests.entry(process).or_default();
        call.all(Role::Request).flatten().for_each(|handle| act(requests, handle, call.at.start));
    }

    /// A call that waits for requests, or asks whether they have ended.
    fn finish(&mut self, process: ProcessKey, call: &MessageCall) {
        let handles: Vec<Option<i64>> = call.all(Role::Request).collect();
        let Some(ended) = ended(call, handles.len()) else {
            let requests = self.requests.get(&process);
            let running = |handle: &Option<i64>| match handle.zip(requests) {
                Some((handle, requests)) => requests.is_running(handle, call.at.start),
                None => handle.is_none(),
            };
            self.gaps.unseen_ends += u64::from(handles.iter().any(running));
            return;
        };
        let statuses = [Role::Source, Role::SourceTag, Role::Received].map(|role| call.all(role).collect::<Vec<_>>());
        for (place, which) in ended.into_iter().enumerate() {
            let of_status = |role: usize| statuses[role].get(place).copied().flatten();
            let status = ReceivedStatus {
                source: of_status(0),
                tag: of_status(1),
                bytes: of_status(2).and_then(|bytes| u64::try_from(bytes).ok()),
            };
            match handles.get(which) {
                Some(Some(handle)) => self.end(process, call, *handle, status),
                _ => self.gaps.unseen_ends += 1,
            }
        }
        if call.value(Role::Flag) != Some(0) && !call.has(Role::Index) {
            self.end_others(process, call, unseen(call, handles.len()));
        }
    }

    /// A call has ended so many requests that are not on record. If there are no others than so many, it was these.
    fn end_others(&mut self, process: ProcessKey, call: &MessageCall, count: u64) {
        let running = match self.requests.get_mut(&process) {
            Some(requests) if count > 0 => requests.running_before(call.at.start),
            _ => Vec::new(),
        };
        if running.len() as u64 != count {
            self.gaps.unseen_ends += count;
            return;
        }
        for handle in running {
            self.end(process, call, handle, ReceivedStatus::default());
        }
    }

    fn end(&mut self, process: ProcessKey, call: &MessageCall, handle: i64, status: ReceivedStatus) {
        let Some(requests) = self.requests.get_mut(&process) else { return };
        let Some(ended) = requests.end(handle, call.at) else { return };
        let (Some(request), posted) = (ended.number, ended.posted) else { return };
        match ended.begun {
            Begun::Collective(collective) => {
                self.put(call.at, true, MessageKind::CollectiveComplete { collective, request });
            }
            Begun::Access(access) => {
                let ended = self.accesses.get_mut(&process).map(|accesses| accesses.end_request(access));
                ended.into_iter().flatten().for_each(|kind| self.put(call.at, true, kind));
            }
            Begun::File(operation) => self.put(call.at, true, operation.done(status.bytes)),
            Begun::Send(_) => self.put(call.at, true, MessageKind::IsendComplete { request }),
            Begun::Recv(asked) => match self.other(process, asked, Some(status)) {
                // MPICH says the same of a receive that was undone as of one that got nothing.
                Other::Known(Transfer { size: Size::Exact(0), .. }) if ended.is_cancelled => {
                    self.gaps.unknown_receives += 1;
                }
                Other::Known(transfer) => {
                    self.put(call.at, true, MessageKind::Irecv { transfer, request, posted });
                }
                // A receive that was undone has no source.
                _ if ended.is_cancelled => self.put(call.at, true, MessageKind::IrecvCancelled { request }),
                Other::Nobody | Other::Elsewhere => {}
                Other::Unknown => self.gaps.unknown_receives += 1,
            },
        }
    }

    fn other(&self, process: ProcessKey, asked: AskedEnd, status: Option<ReceivedStatus>) -> Other {
        let of_status = status.unwrap_or_default();
        let (peer, tag) = (of_status.source.or(asked.peer), of_status.tag.or(asked.tag));
        let Some((called, time)) = asked.communicator else { return Other::Unknown };
        let Some(peer) = peer else { return Other::Unknown };
        let is_nobody = |peer| is_nobody(peer, called) || (status.is_none() && peer < 0);
        if is_nobody(peer) || asked.peer.is_some_and(is_nobody) {
            return Other::Nobody;
        }
        if self.communicators.is_elsewhere(process, called, time) {
            return Other::Elsewhere;
        }
        let size = match (status, of_status.bytes, asked.bytes) {
            (Some(_), Some(bytes), _) | (None, _, Some(bytes)) => Size::Exact(bytes),
            (Some(_), None, Some(bytes)) => Size::Posted(bytes),
            (_, _, None) => Size::Unknown,
        };
        let communicator = self.communicators.find(process, called, time);
        let peer = communicator.and_then(|id| self.communicators.peer(process, id, peer));
        match (communicator, peer, tag.and_then(|tag| i32::try_from(tag).ok())) {
            (Some(communicator), Some(peer), Some(tag @ 0..)) => {
                Other::Known(Transfer { peer, tag, communicator, size })
            }
            _ => Other::Unknown,
        }
    }

    fn collective(&mut self, process: ProcessKey, call: &MessageCall) {
        use FunctionEvent::{RmaFence, WindowCreate, WindowFree};
        let window = self.window(process, call);
        let communicator = match window {
            Some(window) => self.communicators.windows().get(window.0 as usize).map(|window| window.communicator),
            None if matches!(call.event, RmaFence | WindowCreate | WindowFree) => None,
            None => self.communicator(process, call),
        };
        // Without communicators, some ranks may do it among themselves.
        let is_all = call.unsigned(Role::Count).is_none_or(|ranks| ranks == u64::from(self.communicators.size()));
        let Some(communicator) = communicator.filter(|_| window != Some(WindowId::WORLD) || is_all) else {
            let is_elsewhere = |called| self.communicators.is_elsewhere(process, called, call.at.start);
            match call.event {
                // What is made is not known either, which counts where it is used.
                WindowCreate => {}
                RmaFence | WindowFree => self.gaps.unknown_communicators += 1,
                _ if call.value(Role::Communicator).is_some_and(is_elsewhere) => self.gaps.unknown_communicators += 1,
                _ => self.gaps.unknown_others += 1,
            }
            return;
        };
        let root = call.value(Role::Root).and_then(|root| self.communicators.peer(process, communicator, root));
        let own = self.communicators.rank_of(process);
        let of = self.communicators.all().get(communicator.0 as usize);
        let (sent, received) = of.zip(own).map_or((Size::Unknown, Size::Unknown), |(of, own)| {
            let place = of.members.iter().position(|member| *member == own).unwrap_or(0) as u64;
            volumes(call, root == Some(own), place, of.peers_of(own).len() as u64)
        });
        let collective = Collective { event: call.event, communicator, window, root, sent, received };
        match call.has(Role::Request) {
            true => self.begin(process, call, Begun::Collective(collective), false),
            false => self.put(call.at, false, MessageKind::Collective(collective)),
        }
    }

    fn access(&mut self, process: ProcessKey, call: &MessageCall) {
        use FunctionEvent as E;
        let (window, rank) = (self.window(process, call), call.value(Role::Peer));
        if rank.is_some_and(|rank| rank < 0) {
            return;
        }
        let Some((window, target)) = window.zip(self.target(process, window, rank)) else {
            self.gaps.unknown_others += 1;
            return;
        };
        let size = call.unsigned(Role::Bytes).map_or(Size::Unknown, Size::Exact);
        let (event, mut access) = (call.event, self.numbers);
        self.numbers += 1;
        let is_blocking = matches!(event, E::RmaPut | E::RmaGet | E::RmaAtomic);
        // What is read is there when the call returns.
        if !is_blocking || event == E::RmaPut {
            let request = call.has(Role::Request).then_some(access);
            let key = AccessKey { window, rank, request, is_read: matches!(event, E::RmaGet | E::RmaIget) };
            access = self.accesses.entry(process).or_default().begin(key, access, is_blocking);
        }
        self.put(call.at, false, MessageKind::Access { event, target, size, window, access });
        if is_blocking {
            self.put(call.at, true, MessageKind::AccessComplete { window, access, completion: Completion::Call });
        }
        if call.has(Role::Request) {
            self.begin(process, call, Begun::Access(access), false);
        }
    }

    /// The communicator that a call says.
    fn communicator(&self, process: ProcessKey, call: &MessageCall) -> Option<CommunicatorId> {
        self.communicators.find(process, call.value(Role::Communicator)?, call.at.start)
    }

    /// The window that a call says, or makes.
    fn window(&self, process: ProcessKey, call: &MessageCall) -> Option<WindowId> {
        let find = |called: Option<i64>, time| self.communicators.find_window(process, called?, time?);
        match (call.has(Role::NewHandle), call.has(Role::Handle)) {
            (true, _) => find(call.value(Role::NewHandle), call.at.end),
            (false, true) => find(call.value(Role::Handle), Some(call.at.start)),
            (false, false) => self.communicators.is_without_windows(call.at.region).then_some(WindowId::WORLD),
        }
    }

    /// The rank in the world of one that a call with a window says.
    fn target(&self, process: ProcessKey, window: Option<WindowId>, rank: Option<i64>) -> Option<u32> {
        let window = self.communicators.windows().get(window?.0 as usize)?;
        self.communicators.peer(process, window.communicator, rank?)
    }

    /// Accesses to one rank, or to all, begin or end.
    fn lock(&mut self, process: ProcessKey, call: &MessageCall) {
        let (window, rank) = (self.window(process, call), call.value(Role::Peer));
        let target = self.target(process, window, rank);
        match window.filter(|_| target.is_some() || !call.has(Role::Peer)) {
            Some(window) => {
                let is_over = call.event == FunctionEvent::RmaUnlock;
                self.put(call.at, is_over, MessageKind::Lock { window, target, is_over });
            }
            None if rank.is_some_and(|rank| rank < 0) => {}
            None => self.gaps.unknown_communicators += 1,
        }
    }

    /// A call of all ranks of a communicator that makes one of it, or frees it.
    fn handle(&mut self, process: ProcessKey, call: &MessageCall) {
        if let Some(communicator) = self.communicator(process, call) {
            let is_made = call.event != FunctionEvent::CommunicatorFree;
            self.put(call.at, true, MessageKind::Handle { communicator, is_made });
        }
    }

    fn file(&mut self, process: ProcessKey, call: &MessageCall) {
        let communicator = self.communicator(process, call);
        let files = self.files.entry(process).or_default();
        let (acts, begun) = files.follow(call, communicator, &mut self.numbers);
        acts.into_iter().for_each(|(at_exit, kind)| self.put(call.at, at_exit, kind));
        if let Some(operation) = begun {
            self.begin(process, call, Begun::File(operation), false);
        }
    }

    /// A call that returns when accesses have ended: those through a window, or to one rank through it.
    fn complete(&mut self, process: ProcessKey, call: &MessageCall, end: AccessEnd) {
        let (window, rank) = (self.window(process, call), call.value(Role::Peer));
        let Some(window) = window.filter(|_| rank.is_some() || !call.has(Role::Peer)) else { return };
        let Some(accesses) = self.accesses.get_mut(&process) else { return };
        accesses.end(window, rank, end).into_iter().for_each(|kind| self.put(call.at, true, kind));
    }
}

impl ReceivedStatus {
    pub(super) fn of(call: &MessageCall) -> ReceivedStatus {
        let bytes = call.unsigned(Role::Received);
        ReceivedStatus { source: call.value(Role::Source), tag: call.value(Role::SourceTag), bytes }
    }
}

/// Which of the requests of a call have ended when it returned, in the order of their statuses; `None` if that is not
/// known.
fn ended(call: &MessageCall, requests: usize) -> Option<Vec<usize>> {
    if call.has(Role::Flag) && call.value(Role::Flag)? == 0 {
        return Some(Vec::new());
    }
    if !call.has(Role::Index) {
        return Some((0..requests).collect());
    }
    // Where none is left to wait for, the number and the place are negative.
    let places: Vec<Option<i64>> = call.all(Role::Index).collect();
    let places: Option<Vec<i64>> = places.into_iter().collect();
    Some(places?.into_iter().filter_map(|place| usize::try_from(place).ok()).collect())
}

/// How many requests a call has beyond those that are recorded.
fn unseen(call: &MessageCall, recorded: usize) -> u64 {
    call.unsigned(Role::Count).map_or(0, |count| count.saturating_sub(recorded as u64))
}

/// Whether a rank stands for nobody, in an implementation that calls communicators so.
fn is_nobody(rank: i64, communicator: i64) -> bool {
    rank == if communicator >= HANDLES { -1 } else { -2 }
}

/// What a rank sends to all ranks of a collective operation, and receives from all, as Score-P counts it: what it sends to
/// itself is in it, unless that is in place. `place` is its own among `ranks`.
fn volumes(call: &MessageCall, is_root: bool, place: u64, ranks: u64) -> (Size, Size) {
    use FunctionEvent as E;
    // In place, what would say how much is sent means nothing. Of a scatter, it is the root that gets nothing.
    let buffer = if matches!(call.event, E::Scatter | E::ScatterV) { Role::Target } else { Role::Address };
    let is_in_place = matches!(call.value(buffer), Some(1 | -1));
    let (given, gotten) = (call.unsigned(Role::Bytes), call.unsigned(Role::Received));
    let others = ranks.saturating_sub(u64::from(is_in_place));
    let times = |size: Option<u64>, ranks: u64| size.map(|bytes| bytes.saturating_mul(ranks));
    let own = |size| if is_in_place { Some(0) } else { size };
    let only = |size| if is_root { size } else { Some(0) };
    // Of sizes that differ by rank, the own one is not known apart.
    let from_others = |size: Option<u64>| size.filter(|_| !is_in_place);
    let (sent, received) = match call.event {
        E::Barrier | E::RmaFence | E::WindowCreate | E::WindowFree => (Some(0), Some(0)),
        E::Broadcast => (only(times(given, ranks)), given),
        E::Reduce => (own(given), only(times(given, others))),
        E::Allreduce => (times(given, others), times(given, others)),
        E::Scan => (times(given, others - place.min(others)), times(given, place + u64::from(!is_in_place))),
        E::Exscan => (times(given, ranks.saturating_sub(place + 1)), times(given, place)),
        E::ReduceScatterBlock => (times(gotten, others), times(gotten, others)),
        E::Gather => (own(given), only(times(gotten, others))),
        E::GatherV => (own(given), only(from_others(gotten))),
        E::Scatter => (only(times(given, others)), own(gotten)),
        E::ScatterV => (only(from_others(given)), own(gotten)),
        E::Allgather if is_in_place => (times(gotten, others), times(gotten, others)),
        E::Allgather => (times(given, ranks), times(gotten.or(given), ranks)),
        E::AllgatherV if is_in_place => (None, None),
        E::AllgatherV => (times(given, ranks), gotten),
        E::AlltoallV => (from_others(given), from_others(gotten)),
        E::ReduceScatter => {
            let to_itself = if is_in_place { gotten } else { Some(0) };
            let sent = given.zip(to_itself).map(|(all, own)| all.saturating_sub(own));
            (sent, times(gotten, others))
        }
        E::Alltoall => (times(if is_in_place { gotten } else { given }, others), times(gotten, others)),
        _ => (None, None),
    };
    let size = |bytes: Option<u64>| bytes.map_or(Size::Unknown, Size::Exact);
    (size(sent), size(received))
}

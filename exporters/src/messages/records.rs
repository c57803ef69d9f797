//! From calls to records of messages.
//!
//! The calls of a process come in the order in which they begin. Memory grows with the requests and accesses that have not
//! ended, and not with the calls.

use std::collections::HashMap;

use rtrace_model::{FunctionEvent, LocationId, Role, Timestamp};

use super::CallTime;
use super::accesses::Accesses;
use super::calls::{AskedEnd, MessageCall, ProcessKey};
use super::communicators::{CommunicatorId, Communicators};
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
        if self.is_within_another(call.at) {
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
            E::RmaComplete => self.complete(process, call),
            E::CommunicatorCreate | E::IntercommunicatorCreate | E::CommunicatorFree => self.handle(process, call),
            event if event.is_io() => self.file(process, call),
            event if event.is_collective() => {
                self.collective(process, call);
                // Where there are no communicators, a barrier ends accesses, too.
                if event == E::Barrier && !call.has(Role::Communicator) {
                    self.complete(process, call);
                }
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
        if let Other::Known(transfer) = self.other(process, asked, Some(ReceivedStatus::of(call))) {
            self.put(call.at, true, MessageKind::Probed(transfer));
        }
        if call.has(Role::Request) {
            self.begin(process, call, Begun::Recv(asked), false);
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
                Other::Known(transfer) => MessageKind::IrecvRequest { request: number, asked: Some(transfer) },
                Other::Unknown => MessageKind::IrecvRequest { request: number, asked: None },
            },
            Begun::Send(asked) => match self.other(process, asked, None) {
                Other::Known(transfer) => MessageKind::Isend { transfer, request: number },
                Other::Nobody => return None,
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
                let ended = self.accesses.get_mut(&process).and_then(|accesses| accesses.end_here(access));
                ended.into_iter().for_each(|kind| self.put(call.at, true, kind));
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
                Other::Nobody => {}
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
        let communicator = match call.has(Role::Communicator) {
            true => self.communicator(process, call),
            // Where there are no communicators, all take part.
            false => {
                let is_all =
                    call.unsigned(Role::Count).is_none_or(|ranks| ranks == u64::from(self.communicators.size()));
                is_all.then_some(CommunicatorId::WORLD)
            }
        };
        let Some(communicator) = communicator else {
            self.gaps.unknown_others += 1;
            return;
        };
        let root = call.value(Role::Root).and_then(|root| self.communicators.peer(process, communicator, root));
        let ranks = self.communicators.all().get(communicator.0 as usize).map_or(0, |of| of.members.len() as u64);
        let is_root = root.is_some() && root == self.communicators.rank_of(process);
        let (sent, received) = volumes(call, is_root, ranks);
        let collective = Collective { event: call.event, communicator, root, sent, received };
        match call.has(Role::Request) {
            true => self.begin(process, call, Begun::Collective(collective), false),
            false => self.put(call.at, false, MessageKind::Collective(collective)),
        }
    }

    fn access(&mut self, process: ProcessKey, call: &MessageCall) {
        let window = call.value(Role::Handle);
        let communicator = match window {
            Some(window) => self.communicators.of_window(process, window, call.at.start),
            None => (!call.has(Role::Handle)).then_some(CommunicatorId::WORLD),
        };
        let peer = call.value(Role::Peer);
        if peer.is_some_and(|peer| peer < 0) {
            return;
        }
        let target = communicator.zip(peer).and_then(|(id, peer)| self.communicators.peer(process, id, peer));
        let Some((communicator, target)) = communicator.zip(target) else {
            self.gaps.unknown_others += 1;
            return;
        };
        let size = call.unsigned(Role::Bytes).map_or(Size::Unknown, Size::Exact);
        let (event, access) = (call.event, self.numbers);
        self.numbers += 1;
        self.put(call.at, false, MessageKind::Access { event, target, size, communicator, access });
        let is_blocking = matches!(event, FunctionEvent::RmaPut | FunctionEvent::RmaGet | FunctionEvent::RmaAtomic);
        if is_blocking {
            self.put(call.at, true, MessageKind::AccessComplete { communicator, access, completion: Completion::Call });
        }
        // What is read is there when the call returns.
        if !is_blocking || event == FunctionEvent::RmaPut {
            let of_process = self.accesses.entry(process).or_default();
            of_process.begin(window, peer, Accesses::pending(access, communicator, is_blocking));
        }
        if call.has(Role::Request) {
            self.begin(process, call, Begun::Access(access), false);
        }
    }

    /// The communicator that a call says.
    fn communicator(&self, process: ProcessKey, call: &MessageCall) -> Option<CommunicatorId> {
        self.communicators.find(process, call.value(Role::Communicator)?, call.at.start)
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
    fn complete(&mut self, process: ProcessKey, call: &MessageCall) {
        let is_known = (!call.has(Role::Handle) || call.value(Role::Handle).is_some())
            && (!call.has(Role::Peer) || call.value(Role::Peer).is_some());
        let Some(accesses) = self.accesses.get_mut(&process).filter(|_| is_known) else { return };
        let ended = accesses.end(call.value(Role::Handle), call.value(Role::Peer));
        ended.into_iter().for_each(|kind| self.put(call.at, true, kind));
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

/// Whether a rank stands for nobody, in an implementation that calls communicators so: handles of MPICH have their kind
/// in the upper bits, contexts of Open MPI are small.
fn is_nobody(rank: i64, communicator: i64) -> bool {
    let is_mpich = communicator >= 0x4000_0000;
    rank == if is_mpich { -1 } else { -2 }
}

/// What a rank gives and gets in a collective operation: bytes of its own buffers.
fn volumes(call: &MessageCall, is_root: bool, ranks: u64) -> (Size, Size) {
    use FunctionEvent as E;
    let of = |role| call.unsigned(role).map_or(Size::Unknown, Size::Exact);
    let times = |size: Size| match size {
        Size::Exact(bytes) => Size::Exact(bytes.saturating_mul(ranks)),
        other => other,
    };
    let none = Size::Exact(0);
    let only = |size| if is_root { size } else { none };
    // In place, what would say how much is given means nothing. Of a scatter, it is the root that gets nothing.
    let buffer = if matches!(call.event, E::Scatter | E::ScatterV) { Role::Target } else { Role::Address };
    let is_in_place = matches!(call.value(buffer), Some(1 | -1));
    let (given, gotten) = (of(Role::Bytes), of(Role::Received));
    match call.event {
        E::Barrier => (none, none),
        E::Broadcast => (only(given), if is_root { none } else { given }),
        E::Reduce => (given, only(given)),
        E::Allreduce | E::Scan | E::Exscan => (given, given),
        E::ReduceScatter | E::ReduceScatterBlock => (times(gotten), gotten),
        E::Gather if is_in_place => (gotten, only(times(gotten))),
        E::Gather => (given, only(times(gotten))),
        E::GatherV => (if is_in_place { Size::Unknown } else { given }, only(Size::Unknown)),
        E::Scatter if is_in_place => (only(times(given)), given),
        E::Scatter => (only(times(given)), gotten),
        E::ScatterV => (only(Size::Unknown), if is_in_place { Size::Unknown } else { gotten }),
        E::Allgather => (if is_in_place { gotten } else { given }, times(gotten)),
        E::AllgatherV => (if is_in_place { Size::Unknown } else { given }, Size::Unknown),
        E::Alltoall => (times(if is_in_place { gotten } else { given }), times(gotten)),
        _ => (Size::Unknown, Size::Unknown),
    }
}

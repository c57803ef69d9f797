//! Records of messages between processes, and the communicators that they are of.
//!
//! What a call means follows from the calls of all threads of its process before it, and an archive is written thread by
//! thread. So the records of all threads are made first, in the order of their calls, and wait in a temporary file.
//!
//! Ranks are places in the group of a record's communicator. All ranks must be in the archive: where traces are missing,
//! there are no records, and the archive says so.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::io;

use rtrace_model::{CallValues, FunctionEvent, LocationId, Region, RegionId, Value, known};

use super::super::super::source::Nested;
use super::super::super::{Excerpt, ExportError};
use super::encoding::{self, OtfRecord, bytes};
use super::files::{OtfFile, OtfFiles};
use super::waiting::{WaitingRecord, WaitingRecords};
use crate::{
    CallTime, Collective, Communicator, CommunicatorId, Completion, MessageKind, Messages, RmaWindow, Size, Transfer,
    WindowId,
};

const NO_ROOT: u32 = u32::MAX;

/// Numbers of collective operations: a handle is made, or goes.
const CREATE: u8 = 17;
const DESTROY: u8 = 18;

/// The messages of a trace of all ranks.
pub(super) struct OtfMessages<'a> {
    messages: Messages<'a>,
    /// The location that stands for each rank.
    ranks: Vec<LocationId>,
    records: WaitingRecords,
    files: OtfFiles,
    sizes: Option<SentSizes>,
    /// What of them is not known.
    unknown: u64,
}

/// Why there are no records.
pub(super) enum NoMessages {
    /// Nothing in the trace says something of messages.
    None,
    /// Ranks are missing.
    Missing(String),
}

impl<'a> OtfMessages<'a> {
    /// The messages of these calls.
    pub(super) fn of(
        source: &'a Excerpt<'_>,
        nested: &Nested<'_>,
    ) -> Result<Result<OtfMessages<'a>, NoMessages>, ExportError> {
        let is_message = |event: Option<FunctionEvent>| event.is_some_and(FunctionEvent::is_message);
        let models = ["mpi", "shmem"].map(Some);
        let has_any = source
            .regions()
            .iter()
            .any(|region| is_message(region.event) && models.contains(&known("model", &region.symbol())));
        if !has_any {
            return Ok(Err(NoMessages::None));
        }
        let messages = source.messages()?;
        let mut ranks = vec![None; messages.size() as usize];
        for location in nested.locations() {
            if let Some(rank) = messages.rank_of(location).and_then(|rank| ranks.get_mut(rank as usize)) {
                rank.get_or_insert(location);
            }
        }
        let missing = ranks.iter().filter(|rank| rank.is_none()).count();
        let Some(ranks) = ranks.into_iter().collect::<Option<Vec<_>>>().filter(|ranks| !ranks.is_empty()) else {
            let text = format!("messages, as {missing} of {} ranks are not in the trace", messages.size());
            return Ok(Err(NoMessages::Missing(text)));
        };
        let mut of_traces: BTreeMap<usize, Vec<LocationId>> = BTreeMap::new();
        for location in nested.locations() {
            let place = source.origin_of(location).map(|(place, _)| place);
            place.into_iter().for_each(|place| of_traces.entry(place).or_default().push(location));
        }
        let (records, files) = (WaitingRecords::new()?, OtfFiles::default());
        let mut found = OtfMessages { messages, ranks, records, files, sizes: None, unknown: 0 };
        for locations in of_traces.into_values() {
            found.follow(source, nested, &locations)?;
        }
        Ok(Ok(found))
    }

    /// Makes the records of one trace, whose calls come in the order in which they begin.
    fn follow(
        &mut self,
        source: &Excerpt<'_>,
        nested: &Nested<'_>,
        locations: &[LocationId],
    ) -> Result<(), ExportError> {
        self.files.next_trace();
        // What sets a job up makes the communicator of all ranks. The function of Fortran calls that of C.
        let job = |region: &Region| Some((region.id, known("job", &region.symbol())? == "up"));
        let jobs: HashMap<RegionId, bool> = source.regions().iter().filter_map(job).collect();
        let mut threads: Vec<_> = locations.iter().map(|&location| nested.calls(location)).collect();
        let mut is_up: HashMap<Option<u32>, bool> = HashMap::new();
        let mut due = BinaryHeap::new();
        let mut next = Vec::new();
        for (place, calls) in threads.iter_mut().enumerate() {
            let first = calls.next().transpose()?;
            due.extend(first.as_ref().map(|first| Reverse((first.call.start, place))));
            next.push(first);
        }
        let (mut calls, mut record) = (self.messages.follow(), OtfRecord::default());
        while let Some(Reverse((_, place))) = due.pop() {
            let Some(measured) = next[place].take() else { continue };
            next[place] = threads[place].next().transpose()?;
            due.extend(next[place].as_ref().map(|next| Reverse((next.call.start, place))));
            let is_collective = || {
                let symbol = source.symbol(measured.call.region);
                ["_all", "_ordered"].iter().any(|part| symbol.contains(part))
            };
            if let Some(&is_made) = jobs.get(&measured.call.region)
                && is_up.insert(self.messages.rank_of(locations[place]), is_made) != Some(is_made)
            {
                record.clear();
                fill_handle(&mut record, CommunicatorId::WORLD, is_made);
                self.records.add(locations[place], measured.call.id, true, encoding::MPI_COLLECTIVE_END, &record)?;
            }
            for event in calls.next(&measured.call, measured.values.as_ref()) {
                // A collective operation has a record at each end.
                let begins = matches!(event.kind, MessageKind::Collective(_)).then_some(false);
                for is_exit in begins.into_iter().chain([begins.is_some() || event.at_exit]) {
                    record.clear();
                    if let (true, Some(kind)) = (is_exit, fill_window(&mut record, event.kind)) {
                        self.records.add(locations[place], measured.call.id, is_exit, kind, &record)?;
                        record.clear();
                    }
                    let kind = match event.kind {
                        MessageKind::File { file, act } => {
                            self.files.fill(&mut record, (file, act), measured.values.as_ref(), is_collective())
                        }
                        kind => {
                            let kind = sized(&self.messages, &mut self.sizes, event.at, kind)?;
                            fill(&self.messages, &mut record, kind, is_exit, measured.values.as_ref())
                        }
                    };
                    if let Some(kind) = kind {
                        self.records.add(locations[place], measured.call.id, is_exit, kind, &record)?;
                    }
                }
            }
        }
        self.unknown += calls.gaps().total();
        Ok(())
    }

    /// The records of a location, which come in the order of its calls.
    pub(super) fn select(&mut self, location: LocationId) {
        self.records.select(location);
    }

    /// The next record of this call.
    pub(super) fn next(&mut self, call: u64) -> io::Result<Option<WaitingRecord>> {
        self.records.next(call)
    }

    /// The location that stands for each rank.
    pub(super) fn ranks(&self) -> &[LocationId] {
        &self.ranks
    }

    /// All communicators; their numbers are those of the records.
    pub(super) fn communicators(&self) -> &[Communicator] {
        self.messages.communicators()
    }

    /// All windows; their numbers are those of the records.
    pub(super) fn windows(&self) -> &[RmaWindow] {
        self.messages.windows()
    }

    /// All files; their numbers are those of the records.
    pub(super) fn files(&self) -> &[OtfFile] {
        &self.files.all
    }

    /// What is missing, if something is.
    pub(super) fn remark(&self) -> Option<String> {
        (self.unknown > 0).then(|| format!("{} messages and requests of which something is not known", self.unknown))
    }
}

/// The bytes of messages of which the receiver does not say how many came, by the call that asked for them, its sender and
/// its tag; `None` where these are of several sizes.
type SentSizes = HashMap<(LocationId, u64, u32, i32), Option<u64>>;

/// A record with the bytes that its sender says, where its receiver does not. The first such record asks for all `sizes`,
/// as that reads all traces.
fn sized(
    messages: &Messages<'_>,
    sizes: &mut Option<SentSizes>,
    at: CallTime,
    mut kind: MessageKind,
) -> Result<MessageKind, ExportError> {
    let (asked, transfer) = match &mut kind {
        MessageKind::Recv(transfer) => (at, transfer),
        MessageKind::Irecv { transfer, posted, .. } => (*posted, transfer),
        _ => return Ok(kind),
    };
    if transfer.size.exact().is_some() {
        return Ok(kind);
    }
    let sizes = match sizes {
        Some(sizes) => sizes,
        None => sizes.insert(sent_sizes(messages)?),
    };
    if let Some(Some(bytes)) = sizes.get(&(asked.location, asked.call, transfer.peer, transfer.tag)) {
        transfer.size = Size::Exact(*bytes);
    }
    Ok(kind)
}

fn sent_sizes(messages: &Messages<'_>) -> Result<SentSizes, ExportError> {
    let mut sizes = SentSizes::new();
    messages.matched(|message| {
        let (asked, Some(bytes)) = (message.received, message.bytes.filter(|_| !message.is_measured)) else { return };
        let of_call = sizes.entry((asked.location, asked.call, message.source, message.tag)).or_insert(Some(bytes));
        *of_call = of_call.filter(|other| *other == bytes);
    })?;
    Ok(sizes)
}

/// Fills the record of an event; gives its kind.
fn fill(
    messages: &Messages<'_>,
    record: &mut OtfRecord,
    kind: MessageKind,
    is_exit: bool,
    values: Option<&CallValues>,
) -> Option<u8> {
    let rank = |id: CommunicatorId, rank: u32| place(messages.communicators().get(id.0 as usize)?, rank);
    let target = |id: WindowId, target| rank(messages.windows().get(id.0 as usize)?.communicator, target);
    let mut transfer = |Transfer { peer, tag, communicator, size }: Transfer| {
        record.int(rank(communicator, peer)?).int(communicator.0).int(tag.cast_unsigned()).long(bytes(size));
        Some(())
    };
    Some(match kind {
        MessageKind::Send(message) => transfer(message).map(|()| encoding::MPI_SEND)?,
        MessageKind::Recv(message) => transfer(message).map(|()| encoding::MPI_RECV)?,
        MessageKind::Isend { transfer: message, request } => {
            transfer(message)?;
            record.long(request);
            encoding::MPI_ISEND
        }
        MessageKind::Irecv { transfer: message, request, .. } => {
            transfer(message)?;
            record.long(request);
            encoding::MPI_IRECV
        }
        MessageKind::IsendComplete { request } => {
            record.long(request);
            encoding::MPI_ISEND_COMPLETE
        }
        // Nothing is received yet.
        MessageKind::Probed(_) => return None,
        MessageKind::IrecvRequest { request, .. } => {
            record.long(request);
            encoding::MPI_IRECV_REQUEST
        }
        MessageKind::IrecvCancelled { request } => {
            record.long(request);
            encoding::MPI_REQUEST_CANCELLED
        }
        MessageKind::Collective(collective) if !is_exit => {
            operation(collective.event, false)?;
            if collective.window.is_some() { encoding::RMA_COLLECTIVE_BEGIN } else { encoding::MPI_COLLECTIVE_BEGIN }
        }
        MessageKind::Collective(collective) => {
            let window = collective.window.and_then(|window| messages.windows().get(window.0 as usize));
            fill_collective(record, collective, window.is_some_and(|window| window.is_allocated), rank)?;
            if window.is_some() { encoding::RMA_COLLECTIVE_END } else { encoding::MPI_COLLECTIVE_END }
        }
        MessageKind::CollectiveRequest { collective, request } => {
            operation(collective.event, false)?;
            record.long(request);
            encoding::NON_BLOCKING_COLLECTIVE_REQUEST
        }
        MessageKind::CollectiveComplete { collective, request } => {
            fill_collective(record, collective, false, rank)?;
            record.long(request);
            encoding::NON_BLOCKING_COLLECTIVE_COMPLETE
        }
        MessageKind::Handle { communicator, is_made } => {
            fill_handle(record, communicator, is_made);
            encoding::MPI_COLLECTIVE_END
        }
        // These refer to files, which have numbers of their own.
        MessageKind::File { .. } => return None,
        MessageKind::Lock { window, target: locked, is_over } => {
            const ALL: u32 = u32::MAX;
            record.int(window.0).int(locked.map_or(Some(ALL), |locked| target(window, locked))?).long(0);
            if is_over {
                return Some(encoding::RMA_RELEASE_LOCK);
            }
            record.byte(u8::from(!is_exclusive(values)));
            encoding::RMA_REQUEST_LOCK
        }
        MessageKind::Access { event, target: other, size, window, access } => {
            const ACCUMULATE: u8 = 0;
            record.int(window.0).int(target(window, other)?);
            match event {
                FunctionEvent::RmaAtomic | FunctionEvent::RmaIatomic => {
                    record.byte(ACCUMULATE).long(bytes(size)).long(0).long(access);
                    encoding::RMA_ATOMIC
                }
                FunctionEvent::RmaGet | FunctionEvent::RmaIget => {
                    record.long(bytes(size)).long(access);
                    encoding::RMA_GET
                }
                _ => {
                    record.long(bytes(size)).long(access);
                    encoding::RMA_PUT
                }
            }
        }
        MessageKind::AccessComplete { window, access, completion } => {
            record.int(window.0).long(access);
            match completion {
                Completion::Call => encoding::RMA_OP_COMPLETE_BLOCKING,
                Completion::Here => encoding::RMA_OP_COMPLETE_NON_BLOCKING,
                Completion::Target => encoding::RMA_OP_COMPLETE_REMOTE,
            }
        }
    })
}

/// A communicator is made of this one, or it is freed: a collective operation without data, as Score-P writes it.
fn fill_handle(record: &mut OtfRecord, communicator: CommunicatorId, is_made: bool) {
    record.byte(if is_made { CREATE } else { DESTROY }).int(communicator.0).int(NO_ROOT).long(0).long(0);
}

/// Fills the record of a window that was made, or is freed, when the call returned; gives its kind.
fn fill_window(record: &mut OtfRecord, kind: MessageKind) -> Option<u8> {
    let MessageKind::Collective(Collective { event, window: Some(window), .. }) = kind else { return None };
    let kind = match event {
        FunctionEvent::WindowCreate => encoding::RMA_WIN_CREATE,
        FunctionEvent::WindowFree => encoding::RMA_WIN_DESTROY,
        _ => return None,
    };
    record.int(window.0);
    Some(kind)
}

fn fill_collective(
    record: &mut OtfRecord,
    of: Collective,
    is_allocated: bool,
    rank: impl Fn(CommunicatorId, u32) -> Option<u32>,
) -> Option<()> {
    use FunctionEvent::{WindowCreate, WindowFree};
    const PROCESSES: u32 = 1;
    const MEMORY: u32 = 2;
    let Collective { event, communicator, window, root, sent, received } = of;
    let root = root.and_then(|root| rank(communicator, root)).unwrap_or(NO_ROOT);
    record.byte(operation(event, is_allocated)?);
    match window {
        Some(window) if matches!(event, WindowCreate | WindowFree) => record.int(PROCESSES).int(window.0),
        Some(window) => record.int(PROCESSES | MEMORY).int(window.0),
        None => record.int(communicator.0),
    };
    record.int(root).long(bytes(sent)).long(bytes(received));
    Some(())
}

/// Whether a window is locked for one alone, by the numbers of Open MPI and MPICH.
fn is_exclusive(values: Option<&CallValues>) -> bool {
    let mut of_call = values.into_iter().flat_map(CallValues::iter);
    of_call.any(|(column, value)| column.name == "lock_type" && matches!(value, Some(Value::Integer(1 | 234))))
}

/// The members of a communicator, by the rank that records say: of two sides, the first comes first.
pub(super) fn members(communicator: &Communicator) -> impl Iterator<Item = u32> {
    communicator.members.iter().chain(communicator.others.iter().flatten()).copied()
}

fn place(communicator: &Communicator, rank: u32) -> Option<u32> {
    members(communicator).position(|member| member == rank).map(|place| place as u32)
}

/// The number of a collective operation, which may be of memory that comes or goes with its window; that of neighbours has
/// none.
fn operation(event: FunctionEvent, is_allocated: bool) -> Option<u8> {
    use FunctionEvent as E;
    Some(match event {
        E::WindowCreate => {
            if is_allocated {
                21
            } else {
                CREATE
            }
        }
        E::WindowFree => {
            if is_allocated {
                22
            } else {
                DESTROY
            }
        }
        E::Barrier | E::RmaFence => 0,
        E::Broadcast => 1,
        E::Gather => 2,
        E::GatherV => 3,
        E::Scatter => 4,
        E::ScatterV => 5,
        E::Allgather => 6,
        E::AllgatherV => 7,
        E::Alltoall => 8,
        E::AlltoallV => 9,
        E::Allreduce => 11,
        E::Reduce => 12,
        E::ReduceScatter => 13,
        E::Scan => 14,
        E::Exscan => 15,
        E::ReduceScatterBlock => 16,
        _ => return None,
    })
}

/// The role of functions that do this, or are called so.
pub(super) fn role(event: Option<FunctionEvent>, symbol: &str) -> u8 {
    use FunctionEvent as E;
    const FUNCTION: u8 = 1;
    const PARALLEL: u8 = 5;
    const CRITICAL: u8 = 12;
    const BARRIER: u8 = 15;
    const ONE_TO_ALL: u8 = 23;
    const ALL_TO_ONE: u8 = 24;
    const ALL_TO_ALL: u8 = 25;
    const COLLECTIVE: u8 = 26;
    const FILE_IO: u8 = 27;
    const POINT_TO_POINT: u8 = 28;
    const RMA: u8 = 29;
    const ALLOCATE: u8 = 35;
    const DEALLOCATE: u8 = 36;
    match event {
        Some(E::Barrier) => BARRIER,
        Some(E::Broadcast | E::Scatter | E::ScatterV) => ONE_TO_ALL,
        Some(E::Gather | E::GatherV | E::Reduce) => ALL_TO_ONE,
        Some(
            E::Allgather
            | E::AllgatherV
            | E::Alltoall
            | E::AlltoallV
            | E::Allreduce
            | E::ReduceScatter
            | E::ReduceScatterBlock,
        ) => ALL_TO_ALL,
        Some(E::Collective | E::Scan | E::Exscan | E::CommunicatorCreate | E::IntercommunicatorCreate) => COLLECTIVE,
        Some(
            E::Send
            | E::Recv
            | E::SendRecv
            | E::Isend
            | E::Irecv
            | E::Probe
            | E::SendInit
            | E::RecvInit
            | E::Start
            | E::Wait
            | E::Test
            | E::Cancel
            | E::RequestFree,
        ) => POINT_TO_POINT,
        Some(
            E::RmaPut
            | E::RmaGet
            | E::RmaAtomic
            | E::RmaIput
            | E::RmaIget
            | E::RmaIatomic
            | E::RmaComplete
            | E::RmaCompleteHere
            | E::RmaFence
            | E::RmaLock
            | E::RmaUnlock
            | E::RmaSync
            | E::WindowCreate
            | E::WindowFree,
        ) => RMA,
        Some(E::IoOpen | E::IoClose | E::IoRead | E::IoWrite | E::IoOther) => FILE_IO,
        Some(E::Allocate) => ALLOCATE,
        Some(E::Free) => DEALLOCATE,
        Some(E::CommunicatorRank | E::CommunicatorFree | E::Lock | E::TryLock | E::Unlock | E::Await) | None => {
            match (known("model", symbol), known("waits", symbol)) {
                (Some("openmp"), _) if known("runs", symbol).is_some() => PARALLEL,
                (Some("openmp"), Some("barrier")) => BARRIER,
                (Some("openmp"), Some("lock")) => CRITICAL,
                _ => FUNCTION,
            }
        }
    }
}

//! Records of messages between processes, and the communicators that they are of.
//!
//! Ranks are places in the group of a record's communicator. All ranks must be in the archive: where traces are missing,
//! there are no records, and the archive says so.

use rtrace_model::{FunctionEvent, LocationId, Timestamp, known};

use super::super::super::{Excerpt, ExportError};
use super::encoding::{self, Chunks, OtfRecord};
use crate::{Communicator, CommunicatorId, MessageEvent, MessageKind, Messages, Size, Transfer};

/// A number that is not known.
const UNKNOWN: u64 = u64::MAX;
const NO_ROOT: u32 = u32::MAX;

/// The messages of a trace of all ranks.
pub(super) struct OtfMessages<'a> {
    messages: Messages<'a>,
    /// The location that stands for each rank.
    ranks: Vec<LocationId>,
    /// Those of one trace, by its place.
    loaded: Option<(usize, Vec<MessageEvent>)>,
    /// What of them is not known, in all traces that were loaded.
    unknown: u64,
    /// The number of the next access to memory of another rank.
    accesses: u64,
}

/// Why there are no records.
pub(super) enum NoMessages {
    /// Nothing in the trace says something of messages.
    None,
    /// Ranks are missing.
    Missing(String),
}

impl<'a> OtfMessages<'a> {
    /// The messages of these locations.
    pub(super) fn of(
        source: &'a Excerpt<'_>,
        locations: impl Iterator<Item = LocationId>,
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
        for location in locations {
            if let Some(rank) = messages.rank_of(location).and_then(|rank| ranks.get_mut(rank as usize)) {
                rank.get_or_insert(location);
            }
        }
        let missing = ranks.iter().filter(|rank| rank.is_none()).count();
        let Some(ranks) = ranks.into_iter().collect::<Option<Vec<_>>>().filter(|ranks| !ranks.is_empty()) else {
            let text = format!("messages, as {missing} of {} ranks are not in the trace", messages.size());
            return Ok(Err(NoMessages::Missing(text)));
        };
        Ok(Ok(OtfMessages { messages, ranks, loaded: None, unknown: 0, accesses: 0 }))
    }

    /// The location that stands for each rank.
    pub(super) fn ranks(&self) -> &[LocationId] {
        &self.ranks
    }

    /// All communicators; their numbers are those of the records.
    pub(super) fn communicators(&self) -> &[Communicator] {
        self.messages.communicators()
    }

    /// What is missing, if something is.
    pub(super) fn remark(&self) -> Option<String> {
        (self.unknown > 0).then(|| format!("{} messages and requests of which something is not known", self.unknown))
    }

    /// Loads the records of a location's trace.
    pub(super) fn load(&mut self, source: &Excerpt<'_>, location: LocationId) -> Result<(), ExportError> {
        let Some((place, _)) = source.origin_of(location) else { return Ok(()) };
        if self.loaded.as_ref().is_none_or(|(loaded, _)| *loaded != place) {
            let (events, gaps) = self.messages.events_of(place)?;
            self.unknown += gaps.total();
            self.loaded = Some((place, events));
        }
        Ok(())
    }

    /// Writes what belongs to the begin of a call, or to its return.
    pub(super) fn write(
        &mut self,
        file: &mut Chunks,
        record: &mut OtfRecord,
        (location, call): (LocationId, u64),
        time: Timestamp,
        is_exit: bool,
    ) -> std::io::Result<()> {
        let Some((_, events)) = &self.loaded else { return Ok(()) };
        let key = |event: &MessageEvent| (event.at.location, event.at.call);
        let from = events.partition_point(|event| key(event) < (location, call));
        for event in events[from..].iter().take_while(|event| key(event) == (location, call)) {
            let is_due = match event.kind {
                // It has a record at each end.
                MessageKind::Collective { .. } => true,
                _ => event.at_exit == is_exit,
            };
            if !is_due {
                continue;
            }
            record.clear();
            if let Some(kind) = fill(&self.messages, record, &event.kind, is_exit, &mut self.accesses) {
                file.event(time, kind, record, None)?;
            }
        }
        Ok(())
    }
}

/// Fills the record of an event; gives its kind.
fn fill(
    messages: &Messages<'_>,
    record: &mut OtfRecord,
    kind: &MessageKind,
    is_exit: bool,
    accesses: &mut u64,
) -> Option<u8> {
    let rank = |id: CommunicatorId, rank: u32| place(messages.communicators().get(id.0 as usize)?, rank);
    let mut transfer = |Transfer { peer, tag, communicator, size }: Transfer| {
        record.int(rank(communicator, peer)?).int(communicator.0).int(tag.cast_unsigned()).long(bytes(size));
        Some(())
    };
    Some(match *kind {
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
        MessageKind::IrecvRequest { request } => {
            record.long(request);
            encoding::MPI_IRECV_REQUEST
        }
        MessageKind::Collective { .. } if !is_exit => encoding::MPI_COLLECTIVE_BEGIN,
        MessageKind::Collective { event, communicator, root, sent, received } => {
            let root = root.and_then(|root| rank(communicator, root)).unwrap_or(NO_ROOT);
            record.byte(operation(event)).int(communicator.0).int(root).long(bytes(sent)).long(bytes(received));
            encoding::MPI_COLLECTIVE_END
        }
        MessageKind::Access { event, target, size, communicator } => {
            const ACCUMULATE: u8 = 0;
            *accesses += 1;
            record.int(communicator.0).int(rank(communicator, target)?);
            match event {
                FunctionEvent::RmaAtomic => {
                    record.byte(ACCUMULATE).long(bytes(size)).long(0).long(*accesses);
                    encoding::RMA_ATOMIC
                }
                FunctionEvent::RmaGet => {
                    record.long(bytes(size)).long(*accesses);
                    encoding::RMA_GET
                }
                _ => {
                    record.long(bytes(size)).long(*accesses);
                    encoding::RMA_PUT
                }
            }
        }
    })
}

/// The members of a communicator, by the rank that records say: of two sides, the first comes first.
pub(super) fn members(communicator: &Communicator) -> impl Iterator<Item = u32> {
    communicator.members.iter().chain(communicator.others.iter().flatten()).copied()
}

fn place(communicator: &Communicator, rank: u32) -> Option<u32> {
    members(communicator).position(|member| member == rank).map(|place| place as u32)
}

fn bytes(size: Size) -> u64 {
    match size {
        Size::Exact(bytes) | Size::Posted(bytes) => bytes,
        Size::Unknown => UNKNOWN,
    }
}

/// The number of a collective operation.
fn operation(event: FunctionEvent) -> u8 {
    use FunctionEvent as E;
    match event {
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
        // What is not named has the barrier's number, and sizes that are not known.
        _ => 0,
    }
}

/// The role of functions that do this.
pub(super) fn role(event: Option<FunctionEvent>) -> u8 {
    use FunctionEvent as E;
    const FUNCTION: u8 = 1;
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
        Some(E::Allgather | E::AllgatherV | E::Alltoall | E::AlltoallV | E::Allreduce | E::ReduceScatter) => ALL_TO_ALL,
        Some(E::Collective | E::Scan | E::CommunicatorCreate | E::IntercommunicatorCreate | E::WindowCreate) => {
            COLLECTIVE
        }
        Some(
            E::Send
            | E::Recv
            | E::SendRecv
            | E::Isend
            | E::Irecv
            | E::SendInit
            | E::RecvInit
            | E::Start
            | E::Wait
            | E::Test
            | E::Cancel
            | E::RequestFree,
        ) => POINT_TO_POINT,
        Some(E::RmaPut | E::RmaGet | E::RmaAtomic | E::RmaSync) => RMA,
        Some(E::IoOpen | E::IoClose | E::IoRead | E::IoWrite) => FILE_IO,
        Some(E::Allocate) => ALLOCATE,
        Some(E::Free) => DEALLOCATE,
        Some(E::CommunicatorFree | E::Lock | E::TryLock | E::Unlock | E::Await) | None => FUNCTION,
    }
}

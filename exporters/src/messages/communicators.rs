//! Which ranks of the world are in which communicator.

use std::collections::HashMap;

use rtrace_model::{LocationId, Role, Timestamp};

use super::calls::{self, MessageCall, ProcessKey};
use crate::{Error, TraceSet};

/// The number of a communicator among [all](super::Messages::communicators).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommunicatorId(pub u32);

impl CommunicatorId {
    /// That of all ranks.
    pub const WORLD: CommunicatorId = CommunicatorId(0);
}

/// A communicator whose members are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Communicator {
    /// That of which it was made.
    pub parent: Option<CommunicatorId>,
    /// The ranks in the world, by rank in the communicator.
    pub members: Vec<u32>,
}

/// What the world communicator is called in values: its context in Open MPI, and its handle in MPICH.
const WORLDS: [i64; 2] = [0, 0x4400_0000];

/// The communicators of all ranks.
#[derive(Debug, Default)]
pub(super) struct Communicators {
    all: Vec<Communicator>,
    ranks: HashMap<ProcessKey, u32>,
}

impl Communicators {
    pub(super) fn read(
        set: &TraceSet,
        processes: &HashMap<LocationId, ProcessKey>,
    ) -> Result<Communicators, Error> {
        let mut communicators = Communicators::default();
        let mut size = 0;
        for (place, trace) in set.traces().enumerate() {
            let launched = trace.header().rank.as_ref();
            size = size.max(launched.and_then(|rank| rank.size).unwrap_or(0));
            // What the library says of itself is better than what the launcher said.
            for call in calls::of_trace(set, place, |_| true)? {
                let Some(&process) = processes.get(&call.at.location) else { continue };
                if let Some(rank) = own_rank(&call).or(launched.map(|rank| rank.rank)) {
                    communicators.ranks.entry(process).or_insert(rank);
                }
            }
        }
        size = communicators.ranks.values().map(|rank| rank + 1).max().unwrap_or(0).max(size);
        communicators.all.push(Communicator { parent: None, members: (0..size).collect() });
        Ok(communicators)
    }

    pub(super) fn all(&self) -> &[Communicator] {
        &self.all
    }

    pub(super) fn size(&self) -> u32 {
        self.all.first().map_or(0, |world| world.members.len() as u32)
    }

    pub(super) fn rank_of(&self, process: ProcessKey) -> Option<u32> {
        self.ranks.get(&process).copied()
    }

    /// The communicator that a process called so at that time.
    pub(super) fn find(&self, _: ProcessKey, called: i64, _: Timestamp) -> Option<CommunicatorId> {
        WORLDS.contains(&called).then_some(CommunicatorId::WORLD)
    }

    /// The rank in the world of a member.
    pub(super) fn member(&self, id: CommunicatorId, rank: i64) -> Option<u32> {
        self.all.get(id.0 as usize)?.members.get(usize::try_from(rank).ok()?).copied()
    }
}

/// The rank in the world of whoever made a call, if it says so.
fn own_rank(call: &MessageCall) -> Option<u32> {
    let is_world = WORLDS.contains(&call.value(Role::Communicator)?);
    call.value(Role::Rank).filter(|_| is_world).and_then(|rank| u32::try_from(rank).ok())
}

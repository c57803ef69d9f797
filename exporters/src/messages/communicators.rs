//! Which ranks of the world are in which communicator.
//!
//! A communicator is made by calls of all ranks of another one. These come in the same order on all ranks, so the n-th
//! such call of each rank made the same communicators. Who is in which of them, and in which order, follows from what
//! the calls passed and got.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use rtrace_model::{FunctionEvent, LocationId, Region, RegionId, Role, Timestamp, known};

use super::calls::{self, MessageCall, ProcessKey};
use crate::parallel::in_order;
use crate::{Error, TraceSet};

/// The number of a communicator among [all](super::Messages::communicators).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommunicatorId(pub u32);

impl CommunicatorId {
    /// That of all ranks.
    pub const WORLD: CommunicatorId = CommunicatorId(0);
}

/// The number of a window among [all](super::Messages::windows).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WindowId(pub u32);

impl WindowId {
    /// That of all ranks, where nothing makes windows.
    pub const WORLD: WindowId = WindowId(0);
}

/// Memory of all ranks of a communicator that each of them can access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RmaWindow {
    /// Whose memory it is.
    pub communicator: CommunicatorId,
    /// Whether the memory came with it.
    pub is_allocated: bool,
}

/// A communicator whose members are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Communicator {
    /// That of which it was made.
    pub parent: Option<CommunicatorId>,
    /// The ranks in the world, by rank in the communicator. Of two sides that talk to each other, the first.
    pub members: Vec<u32>,
    /// The ranks of the second side, if there are two: ranks in calls of one side are those of the other.
    pub others: Option<Vec<u32>>,
}

impl Communicator {
    /// Those that the ranks in a call of this rank of the world mean.
    pub fn peers_of(&self, own: u32) -> &[u32] {
        match &self.others {
            Some(others) if self.members.contains(&own) => others,
            _ => &self.members,
        }
    }
}

/// What the world communicator is called in values: its context in Open MPI, and its handle in MPICH.
const WORLDS: [i64; 2] = [0, 0x4400_0000];
/// The same of the communicator that each process has with itself.
const SELVES: [i64; 2] = [1, 0x4400_0001];
/// Contexts of Open MPI are small; handles of MPICH have their kind in the upper bits, and each process its own.
pub(super) const HANDLES: i64 = 0x4000_0000;
/// What stands for no communicator, where that is no object with a rank of its own: the handle in MPICH.
const NULL: i64 = 0x0400_0000;

/// The communicators of all ranks.
#[derive(Debug, Default)]
pub(super) struct Communicators {
    all: Vec<Communicator>,
    ranks: HashMap<ProcessKey, u32>,
    /// Those of each process with itself.
    selves: HashMap<ProcessKey, CommunicatorId>,
    /// What processes call communicators, from when on; `None` where its members are not known.
    names: HandleNames<CommunicatorId>,
    windows: Vec<RmaWindow>,
    window_names: HandleNames<WindowId>,
    /// Functions of OpenSHMEM, which know neither communicators nor windows: all ranks take part.
    without_windows: HashSet<RegionId>,
}

/// What each process calls something, from when on.
type HandleNames<T> = HashMap<(ProcessKey, i64), Vec<(Timestamp, Named<T>)>>;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named<T> {
    One(T),
    /// Nothing that is known.
    Other,
    /// What it stood for, or something else.
    Any,
}

impl<T> Named<T> {
    fn one(self) -> Option<T> {
        match self {
            Named::One(id) => Some(id),
            Named::Other | Named::Any => None,
        }
    }
}

/// A call that makes a communicator, or frees it.
struct Making {
    process: ProcessKey,
    rank: u32,
    /// The rank in the new one, if it is known.
    new_rank: Option<i64>,
    /// What the process calls it, from when on.
    new_name: Option<(i64, Timestamp)>,
    host: usize,
    call: MessageCall,
}

impl Making {
    /// Whether this rank is no member of what is made.
    fn is_outside(&self) -> bool {
        self.new_rank.is_some_and(|rank| rank < 0) || self.call.value(Role::NewCommunicator) == Some(NULL)
    }
}

impl Communicators {
    pub(super) fn read(set: &TraceSet, processes: &HashMap<LocationId, ProcessKey>) -> Result<Communicators, Error> {
        let mut communicators = Communicators::default();
        let (mut size, mut makings, mut hosts) = (0, Vec::new(), Vec::new());
        // Where a launcher said the rank, only calls that make communicators are of interest.
        let names = |event| matches!(event, FunctionEvent::CommunicatorRank | FunctionEvent::CommunicatorFree);
        let read = |place: usize| {
            let is_launched = set.part(place).header().rank.is_some();
            let is_of_communicators = |event| makes(event) || names(event);
            let mut calls = Vec::new();
            let visited = calls::visit(
                set,
                place,
                |event| !is_launched || is_of_communicators(event),
                |call| {
                    calls.extend((is_of_communicators(call.event) || own_rank(&call).is_some()).then_some(call));
                },
            );
            visited.map(|()| (place, calls))
        };
        in_order(set.traces().len(), read, |read: Result<_, Error>| {
            let (place, calls) = read?;
            let header = set.part(place).header();
            let launched = header.rank.as_ref();
            size = size.max(launched.and_then(|rank| rank.size).unwrap_or(0));
            let host = hosts.iter().position(|host| *host == header.host).unwrap_or(hosts.len());
            hosts.extend((host == hosts.len()).then(|| header.host.clone()));
            let (mut found, mut own_ranks) = (Vec::new(), Vec::new());
            for call in calls {
                let Some(&process) = processes.get(&call.at.location) else { continue };
                if let Some(rank) = own_rank(&call).or(launched.map(|rank| rank.rank)) {
                    communicators.ranks.entry(process).or_insert(rank);
                }
                match call.event {
                    event if names(event) => {
                        if event == FunctionEvent::CommunicatorFree {
                            found.push((process, call.clone()));
                        }
                        own_ranks.push((process, call));
                    }
                    event if makes(event) && !call.has_failed() => found.push((process, call)),
                    _ => {}
                }
            }
            let rank_of = |process| communicators.ranks.get(&process).copied();
            let found = found.into_iter().filter_map(|(process, call)| {
                let new_name = call.value(Role::NewCommunicator).zip(call.at.end);
                Some(Making {
                    process,
                    rank: rank_of(process)?,
                    new_rank: call.value(Role::NewRank),
                    new_name,
                    host,
                    call,
                })
            });
            let mut found: Vec<Making> = found.collect();
            found.sort_by_key(|making| making.call.order());
            add_own_ranks(&mut found, own_ranks);
            makings.extend(found);
            if let Some(rank) = launched {
                let of_trace = processes.values().filter(|process| process.0 == place);
                of_trace.for_each(|&process| _ = communicators.ranks.entry(process).or_insert(rank.rank));
            }
            Ok(())
        })?;
        size = communicators.ranks.values().map(|rank| rank + 1).max().unwrap_or(0).max(size);
        communicators.all.push(Communicator { parent: None, members: (0..size).collect(), others: None });
        let ranks: BTreeMap<ProcessKey, u32> = communicators.ranks.iter().map(|(&key, &rank)| (key, rank)).collect();
        for (process, rank) in ranks {
            let id = communicators.add(None, vec![rank], None);
            communicators.selves.insert(process, id);
        }
        let (windows, makings) =
            makings.into_iter().partition(|making| making.call.event == FunctionEvent::WindowCreate);
        let is_of_shmem = |region: &&Region| known("model", &region.symbol()) == Some("shmem");
        communicators.without_windows = set.regions().iter().filter(is_of_shmem).map(|region| region.id).collect();
        communicators.follow(makings);
        communicators.name_windows(windows);
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
    pub(super) fn find(&self, process: ProcessKey, called: i64, time: Timestamp) -> Option<CommunicatorId> {
        if WORLDS.contains(&called) {
            return Some(CommunicatorId::WORLD);
        }
        if SELVES.contains(&called) {
            return self.selves.get(&process).copied();
        }
        named(&self.names, process, called, time).one()
    }

    /// Whether a process called so what is none of those that it has other names for.
    pub(super) fn is_elsewhere(&self, process: ProcessKey, called: i64, time: Timestamp) -> bool {
        let is_fixed = WORLDS.contains(&called) || SELVES.contains(&called);
        !is_fixed && named(&self.names, process, called, time) == Named::Other
    }

    /// The window that a process called so at that time.
    pub(super) fn find_window(&self, process: ProcessKey, called: i64, time: Timestamp) -> Option<WindowId> {
        named(&self.window_names, process, called, time).one()
    }

    /// Whether a call of this function means all ranks.
    pub(super) fn is_without_windows(&self, region: RegionId) -> bool {
        self.without_windows.contains(&region)
    }

    pub(super) fn windows(&self) -> &[RmaWindow] {
        &self.windows
    }

    /// The rank in the world of who is meant by a rank in a call of a process.
    pub(super) fn peer(&self, process: ProcessKey, id: CommunicatorId, rank: i64) -> Option<u32> {
        let own = self.rank_of(process)?;
        self.all.get(id.0 as usize)?.peers_of(own).get(usize::try_from(rank).ok()?).copied()
    }

    fn add(&mut self, parent: Option<CommunicatorId>, members: Vec<u32>, others: Option<Vec<u32>>) -> CommunicatorId {
        self.all.push(Communicator { parent, members, others });
        CommunicatorId(self.all.len() as u32 - 1)
    }

    /// Follows the calls of each process in their order, all processes side by side: a call is understood when all ranks
    /// of its communicator have made theirs. What is left when nobody comes further is not known.
    fn follow(&mut self, makings: Vec<Making>) {
        let mut queues: BTreeMap<ProcessKey, VecDeque<Making>> = BTreeMap::new();
        for making in makings {
            queues.entry(making.process).or_default().push_back(making);
        }
        let mut numbers: HashMap<(ProcessKey, CommunicatorId), usize> = HashMap::new();
        let mut waiting: BTreeMap<(CommunicatorId, usize), Vec<Making>> = BTreeMap::new();
        let mut sides = Vec::new();
        let mut busy: HashSet<ProcessKey> = HashSet::new();
        loop {
            let mut touched = Vec::new();
            for (&process, queue) in &mut queues {
                let next = if busy.contains(&process) { None } else { queue.pop_front() };
                let Some(making) = next else { continue };
                if self.has_freed(&making) {
                    touched.push(None);
                    continue;
                }
                let called = making.call.value(Role::Communicator);
                let Some(parent) = called.and_then(|called| self.find(process, called, making.call.at.start)) else {
                    self.name(&making, None);
                    touched.push(None);
                    continue;
                };
                let number = numbers.entry((process, parent)).or_default();
                waiting.entry((parent, *number)).or_default().push(making);
                touched.push(Some((parent, *number)));
                *number += 1;
                busy.insert(process);
            }
            if touched.is_empty() {
                break;
            }
            for key in touched.into_iter().flatten() {
                if waiting.get(&key).is_some_and(|makings| makings.len() == self.ranks_in(key.0))
                    && let Some(makings) = waiting.remove(&key)
                {
                    let understood = self.make(key.0, makings, &mut sides);
                    understood.iter().for_each(|process| _ = busy.remove(process));
                }
            }
        }
        let open = sides.into_iter().flat_map(|side: CommunicatorSide| side.makings);
        for making in queues.into_values().flatten().chain(waiting.into_values().flatten()).chain(open) {
            if !self.has_freed(&making) {
                self.name(&making, None);
            }
        }
    }

    /// The n-th window that each process makes of a communicator is the same one.
    fn name_windows(&mut self, makings: Vec<Making>) {
        self.windows.push(RmaWindow { communicator: CommunicatorId::WORLD, is_allocated: true });
        let mut numbers: HashMap<(ProcessKey, CommunicatorId), usize> = HashMap::new();
        let mut made: HashMap<(CommunicatorId, usize), WindowId> = HashMap::new();
        for Making { process, call, .. } in makings {
            let called = call.value(Role::Communicator);
            let id = called.and_then(|called| self.find(process, called, call.at.start)).map(|communicator| {
                let number = numbers.entry((process, communicator)).or_default();
                *number += 1;
                *made.entry((communicator, *number)).or_insert_with(|| {
                    self.windows.push(RmaWindow { communicator, is_allocated: call.has(Role::Bytes) });
                    WindowId(self.windows.len() as u32 - 1)
                })
            });
            if let Some((window, end)) = call.value(Role::NewHandle).zip(call.at.end) {
                let named = id.map_or(Named::Other, Named::One);
                self.window_names.entry((process, window)).or_default().push((end, named));
            }
        }
    }

    fn ranks_in(&self, id: CommunicatorId) -> usize {
        self.all.get(id.0 as usize).map_or(0, |of| of.members.len() + of.others.as_ref().map_or(0, Vec::len))
    }

    /// Makes what the calls of all ranks of a communicator have made. Gives the processes that may go on.
    fn make(
        &mut self,
        parent: CommunicatorId,
        makings: Vec<Making>,
        sides: &mut Vec<CommunicatorSide>,
    ) -> Vec<ProcessKey> {
        let processes = makings.iter().map(|making| making.process).collect();
        if makings.iter().any(|making| making.call.event == FunctionEvent::IntercommunicatorCreate) {
            return self.make_side(parent, makings, sides);
        }
        let (members, others) = match self.all.get(parent.0 as usize) {
            Some(of) => (of.members.clone(), of.others.clone()),
            None => return processes,
        };
        if others.is_some() && ranks_repeat(&makings) {
            let is_copy = !makings.iter().any(|making| making.call.has(Role::Color));
            let id = is_copy.then(|| self.add(Some(parent), members, others));
            makings.iter().for_each(|making| self.name(making, id));
            return processes;
        }
        let mut groups: BTreeMap<Option<i64>, Vec<Making>> = BTreeMap::new();
        // Whoever is no member gets none.
        for making in makings.into_iter().filter(|making| !making.is_outside()) {
            groups.entry(making.call.value(Role::Color)).or_default().push(making);
        }
        for mut group in groups.into_values().flat_map(by_host_if_needed) {
            name_where_unseen(&mut group);
            let id = self.ordered(parent, &group).map(|members| self.add(Some(parent), members, None));
            group.iter().for_each(|making| self.name(making, id));
        }
        processes
    }

    /// One of two communicators that make a third, whose leaders name each other. Gives the processes that may go on.
    fn make_side(
        &mut self,
        parent: CommunicatorId,
        makings: Vec<Making>,
        sides: &mut Vec<CommunicatorSide>,
    ) -> Vec<ProcessKey> {
        let processes = |makings: &[Making]| makings.iter().map(|making| making.process).collect::<Vec<_>>();
        let Some((own, other, tag)) = makings.iter().find_map(|making| self.leader(parent, making)) else {
            makings.iter().for_each(|making| self.name(making, None));
            return processes(&makings);
        };
        let is_other = |side: &CommunicatorSide| (side.own, side.other, side.tag) == (other, own, tag);
        let Some(place) = sides.iter().position(is_other) else {
            sides.push(CommunicatorSide { own, other, tag, parent, makings });
            return Vec::new();
        };
        let first = sides.remove(place);
        let members = |of: CommunicatorId| self.all[of.0 as usize].members.clone();
        let id = self.add(Some(first.parent), members(first.parent), Some(members(parent)));
        first.makings.iter().chain(&makings).for_each(|making| self.name(making, Some(id)));
        processes(&first.makings).into_iter().chain(processes(&makings)).collect()
    }

    /// The members of a new communicator: in the order that the library says, or else by key and rank.
    fn ordered(&self, parent: CommunicatorId, group: &[Making]) -> Option<Vec<u32>> {
        let old = |making: &Making| {
            self.all[parent.0 as usize].members.iter().position(|member| *member == making.rank).unwrap_or(usize::MAX)
        };
        let new_ranks: Vec<i64> = group.iter().filter_map(|making| making.new_rank).collect();
        // If one is not known, it is the one that is left.
        let left = (0..group.len() as i64).find(|rank| !new_ranks.contains(rank));
        // A group that the call passes, or that it may change the order, says more than what is known here.
        let may_differ = |making: &Making| making.call.has(Role::Handle) && making.call.value(Role::Handle) != Some(0);
        let mut order: Vec<(i64, usize, u32)> = match group.len() - new_ranks.len() {
            0 => group.iter().map(|making| (making.new_rank.unwrap_or(0), 0, making.rank)).collect(),
            1 => group.iter().map(|making| Some((making.new_rank.or(left)?, 0, making.rank))).collect::<Option<_>>()?,
            _ if self.all[parent.0 as usize].others.is_some() || group.iter().any(may_differ) => return None,
            _ => {
                let key = |making: &Making| making.call.value(Role::Key).unwrap_or(0);
                group.iter().map(|making| (key(making), old(making), making.rank)).collect()
            }
        };
        order.sort_unstable();
        let is_twice = order.windows(2).any(|pair| (pair[0].0, pair[0].1) == (pair[1].0, pair[1].1));
        (!is_twice).then(|| order.into_iter().map(|(_, _, rank)| rank).collect())
    }

    /// The leader of a side if it made this call, that of the other side, and their tag.
    fn leader(&self, parent: CommunicatorId, making: &Making) -> Option<(u32, u32, i64)> {
        let own = self.peer(making.process, parent, making.call.value(Role::Leader)?)?;
        if own != making.rank {
            return None;
        }
        let meeting = self.find(making.process, making.call.value(Role::PeerCommunicator)?, making.call.at.start)?;
        let other = self.peer(making.process, meeting, making.call.value(Role::Peer)?)?;
        Some((own, other, making.call.value(Role::Tag)?))
    }

    /// Whether a call frees a communicator, whose name means it in this call, and may stand for another one afterwards.
    fn has_freed(&mut self, making: &Making) -> bool {
        let is_free = making.call.event == FunctionEvent::CommunicatorFree;
        if let Some(called) = making.call.value(Role::Communicator).filter(|_| is_free) {
            let behind = Timestamp(making.call.at.start.0 + 1);
            self.names.entry((making.process, called)).or_default().push((behind, Named::Other));
        }
        is_free
    }

    /// What a call made has its name from its return on. Where the name is not known, any may be it.
    fn name(&mut self, making: &Making, id: Option<CommunicatorId>) {
        let process = making.process;
        match making.new_name {
            Some((called, since)) => {
                let named = id.map_or(Named::Other, Named::One);
                self.names.entry((process, called)).or_default().push((since, named));
            }
            None => {
                let of_process = self.names.iter_mut().filter(|((of, _), _)| *of == process);
                of_process.for_each(|(_, names)| names.push((making.call.at.start, Named::Any)));
            }
        }
    }
}

/// One of two communicators that make a third.
struct CommunicatorSide {
    own: u32,
    other: u32,
    tag: i64,
    parent: CommunicatorId,
    makings: Vec<Making>,
}

fn named<T: Copy>(names: &HandleNames<T>, process: ProcessKey, called: i64, time: Timestamp) -> Named<T> {
    let names = names.get(&(process, called)).map_or(&[][..], Vec::as_slice);
    names[..names.partition_point(|(from, _)| *from <= time)].last().map_or(Named::Other, |&(_, named)| named)
}

/// Adds the ranks in new communicators that the program asks for, where what made them does not say it. The calls that
/// make communicators are sorted by time.
fn add_own_ranks(makings: &mut [Making], mut asked: Vec<(ProcessKey, MessageCall)>) {
    asked.sort_by_key(|(_, call)| call.order());
    let mut asked = asked.into_iter().peekable();
    let mut last: HashMap<(ProcessKey, i64), usize> = HashMap::new();
    for place in 0..=makings.len() {
        let until = makings.get(place).map(|making| making.call.order());
        while let Some((process, call)) = asked.next_if(|(_, call)| until.is_none_or(|until| call.order() < until)) {
            let Some(called) = call.value(Role::Communicator) else { continue };
            if call.event == FunctionEvent::CommunicatorFree {
                last.remove(&(process, called));
            } else if let Some(making) = last.get(&(process, called)).and_then(|&place| makings.get_mut(place)) {
                making.new_rank = making.new_rank.or(call.value(Role::Rank));
            }
        }
        if let Some(making) = makings.get(place)
            && let Some(called) = making.call.value(Role::NewCommunicator)
        {
            last.insert((making.process, called), place);
        }
    }
}

/// Whether calls of such functions make communicators, or windows of these.
fn makes(event: FunctionEvent) -> bool {
    use FunctionEvent::{CommunicatorCreate, IntercommunicatorCreate, WindowCreate};
    matches!(event, CommunicatorCreate | IntercommunicatorCreate | WindowCreate)
}

/// A call may make a communicator on each machine: then ranks are there several times.
fn by_host_if_needed(group: Vec<Making>) -> Vec<Vec<Making>> {
    if !ranks_repeat(&group) {
        return vec![group];
    }
    let mut hosts: BTreeMap<usize, Vec<Making>> = BTreeMap::new();
    for making in group {
        hosts.entry(making.host).or_default().push(making);
    }
    hosts.into_values().collect()
}

/// A context is the same number for all ranks of a communicator, so one whose call was not seen to return has it from the
/// others, from the beginning of the call on.
fn name_where_unseen(group: &mut [Making]) {
    let names: HashSet<i64> = group.iter().filter_map(|making| Some(making.new_name?.0)).collect();
    let Some(&name) = names.iter().next().filter(|name| names.len() == 1 && **name < HANDLES) else { return };
    for making in group.iter_mut().filter(|making| making.new_name.is_none()) {
        making.new_name = Some((name, making.call.at.start));
    }
}

fn ranks_repeat(group: &[Making]) -> bool {
    let ranks: Vec<i64> = group.iter().filter_map(|making| making.new_rank).collect();
    ranks.iter().collect::<HashSet<_>>().len() < ranks.len()
}

/// The rank in the world of whoever made a call, if it says so.
fn own_rank(call: &MessageCall) -> Option<u32> {
    let is_world = WORLDS.contains(&call.value(Role::Communicator)?);
    call.value(Role::Rank).filter(|_| is_world).and_then(|rank| u32::try_from(rank).ok())
}

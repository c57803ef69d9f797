//! Messages of traces that are written line by line: thread, begin, end, event, and what has which role.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;

use rtrace_model::{
    Call, Definition, Ending, FunctionEvent, Header, Library, LibraryId, Location, LocationId, Rank, Region, RegionId,
    Role, Sink as _, Summary, Timestamp, ValueBatch, ValueColumn, ValueType, Values,
};

use super::*;
use crate::TraceWriter;

/// Writes the trace of one rank. A list has a `,` behind each element; `?` is not known.
fn write(path: &Path, rank: u32, size: u32, text: &str) {
    let mut writer = TraceWriter::create(path, None).unwrap();
    let rank = Some(Rank { rank, size: Some(size), job: None });
    writer.begin(&Header { rank, ..Header::default() }).unwrap();
    let library = Library { id: LibraryId(0), path: "/l".into(), apart: None, build_id: None, device: 1, inode: 2 };
    writer.define(&Definition::Library(library)).unwrap();
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let mut regions: HashMap<Vec<&str>, RegionId> = HashMap::new();
    let mut threads: Vec<u32> = Vec::new();
    for (number, words) in (1..).zip(lines.iter().filter(|words| !words.is_empty())) {
        let [thread, start, end, event, values @ ..] = words.as_slice() else { panic!("{words:?}") };
        let thread: u32 = thread.parse().unwrap();
        if !threads.contains(&thread) {
            threads.push(thread);
            let (start, name) = (Timestamp(0), String::new());
            let id = LocationId(thread);
            let location = Location { id, pid: 1, tid: thread, start, end: None, name, calls_entered: None };
            writer.define(&Definition::Location(location)).unwrap();
        }
        let (roles, values): (Vec<&str>, Vec<&str>) = values.iter().map(|word| word.split_once('=').unwrap()).unzip();
        // A function has its own columns: which roles, and which of them are lists. It is the same in all ranks.
        let lists = values.iter().map(|value| if value.contains(',') { "list" } else { "" });
        let (model, event) = event.strip_prefix("shmem_").map_or(("MPI", *event), |event| ("shmem", event));
        let key: Vec<&str> = [model, event].into_iter().chain(roles.iter().copied()).chain(lists).collect();
        let next = RegionId(regions.len() as u32);
        let name = format!("{model}_{}", key.join(" "));
        let id = *regions.entry(key).or_insert(next);
        if id == next {
            let mut place = DefaultHasher::new();
            name.hash(&mut place);
            let file_offset = place.finish() >> 16;
            let event = Some(FunctionEvent::from_name(event).unwrap());
            let region = Region { id, name, file_offset, size: 1, event, ..Region::default() };
            writer.define(&Definition::Region(region)).unwrap();
            for (position, (role, value)) in (0..).zip(roles.iter().zip(&values)) {
                Role::from_name(role).unwrap();
                writer.define(&Definition::ValueColumn(column(id, position, role, value.contains(',')))).unwrap();
            }
        }
        let start: u64 = start.parse().unwrap();
        let duration = end.parse::<u64>().ok().map(|end| end - start);
        let ending = if duration.is_some() { Ending::Returned } else { Ending::Unseen };
        let location = LocationId(thread);
        let call =
            Call { location, region: id, id: number, start: Timestamp(start), duration, ending, ..Call::default() };
        writer.calls(&vec![call].into()).unwrap();
        let columns = values.iter().map(|value| match value.contains(',') {
            true => Values::Text(vec![Some((*value).to_owned())]),
            false => Values::Integer(vec![value.parse().ok()]),
        });
        let values = ValueBatch { region: id, calls: vec![(location, number)], columns: columns.collect() };
        writer.values(&[values]).unwrap();
    }
    writer.finish(&Summary::default()).unwrap();
}

fn column(region: RegionId, position: u32, role: &str, is_list: bool) -> ValueColumn {
    ValueColumn {
        region,
        position,
        name: role.to_owned(),
        value_type: if is_list { ValueType::Text } else { ValueType::Integer },
        c_type: "int".into(),
        unit: None,
        role: Some(role.to_owned()),
        at_exit: false,
        source: String::new(),
    }
}

/// A job whose ranks do this.
fn job(ranks: &[&str]) -> (tempfile::TempDir, TraceSet) {
    let folder = tempfile::tempdir().unwrap();
    for (rank, text) in (0..).zip(ranks) {
        write(&folder.path().join(format!("rank-{rank:04}")), rank, ranks.len() as u32, text);
    }
    let set = TraceSet::open(folder.path()).unwrap();
    (folder, set)
}

fn kinds(set: &TraceSet, place: usize) -> (Vec<(u64, bool, MessageKind)>, MessageGaps) {
    let messages = set.messages().unwrap();
    let (events, gaps) = messages.events_of(place).unwrap();
    (events.into_iter().map(|event| (event.at.call, event.at_exit, event.kind)).collect(), gaps)
}

/// All messages by the time when they were sent, and what is missing.
fn matched(ranks: &[&str]) -> (Vec<MatchedMessage>, MessageGaps) {
    let (_folder, set) = job(ranks);
    let mut messages = Vec::new();
    let gaps = set.messages().unwrap().matched(|message| messages.push(message)).unwrap();
    messages.sort_by_key(|message| message.sent.start);
    (messages, gaps)
}

#[test]
fn the_call_that_returns_with_a_message_is_known() {
    let receiver = "1 0 1 irecv peer=0 tag=7 bytes=64 request=500 communicator=0
                    1 2 3 irecv peer=0 tag=8 bytes=64 request=501 communicator=0
                    1 10 99 wait count=2 request=500,501, source=0,0, source_tag=7,8, received=8,16,";
    let sender = "1 50 51 send peer=1 tag=7 bytes=8 communicator=0
                  1 60 61 isend peer=1 tag=8 bytes=16 request=9 communicator=0
                  1 70 80 wait request=9";
    let (messages, gaps) = matched(&[sender, receiver]);
    assert!(gaps.is_empty(), "{gaps:?}");
    let told: Vec<_> = messages.iter().map(|of| (of.tag, of.bytes.unwrap(), of.sent, of.received)).collect();
    let [(7, 8, sent, received), (8, 16, later, other)] = told[..] else { panic!("{told:?}") };
    assert_eq!((sent.start.0, sent.done.unwrap().call, later.done.unwrap().call), (50, 1, 3));
    assert_eq!((received.call, received.done.unwrap().call, received.end()), (1, 3, Some(Timestamp(99))));
    assert_eq!((other.call, other.done.unwrap().start.0), (2, 10));
}

#[test]
fn the_call_that_probes_for_a_message_is_known() {
    let receiver = "1 10 60 probe peer=-1 tag=-1 communicator=0 source=0 source_tag=7
                    1 61 62 probe peer=-1 tag=-1 communicator=0 source=0 source_tag=7
                    1 63 64 recv peer=0 tag=7 bytes=8 communicator=0 source=0 source_tag=7 received=8
                    1 70 99 probe peer=0 tag=8 communicator=0 request=500 source=0 source_tag=8
                    1 100 101 wait request=500 source=0 source_tag=8 received=16
                    1 102 103 probe peer=0 tag=8 communicator=0 flag=0 request=? source=? source_tag=?
                    1 104 105 probe peer=0 tag=9 communicator=0 flag=1 request=500 source=0 source_tag=9
                    1 106 107 irecv handle=500 bytes=32 request=7
                    1 108 109 wait request=7 source=0 source_tag=9 received=24
                    1 110 130 recv peer=0 tag=7 bytes=8 communicator=0 source=0 source_tag=7 received=4
                    1 140 141 probe peer=-2 tag=7 communicator=0 source=-2 source_tag=-1";
    let sender = "1 50 51 send peer=1 tag=7 bytes=8 communicator=0
                  1 90 91 send peer=1 tag=8 bytes=16 communicator=0
                  1 92 93 send peer=1 tag=9 bytes=24 communicator=0
                  1 120 121 send peer=1 tag=7 bytes=4 communicator=0";
    let (messages, gaps) = matched(&[sender, receiver]);
    assert!(gaps.is_empty(), "{gaps:?}");
    let calls = messages.iter().map(|MatchedMessage { received: of, bytes, .. }| {
        (of.call, of.done.map(|done| done.call), of.probed.map(|probed| probed.call), *bytes)
    });
    let expected = [
        (3, Some(3), Some(1), Some(8)),
        (4, Some(5), Some(4), Some(16)),
        (7, Some(9), Some(7), Some(24)),
        (10, Some(10), None, Some(4)),
    ];
    assert_eq!(calls.collect::<Vec<_>>(), expected);
}

#[test]
fn a_handle_means_the_last_request_before_the_call_that_waits() {
    // The second request gets the handle while the first call that waits is running.
    let rank = "1 0 1 irecv peer=0 tag=1 bytes=8 request=500 communicator=0
                1 5 20 wait request=500 source=0 source_tag=1 received=4
                2 10 12 irecv peer=0 tag=2 bytes=8 request=500 communicator=0
                2 30 40 wait request=500 source=0 source_tag=2 received=6";
    let (_folder, set) = job(&[rank]);
    let (kinds, gaps) = kinds(&set, 0);
    assert!(gaps.is_empty(), "{gaps:?}");
    let received = kinds.iter().filter_map(|(call, _, kind)| match kind {
        MessageKind::Irecv { transfer, request, .. } => Some((*call, transfer.tag, transfer.size, *request)),
        _ => None,
    });
    assert_eq!(received.collect::<Vec<_>>(), [(2, 1, Size::Exact(4), 0), (4, 2, Size::Exact(6), 1)]);
}

#[test]
fn what_is_not_known_of_requests_is_counted() {
    for (text, expected) in [
        ("1 0 ? irecv peer=0 tag=1 bytes=8 request=? communicator=0", [0, 1, 0]),
        ("1 0 1 irecv peer=0 tag=1 bytes=8 request=5 communicator=0", [0, 1, 0]),
        ("1 0 1 start request=77", [0, 0, 1]),
        ("1 0 1 isend peer=0 tag=1 bytes=8 request=5 communicator=99", [1, 0, 0]),
        // Sixteen of twenty are on record, and no others run.
        ("1 0 1 wait count=20 request=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,", [0, 4, 0]),
        // Which one has ended is not.
        (
            "1 0 1 irecv peer=0 tag=1 bytes=8 request=5 communicator=0
             1 2 ? wait request=5, index=?",
            [0, 2, 0],
        ),
        // Nobody waits for what is freed, and nothing was asked for that is undone.
        (
            "1 0 1 isend peer=0 tag=1 bytes=8 request=5 communicator=0
             1 2 3 request_free request=5",
            [0, 1, 0],
        ),
        (
            "1 0 1 irecv peer=0 tag=1 bytes=8 request=5 communicator=0
             1 2 3 cancel request=5
             1 4 5 wait request=5 source=-1 source_tag=-1 received=0",
            [0, 0, 0],
        ),
        // Sent to nobody.
        (
            "1 0 1 isend peer=-2 tag=1 bytes=8 request=5 communicator=0
             1 2 3 wait request=5",
            [0, 0, 0],
        ),
    ] {
        let (_folder, set) = job(&[text]);
        let (_, gaps) = kinds(&set, 0);
        assert_eq!([gaps.unknown_communicators, gaps.unseen_ends, gaps.unseen_begins], expected, "{text}");
    }
}

#[test]
fn a_receive_that_may_have_been_undone_got_nothing_that_is_known() {
    for (received, expected) in [(0, 1), (8, 0)] {
        let text = format!(
            "1 0 1 irecv peer=0 tag=1 bytes=8 request=5 communicator=0
             1 2 3 cancel request=5
             1 4 5 wait request=5 source=0 source_tag=1 received={received}"
        );
        let (_folder, set) = job(&[&text]);
        assert_eq!(kinds(&set, 0).1.unknown_receives, expected);
    }
}

#[test]
fn messages_of_threads_are_matched_where_their_order_is_known() {
    // The second and the third message overlap at the sender.
    let sender = "1 0 10 send peer=1 tag=7 bytes=1 communicator=0
                  1 20 40 send peer=1 tag=7 bytes=2 communicator=0
                  2 30 50 send peer=1 tag=7 bytes=3 communicator=0
                  2 60 70 send peer=1 tag=7 bytes=4 communicator=0";
    let receiver = "1 100 101 recv peer=0 tag=7 bytes=9 communicator=0 source=0 source_tag=7 received=1
                    1 110 111 recv peer=0 tag=7 bytes=9 communicator=0 source=0 source_tag=7 received=3
                    1 120 121 recv peer=0 tag=7 bytes=9 communicator=0 source=0 source_tag=7 received=2
                    1 130 131 recv peer=0 tag=7 bytes=9 communicator=0 source=0 source_tag=7 received=4";
    let (messages, gaps) = matched(&[sender, receiver]);
    assert_eq!(messages.iter().map(|of| of.bytes).collect::<Vec<_>>(), [Some(1), Some(4)]);
    assert_eq!((gaps.unordered, gaps.total()), (2, 2));
}

#[test]
fn where_a_message_may_be_missing_before_none_is_matched() {
    let receiver = "1 100 101 recv peer=0 tag=7 bytes=9 communicator=0 source=0 source_tag=7 received=1
                    1 110 111 recv peer=0 tag=7 bytes=9 communicator=0 source=0 source_tag=7 received=3";
    let sender = "1 0 1 send peer=1 tag=7 bytes=1 communicator=0";
    let (messages, gaps) = matched(&[sender, receiver]);
    assert_eq!((messages.len(), gaps.unmatched_sends, gaps.unmatched_receives), (0, 1, 2));
    // The last ones may be on their way.
    let sender = "1 0 1 send peer=1 tag=7 bytes=1 communicator=0
                  1 2 3 send peer=1 tag=7 bytes=3 communicator=0
                  1 4 5 send peer=1 tag=7 bytes=4 communicator=0";
    let (messages, gaps) = matched(&[sender, receiver]);
    assert_eq!((messages.len(), gaps.unmatched_sends, gaps.unmatched_receives), (2, 1, 0));
}

#[test]
fn accesses_end_at_the_call_that_waits_for_them() {
    let rank = "1 0 1 window_create communicator=0 rank=0 new_handle=900
                1 2 3 rma_iput peer=0 bytes=8 handle=900
                1 4 5 rma_iget peer=0 bytes=9 handle=900 request=5
                1 6 7 wait request=5
                1 8 9 rma_complete handle=901
                1 10 11 rma_sync handle=900
                1 12 13 rma_complete peer=0 handle=900
                1 14 15 rma_complete handle=900
                1 20 21 shmem_rma_put peer=0 bytes=1
                1 22 23 shmem_rma_get peer=0 bytes=2
                1 24 25 shmem_rma_iget peer=0 bytes=3
                1 26 27 shmem_rma_complete
                1 28 29 shmem_rma_put peer=0 bytes=4
                1 30 31 shmem_barrier";
    let (_folder, set) = job(&[rank]);
    let (kinds, gaps) = kinds(&set, 0);
    assert!(gaps.is_empty(), "{gaps:?}");
    let ended = kinds.iter().filter_map(|(call, at_exit, kind)| match kind {
        MessageKind::AccessComplete { access, completion, .. } => {
            assert!(at_exit);
            Some((*call, *access, *completion))
        }
        _ => None,
    });
    use Completion::{Call, Here, Target};
    let of_window = [(4, 1, Here), (4, 1, Target), (7, 0, Here), (7, 0, Target)];
    let others = [(9, 2, Call), (10, 3, Call), (12, 2, Target), (12, 4, Here), (12, 4, Target), (13, 5, Call)];
    let expected: Vec<_> = of_window.into_iter().chain(others).chain([(14, 5, Target)]).collect();
    assert_eq!(ended.collect::<Vec<_>>(), expected);
}

#[test]
fn accesses_to_one_rank_that_end_together_have_one_number() {
    let rank = "1 0 1 window_create communicator=0 rank=0 new_handle=900 error=0
                1 2 3 window_create communicator=0 rank=0 new_handle=901 bytes=64
                1 4 5 rma_fence handle=901
                1 6 7 rma_iput peer=0 bytes=8 handle=901
                1 8 9 rma_iatomic peer=0 bytes=8 handle=901
                1 10 11 rma_iget peer=0 bytes=8 handle=901
                1 12 13 rma_iput peer=0 bytes=8 handle=900
                1 14 15 rma_complete_here peer=0 handle=901
                1 16 17 rma_iput peer=0 bytes=8 handle=901
                1 18 19 rma_fence handle=901
                1 20 21 rma_lock peer=0 handle=901
                1 22 23 rma_iput peer=0 bytes=8 handle=901
                1 24 25 rma_unlock peer=0 handle=901
                1 26 27 window_free handle=901
                1 28 29 window_create communicator=0 rank=0 new_handle=900 error=53";
    let (_folder, set) = job(&[rank]);
    let (kinds, gaps) = kinds(&set, 0);
    assert!(gaps.is_empty(), "{gaps:?}");
    let told = kinds.iter().map(|(call, at_exit, kind)| match kind {
        MessageKind::Access { window, access, .. } => format!("{call} access {access} of {}", window.0),
        MessageKind::AccessComplete { access, completion, .. } => format!("{call} {access} ended {completion:?}"),
        MessageKind::Lock { window, target, is_over } => {
            assert_eq!(at_exit, is_over);
            format!("{call} lock of {} {target:?} {is_over}", window.0)
        }
        MessageKind::Collective(Collective { event, window, .. }) => {
            format!("{call} {} of {}", event.name(), window.unwrap().0)
        }
        other => panic!("{other:?}"),
    });
    let expected = [
        "1 window_create of 1",
        "2 window_create of 2",
        "3 rma_fence of 2",
        "4 access 0 of 2",
        "5 access 0 of 2",
        "6 access 2 of 2",
        "7 access 3 of 1",
        "8 0 ended Here",
        "8 2 ended Here",
        "8 2 ended Target",
        "9 access 0 of 2",
        "10 rma_fence of 2",
        "10 0 ended Here",
        "11 lock of 2 Some(0) false",
        "12 access 5 of 2",
        "13 5 ended Here",
        "13 5 ended Target",
        "13 lock of 2 Some(0) true",
        "14 window_free of 2",
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected);
    let messages = set.messages().unwrap();
    let allocated: Vec<bool> = messages.windows().iter().map(|window| window.is_allocated).collect();
    assert_eq!(allocated, [true, false, true]);
}

/// What makes a communicator was not seen to return on one rank, and the next call is not of its old name there.
#[test]
fn a_context_is_known_from_the_other_ranks() {
    let rank = |end: &str, new: &str, own: &str| {
        format!(
            "1 10 {end} communicator_create communicator=0 handle=7 new_communicator={new} new_rank={own}
             1 30 31 barrier communicator=3"
        )
    };
    let (_folder, set) = job(&[&rank("20", "3", "1"), &rank("-", "?", "?")]);
    for place in 0..2 {
        let (kinds, gaps) = kinds(&set, place);
        assert!(gaps.is_empty(), "{gaps:?}");
        let MessageKind::Collective(collective) = kinds.last().unwrap().2 else { panic!("{kinds:?}") };
        assert_ne!(collective.communicator, CommunicatorId::WORLD);
        let messages = set.messages().unwrap();
        assert_eq!(messages.communicators()[collective.communicator.0 as usize].members, [1, 0]);
    }
}

/// What makes the communicator that has its name afterwards is not on record.
#[test]
fn a_communicator_that_was_freed_is_not_the_next_of_its_name() {
    let of = |calls: &str| {
        let made = "1 0 1 communicator_create communicator=0 new_communicator=4 new_rank=0";
        let made = if calls.contains("peer=0") { made.replace("new_rank=0", "new_rank=1") } else { made.to_owned() };
        format!("{made}\n{calls}")
    };
    let sender = of("1 2 3 send peer=1 tag=7 bytes=3 communicator=4
                     1 4 5 communicator_free communicator=4
                     1 6 7 send peer=1 tag=7 bytes=4 communicator=4
                     1 8 9 barrier communicator=4
                     1 10 11 send peer=1 tag=7 bytes=5 communicator=0");
    let receiver = of("1 2 3 recv peer=0 tag=7 bytes=3 communicator=4 source=0 source_tag=7 received=3
                       1 4 5 communicator_free communicator=4
                       1 6 7 recv peer=0 tag=7 bytes=4 communicator=4 source=0 source_tag=7 received=4
                       1 8 9 barrier communicator=4
                       1 10 11 recv peer=0 tag=7 bytes=5 communicator=0 source=0 source_tag=7 received=5");
    let (messages, gaps) = matched(&[&sender, &receiver]);
    assert_eq!(messages.iter().map(|message| message.bytes).collect::<Vec<_>>(), [Some(3), Some(5)]);
    assert_eq!((gaps.unknown_communicators, gaps.total()), (4, 4));
    let (_folder, set) = job(&[&sender, &receiver]);
    let (events, _) = set.messages().unwrap().events_of(0).unwrap();
    let handles = events.into_iter().filter_map(|event| match event.kind {
        MessageKind::Handle { communicator, is_made } => Some((communicator, is_made)),
        _ => None,
    });
    assert_eq!(handles.collect::<Vec<_>>(), [(CommunicatorId(0), true), (CommunicatorId(3), false)]);
}

#[test]
fn a_message_that_a_probe_has_found_is_known_without_a_status() {
    let sender = "1 0 1 send peer=1 tag=7 bytes=3 communicator=0";
    let receiver = "1 2 3 probe peer=-1 tag=-1 communicator=0 request=9 source=0 source_tag=7 received=3
                    1 4 5 wait request=9 source=? source_tag=? received=?";
    let (messages, gaps) = matched(&[sender, receiver]);
    assert!(gaps.is_empty(), "{gaps:?}");
    assert_eq!(messages.iter().map(|message| (message.tag, message.bytes)).collect::<Vec<_>>(), [(7, Some(3))]);
}

#[test]
fn what_does_not_say_its_communicator_is_of_none() {
    let rank = "1 0 1 barrier
                1 2 3 rma_iput peer=0 bytes=8
                1 4 5 rma_fence
                1 6 7 rma_lock peer=0";
    let (_folder, set) = job(&[rank]);
    let (kinds, gaps) = kinds(&set, 0);
    assert_eq!((kinds, gaps.unknown_others, gaps.unknown_communicators), (Vec::new(), 2, 2));
}

#[test]
fn a_collective_operation_with_a_request_ends_where_that_ends() {
    let rank = "1 0 1 allreduce bytes=8 communicator=0 request=5
                1 2 3 barrier communicator=0
                1 4 5 wait request=5";
    let (_folder, set) = job(&[rank]);
    let (kinds, gaps) = kinds(&set, 0);
    assert!(gaps.is_empty(), "{gaps:?}");
    let collective = |event, bytes| Collective {
        event,
        communicator: CommunicatorId::WORLD,
        window: None,
        root: None,
        sent: Size::Exact(bytes),
        received: Size::Exact(bytes),
    };
    let sum = collective(FunctionEvent::Allreduce, 8);
    let expected = [
        (1, false, MessageKind::CollectiveRequest { collective: sum, request: 0 }),
        (2, false, MessageKind::Collective(collective(FunctionEvent::Barrier, 0))),
        (3, true, MessageKind::CollectiveComplete { collective: sum, request: 0 }),
    ];
    assert_eq!(kinds, expected);
}

#[test]
fn ranks_that_a_program_asks_for_say_who_is_in_a_communicator() {
    // Handles as in MPICH: what makes the communicator says no rank in it.
    let world = 0x4400_0000;
    let made = |rank: u32, new: i64, asked: &str| {
        format!(
            "1 {rank} 10 communicator_create communicator={world} handle=1 new_communicator={new}
             {asked}
             1 30 31 communicator_free communicator={new}
             1 40 41 communicator_create communicator={world} handle=1 new_communicator={new}"
        )
    };
    let ask = |rank: u32| format!("1 20 21 communicator_rank communicator=2214592513 rank={rank}");
    let ranks = [made(0, 2_214_592_513, &ask(1)), made(1, 0x0400_0000, ""), made(2, 2_214_592_513, &ask(0))];
    let (_folder, set) = job(&ranks.each_ref().map(String::as_str));
    let messages = set.messages().unwrap();
    let known: Vec<_> = messages.communicators().iter().filter(|of| of.parent.is_some()).collect();
    // Nobody asked for ranks in the second one.
    assert_eq!(known.iter().map(|of| of.members.clone()).collect::<Vec<_>>(), [vec![2, 0]]);
}

#[test]
fn calls_that_come_one_by_one_have_the_same_records() {
    let rank = "1 0 1 irecv peer=0 tag=1 bytes=8 request=500 communicator=0
                2 1 2 isend peer=0 tag=1 bytes=4 request=7 communicator=0
                1 5 20 wait request=500 source=0 source_tag=1 received=4
                2 6 8 wait request=7
                1 21 22 allreduce bytes=8 communicator=0
                1 23 ? irecv peer=0 tag=2 bytes=8 request=? communicator=0";
    let (_folder, set) = job(&[rank]);
    let messages = set.messages().unwrap();
    let (expected, gaps) = messages.events_of(0).unwrap();
    let mut calls: Vec<Call> =
        set.calls().flat_map(|batch| batch.unwrap().iter().copied().collect::<Vec<_>>()).collect();
    calls.sort_by_key(|call| call.start);
    let values = set.value_reader().of(&calls).unwrap();
    let mut followed = messages.follow();
    let mut found = Vec::new();
    for (call, values) in calls.iter().zip(&values) {
        found.extend(followed.next(call, values.as_ref()));
    }
    assert_eq!(followed.gaps(), gaps);
    found.sort_by_key(|event| (event.at.location, event.at.call, event.at_exit));
    assert_eq!(found, expected);
}

/// Of each call of which it is known: its rank, its number, and until when it waited.
fn awaited(ranks: &[&str]) -> Vec<(u32, u64, u64)> {
    let (_folder, set) = job(ranks);
    let messages = set.messages().unwrap();
    let mut found = Vec::new();
    let visit = |of: AwaitedCall| found.push((messages.rank_of(of.at.location).unwrap(), of.at.call, of.until.0));
    messages.awaited(visit).unwrap();
    found.sort_unstable();
    found
}

#[test]
fn a_collective_operation_waits_for_those_whose_data_it_needs() {
    let operations = |starts: [u64; 5]| {
        let [barrier, broadcast, reduce, scan, request] = starts;
        format!(
            "1 {barrier} 199 barrier communicator=0
             1 {broadcast} 299 broadcast root=1 bytes=8 communicator=0
             1 {reduce} 399 reduce root=1 bytes=8 communicator=0
             1 {scan} 499 scan bytes=8 communicator=0
             1 {request} 560 allreduce bytes=8 communicator=0 request=5
             1 570 599 wait request=5"
        )
    };
    let ranks = [[100, 200, 310, 420, 500], [150, 250, 305, 400, 550], [120, 260, 350, 410, 510]].map(operations);
    let found = awaited(&ranks.each_ref().map(String::as_str));
    let until = |rank: u32, times: [u64; 5]| [1, 2, 3, 4, 6].map(|call| (rank, call)).into_iter().zip(times);
    // Of the broadcast for the root, of the reduction the root for all, of the scan for those before; and a call that waits
    // for a request until all have begun the operation.
    let all =
        [until(0, [150, 250, 310, 420, 570]), until(1, [150, 250, 350, 420, 570]), until(2, [150, 260, 350, 420, 570])];
    let expected: Vec<_> = all.into_iter().flatten().map(|((rank, call), until)| (rank, call, until)).collect();
    assert_eq!(found, expected);
}

#[test]
fn where_an_operation_is_missing_none_of_its_communicator_is_told_apart() {
    let both = "1 10 100 barrier communicator=0
                1 110 200 barrier communicator=0";
    assert_eq!(awaited(&[both, both]).len(), 4);
    assert_eq!(awaited(&[both, "1 10 100 barrier communicator=0"]), []);
    // Nor is what comes after operations that cannot be the same one.
    let other = "1 20 100 barrier communicator=0
                 1 110 200 allreduce bytes=8 communicator=0";
    assert_eq!(awaited(&[both, other]), [(0, 1, 20), (1, 1, 20)]);
}

#[test]
fn a_call_waits_for_the_last_of_the_messages_that_it_returns_with() {
    let receiver = "1 0 1 irecv peer=0 tag=7 bytes=64 request=500 communicator=0
                    1 2 3 irecv peer=0 tag=8 bytes=64 request=501 communicator=0
                    1 10 99 wait count=2 request=500,501, source=0,0, source_tag=7,8, received=8,16,
                    1 100 200 recv peer=0 tag=9 bytes=8 communicator=0 source=0 source_tag=9 received=8
                    1 210 220 recv peer=0 tag=9 bytes=8 communicator=0 source=0 source_tag=9 received=8";
    let sender = "1 50 51 send peer=1 tag=7 bytes=8 communicator=0
                  1 60 61 send peer=1 tag=8 bytes=16 communicator=0
                  1 80 150 send peer=1 tag=9 bytes=8 communicator=0
                  1 160 161 send peer=1 tag=9 bytes=8 communicator=0";
    // The third send returns after the receiver has come: that one was late.
    let sent = [(0, 1, 50), (0, 2, 60), (0, 3, 100), (0, 4, 160)];
    assert_eq!(awaited(&[sender, receiver]), [&sent[..], &[(1, 3, 60), (1, 4, 100), (1, 5, 210)]].concat());
    // Of a message whose sender is not known, neither is the waiting.
    let others = "1 0 1 irecv peer=0 tag=7 bytes=64 request=500 communicator=0
                  1 10 99 wait request=500 source=0 source_tag=7 received=8";
    assert_eq!(awaited(&["1 0 1 barrier communicator=99", others]), []);
}

#[test]
fn what_a_library_sends_while_it_accesses_a_file_is_its_own() {
    let rank = "1 0 100 communicator_create communicator=0 new_communicator=5 rank=0 new_rank=0
                1 10 20 allreduce bytes=8 communicator=0
                1 110 120 allreduce bytes=8 communicator=0
                1 130 ? barrier communicator=0
                1 140 150 send peer=0 tag=1 bytes=8 communicator=0
                1 160 170 recv peer=0 tag=1 bytes=8 communicator=0 source=0 source_tag=1 received=8";
    let (_folder, set) = job(&[rank]);
    let (kinds, gaps) = kinds(&set, 0);
    assert!(gaps.is_empty(), "{gaps:?}");
    // Nobody knows what is within a call whose return was not seen.
    assert_eq!(kinds.iter().map(|(call, ..)| *call).collect::<Vec<_>>(), [1, 3, 4, 5, 6]);
}

#[test]
fn what_is_done_with_files_has_records_of_its_own() {
    let rank = "1 0 1 io_open new_handle=7 communicator=0
                1 2 3 io_write handle=7 bytes=40 received=30
                1 4 5 io_read handle=7 bytes=24 request=9
                1 6 7 wait request=9 source=0 source_tag=0 received=24
                1 8 9 io_write handle=7 bytes=16
                1 10 11 io_other handle=7 received=?
                1 12 13 io_close handle=7
                1 14 15 io_read handle=7 bytes=5 received=?";
    let (_folder, set) = job(&[rank]);
    let (kinds, gaps) = kinds(&set, 0);
    assert!(gaps.is_empty(), "{gaps:?}");
    let begun = |operation, is_write, asked, is_nonblocking| FileAct::Begun {
        operation,
        is_write,
        asked: Some(asked),
        is_nonblocking,
    };
    let done = |operation, bytes| FileAct::Done { operation, bytes };
    let expected = [
        (1, true, 0, FileAct::Opened(Some(CommunicatorId::WORLD))),
        (2, false, 0, begun(1, true, 40, false)),
        (2, true, 0, done(1, Size::Exact(30))),
        (3, false, 0, begun(2, false, 24, true)),
        (3, true, 0, FileAct::Issued(2)),
        (4, true, 0, done(2, Size::Exact(24))),
        // Between two calls without a request; all that was asked for is written, unless the program is told otherwise.
        (5, false, 0, begun(3, true, 16, true)),
        (5, true, 0, FileAct::Issued(3)),
        (6, true, 0, done(3, Size::Posted(16))),
        (7, true, 0, FileAct::Closed),
        // The handle is one that nobody saw opened.
        (8, false, 4, FileAct::Found),
        (8, false, 4, begun(5, false, 5, false)),
        (8, true, 4, done(5, Size::Unknown)),
    ];
    assert_eq!(kinds, expected.map(|(call, at_exit, file, act)| (call, at_exit, MessageKind::File { file, act })));
}

#[test]
fn a_call_that_waits_for_more_requests_than_are_on_record_ends_the_others() {
    let count = 20;
    let ask = |n: usize| format!("1 {n} {n} irecv peer=0 tag={n} bytes=64 request={} communicator=0\n", 500 + n);
    let list = |of: fn(usize) -> String| (0..16).map(|n| of(n) + ",").collect::<String>();
    let [handles, sources, tags, bytes] =
        [|n: usize| (500 + n).to_string(), |_| "0".to_owned(), |n: usize| n.to_string(), |_| "8".to_owned()].map(list);
    let wait = |start: u64, count: usize| {
        format!(
            "1 {start} 99 wait count={count} request={handles} source={sources} source_tag={tags} received={bytes}\n"
        )
    };
    let sender: String =
        (0..count).map(|n| format!("1 {n} {n} send peer=1 tag={n} bytes=8 communicator=0\n")).collect();
    let asked: String = (0..count).map(ask).collect();
    let (messages, gaps) = matched(&[&sender, &(asked.clone() + &wait(50, count))]);
    assert!(gaps.is_empty(), "{gaps:?}");
    let told: Vec<_> = messages.iter().map(|of| (of.tag, of.received.end(), of.bytes)).collect();
    assert_eq!(told, (0..20).map(|tag| (tag, Some(Timestamp(99)), Some(8))).collect::<Vec<_>>());
    // One more runs, so it is not known which: the messages are, and not when they came.
    let (messages, gaps) = matched(&[&sender, &(asked + &ask(20) + &wait(50, count))]);
    assert_eq!((gaps.unseen_ends, gaps.unmatched_receives, gaps.unmatched_sends), (9, 0, 0));
    let told: Vec<_> = messages.iter().map(|of| (of.tag, of.received.end().is_some())).collect();
    assert_eq!(told, (0..20).map(|tag| (tag, tag < 16)).collect::<Vec<_>>());
}

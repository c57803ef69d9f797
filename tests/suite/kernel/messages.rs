//! Messages of MPI, compared with the log that a program writes of itself.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;

use rtrace_exporters::{
    CommunicatorId, Matched, MatchedMessage, MessageEnd, MessageEvent, MessageKind, Messages, Size, TraceSet, Transfer,
};
use rtrace_model::LocationId;
use tempfile::TempDir;

use crate::common::rtrace;
use crate::common::skip::{Turn, installed};
use crate::common::target::mpi_messages;

const RANKS: u32 = 4;

/// A message of the log: its other end, tag, bytes and communicator.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Logged {
    peer: u32,
    tag: i32,
    bytes: Size,
    communicator: String,
    /// Of a receive: who sent it, and the number that the sender gave it; negative where the message is too short.
    id: Option<(i64, i64)>,
}

/// What one rank wrote.
#[derive(Debug, Default)]
struct Log {
    sent: BTreeMap<u64, Logged>,
    received: BTreeMap<u64, Logged>,
    collectives: Vec<[String; 5]>,
    accesses: Vec<[String; 3]>,
    communicators: HashMap<String, Vec<u32>>,
}

fn read_log(path: &Path) -> Log {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut log = Log::default();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let message = || Logged {
            peer: words[2].parse().unwrap(),
            tag: words[3].parse().unwrap(),
            bytes: match words[4].strip_prefix('?') {
                Some(posted) => Size::Posted(posted.parse().unwrap()),
                None => Size::Exact(words[4].parse().unwrap()),
            },
            communicator: words[5].to_owned(),
            id: words.get(6).map(|source| (source.parse().unwrap(), words[7].parse().unwrap())),
        };
        let own = |from: usize| words[from].to_owned();
        match words[0] {
            "S" => assert!(log.sent.insert(words[1].parse().unwrap(), message()).is_none(), "{line}"),
            "R" => assert!(log.received.insert(words[1].parse().unwrap(), message()).is_none(), "{line}"),
            "C" => log.collectives.push([1, 2, 3, 4, 5].map(own)),
            "P" => log.accesses.push([1, 2, 3].map(own)),
            "G" => {
                let members = words[2].split(',').map(|rank| rank.parse().unwrap()).collect();
                log.communicators.insert(own(1), members);
            }
            other => panic!("{other}"),
        }
    }
    log
}

/// A job that ran under rtrace, and what its ranks wrote.
struct Job {
    _folder: TempDir,
    traces: PathBuf,
    logs: Vec<Log>,
}

/// Runs scenarios of a program as ranks of a job, each under rtrace.
fn run(launcher: &str, program: &Path, scenarios: &[&str]) -> Job {
    let folder = TempDir::new().unwrap();
    let [traces, logs] = ["traces", "logs"].map(|name| folder.path().join(name));
    std::fs::create_dir(&logs).unwrap();
    let mut mpirun = Command::new(launcher);
    if launcher.ends_with("openmpi") {
        mpirun.args(["--allow-run-as-root", "--oversubscribe"]);
    }
    mpirun.args(["-n", &RANKS.to_string()]).arg(rtrace::command().get_program());
    mpirun.args(["run", "--no-tui", "--lib", "libmpi*", "--func", "MPI_*", "--func", "PMPI_*", "--args", "-o"]);
    mpirun.arg(&traces).arg("--").arg(program).arg(&logs).args(scenarios);
    let output = mpirun.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let logs = (0..RANKS).map(|rank| read_log(&logs.join(format!("log.{rank}")))).collect();
    Job { _folder: folder, traces, logs }
}

/// Runs scenarios until no return was missed of which messages depend: on a busy machine, a probe may come too late.
fn run_completely(launcher: &str, program: &Path, scenarios: &[&str]) -> Job {
    for _ in 0..4 {
        let job = run(launcher, program, scenarios);
        let set = TraceSet::open(&job.traces).unwrap();
        let messages = set.messages().unwrap();
        let is_complete = (0..RANKS as usize).all(|place| {
            let (_, gaps) = messages.events_of(place).unwrap();
            let untimed = set.traces().nth(place).unwrap().untimed().unwrap();
            assert!(gaps.is_empty() || !untimed.is_empty(), "rank {place}: {gaps:?}, and all returns were seen");
            gaps.is_empty()
        });
        if is_complete {
            return job;
        }
    }
    panic!("in each of four runs the return of a call was missed");
}

/// The ends of messages of one rank, in the order in which they began, of one side.
fn ends(events: &[MessageEvent], is_sent: bool) -> Vec<Transfer> {
    let mut ends: Vec<_> = events
        .iter()
        .filter_map(|event| match event.kind {
            MessageKind::Send(transfer) | MessageKind::Isend { transfer, .. } if is_sent => Some((event.at, transfer)),
            MessageKind::Recv(transfer) if !is_sent => Some((event.at, transfer)),
            MessageKind::Irecv { transfer, posted, .. } if !is_sent => Some((posted, transfer)),
            _ => None,
        })
        .collect();
    ends.sort_by_key(|(at, _)| (at.start, at.call));
    ends.into_iter().map(|(_, transfer)| transfer).collect()
}

/// The communicators of the trace by the labels of the log.
#[derive(Default)]
struct Labels(HashMap<String, CommunicatorId>);

impl Labels {
    fn check(&mut self, label: &str, id: CommunicatorId, messages: &Messages<'_>, logs: &[Log]) {
        let known = *self.0.entry(label.to_owned()).or_insert(id);
        assert_eq!(known, id, "{label}");
        let members = logs.iter().find_map(|log| log.communicators.get(label)).unwrap();
        let communicator = &messages.communicators()[id.0 as usize];
        let found = match &communicator.others {
            Some(others) if communicator.members != *members => others,
            _ => &communicator.members,
        };
        assert_eq!(found, members, "{label}");
        assert_eq!(self.0.values().filter(|other| **other == id).count(), 1, "{label}: {:?}", self.0);
    }
}

/// As the log has sizes.
fn bytes(size: Size) -> String {
    size.exact().map_or("-1".to_owned(), |bytes| bytes.to_string())
}

/// Compares all messages of all ranks with their logs; gives how many there are.
fn compare(job: &Job) -> usize {
    let set = TraceSet::open(&job.traces).unwrap();
    let messages = set.messages().unwrap();
    assert_eq!(messages.size(), RANKS);
    let mut labels = Labels::default();
    for (place, log) in job.logs.iter().enumerate() {
        let (events, gaps) = messages.events_of(place).unwrap();
        assert!(gaps.is_empty(), "rank {place}: {gaps:?}");
        let collectives = events.iter().filter_map(|event| match event.kind {
            MessageKind::Collective { event, communicator, root, sent, received } => {
                let root = root.map_or("-1".to_owned(), |root| root.to_string());
                Some((communicator, [event.name().to_owned(), root, bytes(sent), bytes(received)]))
            }
            _ => None,
        });
        let collectives: Vec<_> = collectives.collect();
        assert_eq!(collectives.len(), log.collectives.len(), "rank {place}");
        for (logged, (communicator, told)) in log.collectives.iter().zip(&collectives) {
            let [event, label, root, sent, received] = logged.clone();
            assert_eq!(*told, [event, root, sent, received], "rank {place}");
            labels.check(&label, *communicator, &messages, &job.logs);
        }
        let accesses = events.iter().filter_map(|event| match event.kind {
            MessageKind::Access { event, target, size, .. } => {
                Some([event.name().to_owned(), target.to_string(), bytes(size)])
            }
            _ => None,
        });
        assert_eq!(accesses.collect::<Vec<_>>(), log.accesses, "rank {place}");
        for (logged, is_sent) in [(&log.sent, true), (&log.received, false)] {
            let found = ends(&events, is_sent);
            assert_eq!(found.len(), logged.len(), "rank {place}, sent: {is_sent}");
            for ((number, logged), found) in logged.iter().zip(&found) {
                let Logged { peer, tag, bytes, .. } = *logged;
                let told = (found.peer, found.tag, found.size);
                assert_eq!(told, (peer, tag, bytes), "rank {place}, number {number}, sent: {is_sent}: {logged:?}");
                labels.check(&logged.communicator, found.communicator, &messages, &job.logs);
            }
        }
    }
    let Matched { messages: matched, gaps } = messages.matched().unwrap();
    assert!(gaps.is_empty(), "{gaps:?}");
    assert_eq!(matched.len(), job.logs.iter().map(|log| log.sent.len()).sum::<usize>());
    check_pairs(job, &messages, &matched);
    matched.len()
}

/// Each message was received where it says that it came from.
fn check_pairs(job: &Job, messages: &Messages<'_>, matched: &[MatchedMessage]) {
    let rank = |location: LocationId| messages.rank_of(location).unwrap();
    // The messages of a rank in the order in which it numbered them. One call that starts several has them by tag.
    let numbered = |end: fn(&MatchedMessage) -> MessageEnd, of: u32| {
        let mut of_rank: Vec<&MatchedMessage> =
            matched.iter().filter(|message| rank(end(message).location) == of).collect();
        of_rank.sort_by_key(|message| (end(message).start, end(message).call, message.tag));
        of_rank
    };
    for target in 0..RANKS {
        let received = numbered(|message| message.received, target);
        for (message, logged) in received.iter().zip(job.logs[target as usize].received.values()) {
            let Some((source, number)) = logged.id.filter(|(source, _)| *source >= 0) else { continue };
            assert_eq!(i64::from(message.source), source, "{message:?} {logged:?}");
            let sent = numbered(|message| message.sent, message.source);
            let place = sent.iter().position(|sent| sent == message).unwrap();
            let expected = job.logs[source as usize].sent.keys().position(|key| *key as i64 == number).unwrap();
            assert_eq!(place, expected, "to {target} from {source}: {message:?}");
            assert!(message.received.end.unwrap() >= message.sent.start);
        }
    }
}

#[test]
fn messages_of_open_mpi_are_those_that_its_ranks_log() {
    let Some(_turn) = Turn::take() else { return };
    if !installed(&["mpicc.openmpi", "mpirun.openmpi"]) {
        return;
    }
    let program = mpi_messages("mpicc.openmpi");
    let scenarios = [
        "blocking",
        "nonblocking",
        "wildcards",
        "derived",
        "communicators",
        "persistent",
        "collectives",
        "accesses",
        "intercommunicator",
    ];
    let job = run_completely("mpirun.openmpi", &program, &scenarios);
    let messages = compare(&job);
    assert!(messages > 2_000, "{messages}");
    check_archive(&job);
}

/// What OTF2's own reader finds in an archive: the messages and bytes from each rank to each other, as sent and as
/// received, and the accesses and collective operations.
const MATRIX: &str = r#"
import sys, collections, otf2
sent, received, others = (collections.Counter() for _ in range(3))
open_requests = set()
with otf2.reader.open(sys.argv[1]) as trace:
    ranks = {}
    for group in trace.definitions.groups:
        if group.group_type == otf2.GroupType.COMM_LOCATIONS:
            ranks = {location: rank for rank, location in enumerate(group.members)}
    for location, event in trace.events:
        if location not in ranks:
            continue
        own, kind = ranks[location], type(event).__name__
        if kind in ("MpiSend", "MpiIsend"):
            sent[own, ranks[event.communicator.location(event.receiver)], event.msg_tag, event.msg_length] += 1
        elif kind in ("MpiRecv", "MpiIrecv"):
            received[ranks[event.communicator.location(event.sender)], own, event.msg_tag, event.msg_length] += 1
        elif kind.startswith("Rma") or kind == "MpiCollectiveEnd":
            others[own, kind] += 1
        if kind in ("MpiIsend", "MpiIrecvRequest"):
            open_requests.add((own, event.request_id))
        elif kind in ("MpiIsendComplete", "MpiIrecv"):
            open_requests.remove((own, event.request_id))
assert not open_requests, open_requests
for name, counter in (("sent", sent), ("received", received), ("other", others)):
    for key, count in sorted(counter.items()):
        print(name, *key, count)
"#;

/// The archive has the same messages as the log, and OTF2's tools have nothing to complain about.
fn check_archive(job: &Job) {
    let python = Command::new("/usr/bin/python3").args(["-c", "import otf2"]).output();
    if !installed(&["otf2-print"]) || !python.is_ok_and(|output| output.status.success()) {
        return;
    }
    let archive = job.traces.with_file_name("archive");
    let export =
        rtrace::command().arg("export").arg(&job.traces).args(["--format", "otf2", "-o"]).arg(&archive).output();
    assert!(export.as_ref().unwrap().status.success(), "{export:?}");
    let anchor = archive.join("traces.otf2");
    let print = Command::new("otf2-print").arg(&anchor).output().unwrap();
    assert!(print.status.success() && print.stderr.is_empty(), "{}", String::from_utf8_lossy(&print.stderr));
    let matrix = Command::new("/usr/bin/python3").args(["-c", MATRIX]).arg(&anchor).output().unwrap();
    assert!(matrix.status.success(), "{}", String::from_utf8_lossy(&matrix.stderr));
    let text = String::from_utf8(matrix.stdout).unwrap();
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for (own, log) in job.logs.iter().enumerate() {
        let size = |size| match size {
            Size::Exact(bytes) | Size::Posted(bytes) => bytes,
            Size::Unknown => panic!("the log knows all sizes"),
        };
        for Logged { peer, tag, bytes, .. } in log.sent.values() {
            *expected.entry(format!("sent {own} {peer} {tag} {}", size(*bytes))).or_default() += 1;
        }
        for Logged { peer, tag, bytes, .. } in log.received.values() {
            *expected.entry(format!("received {peer} {own} {tag} {}", size(*bytes))).or_default() += 1;
        }
        *expected.entry(format!("other {own} MpiCollectiveEnd")).or_default() += log.collectives.len() as u64;
        for [event, ..] in &log.accesses {
            let kind = match event.as_str() {
                "rma_put" => "RmaPut",
                "rma_get" => "RmaGet",
                _ => "RmaAtomic",
            };
            *expected.entry(format!("other {own} {kind}")).or_default() += 1;
        }
    }
    let found = text.lines().map(|line| {
        let (key, count) = line.rsplit_once(' ').unwrap();
        (key.to_owned(), count.parse().unwrap())
    });
    assert_eq!(found.collect::<BTreeMap<String, u64>>(), expected);
}

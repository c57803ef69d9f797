//! Messages of MPI, compared with the log that a program writes of itself.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rtrace_exporters::{
    Collective, CommunicatorId, MatchedMessage, MessageEnd, MessageEvent, MessageGaps, MessageKind, Messages, Size,
    TraceSet, Transfer,
};
use rtrace_model::{Call, FunctionEvent, LocationId, RegionId, Timestamp, Value};
use tempfile::TempDir;

use crate::common::skip::{Turn, installed, skip};
use crate::common::target::{mpi_fortran, mpi_messages, shmem_accesses, sources};
use crate::common::{python, rtrace};

const RANKS: u32 = 4;
/// The tags of messages that are probed for before they are received.
const PROBED: [i32; 2] = [60, 61];

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
    /// What was read and written: the bytes that were asked for, and those of the status; -1 without one.
    files: Vec<(FunctionEvent, [i64; 2])>,
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
            "F" => {
                let event = FunctionEvent::from_name(words[1]).unwrap();
                log.files.push((event, [2, 3].map(|word| words[word].parse().unwrap())));
            }
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

/// Runs a program as ranks of a job, each under rtrace: its last words are a folder for logs, and the scenarios.
///
/// The ranks call what they need again and again until rtrace has timed it; then they may `go`.
fn run(launcher: &str, program: &[&str], scenarios: &[&str]) -> Job {
    let folder = TempDir::new().unwrap();
    let [traces, logs] = ["traces", "logs"].map(|name| folder.path().join(name));
    std::fs::create_dir(&logs).unwrap();
    let mut mpirun = match launcher.ends_with("mpich") {
        // Its ranks never yield while they wait. With other programs' priority, each message would take as long as all of
        // these may run in turn: a run took a minute at a load of 40.
        true => {
            let mut nice = Command::new("nice");
            nice.args(["-n", "-10", launcher]);
            nice
        }
        false => {
            let mut mpirun = Command::new(launcher);
            mpirun.args(["--allow-run-as-root", "--oversubscribe"]);
            mpirun
        }
    };
    mpirun.args(["-n", &RANKS.to_string()]).arg(rtrace::command().get_program());
    mpirun.args(["run", "--no-tui", "--lib", "libmpi*", "--func", "MPI_*", "--func", "PMPI_*", "--args", "-o"]);
    mpirun.arg(&traces).arg("--").args(program).arg(&logs).args(scenarios);
    let talk = std::fs::File::create(folder.path().join("talk")).unwrap();
    mpirun.stdin(Stdio::null()).stdout(talk.try_clone().unwrap()).stderr(talk);
    let mut job = mpirun.spawn().unwrap();
    while job.try_wait().unwrap().is_none() && !is_warm(&traces) {
        std::thread::sleep(Duration::from_millis(200));
    }
    std::fs::write(logs.join("go"), "").unwrap();
    let talk = || std::fs::read_to_string(folder.path().join("talk")).unwrap();
    assert!(job.wait().unwrap().success(), "{}", talk());
    let logs = (0..RANKS).map(|rank| read_log(&logs.join(format!("log.{rank}")))).collect();
    Job { _folder: folder, traces, logs }
}

/// Whether rtrace has found where the calls return that all ranks make again and again: the last ones are timed.
fn is_warm(traces: &Path) -> bool {
    // No function is called more than five times a round.
    const ROUND: usize = 5;
    const ROUNDS: usize = 12;
    let Ok(set) = TraceSet::open(traces) else { return false };
    let mut ends: HashMap<(LocationId, RegionId), Vec<(Timestamp, bool)>> = HashMap::new();
    for place in 0..set.traces().len() {
        for batch in set.calls_of(place) {
            let Ok(batch) = batch else { return false };
            for call in batch.iter() {
                ends.entry((call.location, call.region)).or_default().push((call.start, call.end().is_some()));
            }
        }
    }
    let warm = ends.iter().filter(|(_, ends)| ends.len() >= ROUND * ROUNDS).map(|((location, _), _)| *location);
    let is_timed = |ends: &mut Vec<(Timestamp, bool)>| {
        ends.sort_unstable();
        ends.iter().rev().take(ROUND).all(|(_, is_timed)| *is_timed)
    };
    warm.collect::<HashSet<_>>().len() == RANKS as usize
        && ends.values_mut().filter(|ends| ends.len() >= ROUNDS).all(is_timed)
}

/// Runs scenarios until no return was missed of which messages depend: on a busy machine, a probe may come too late.
fn run_completely(launcher: &str, program: &[&str], scenarios: &[&str]) -> Job {
    let mut missed = Vec::new();
    for _ in 0..4 {
        let job = run(launcher, program, scenarios);
        let set = TraceSet::open(&job.traces).unwrap();
        let messages = set.messages().unwrap();
        missed = (0..RANKS as usize).map(|place| messages.events_of(place).unwrap().1).collect();
        let is_complete = missed.iter().enumerate().all(|(place, gaps)| {
            let untimed = set.traces().nth(place).unwrap().untimed().unwrap();
            assert!(gaps.is_empty() || !untimed.is_empty(), "rank {place}: {gaps:?}, and all returns were seen");
            gaps.is_empty()
        });
        if is_complete {
            return job;
        }
    }
    panic!("in each of four runs the return of a call was missed: {missed:?}");
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
            MessageKind::Collective(collective) | MessageKind::CollectiveComplete { collective, .. }
                if collective.window.is_none() =>
            {
                let Collective { event, communicator, root, sent, received, .. } = collective;
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
    check_files(job, &set);
    let (matched, gaps) = matched(&messages);
    assert!(gaps.is_empty(), "{gaps:?}");
    assert_eq!(matched.len(), job.logs.iter().map(|log| log.sent.len()).sum::<usize>());
    check_pairs(job, &messages, &matched);
    let (probed, others): (Vec<&MatchedMessage>, Vec<&MatchedMessage>) =
        matched.iter().partition(|message| message.received.probed.is_some());
    assert!(probed.iter().all(|message| PROBED.contains(&message.tag)), "{probed:?}");
    assert!(!others.iter().any(|message| PROBED.contains(&message.tag)), "{others:?}");
    matched.len()
}

/// What was read and written is what the log says.
fn check_files(job: &Job, set: &TraceSet) {
    let event_of = |call: &Call| set.region(call.region).and_then(|region| region.event);
    for (place, log) in job.logs.iter().enumerate() {
        let calls = set.calls_of(place).flat_map(|batch| batch.unwrap().iter().copied().collect::<Vec<_>>());
        let is_io = |call: &Call| matches!(event_of(call), Some(FunctionEvent::IoRead | FunctionEvent::IoWrite));
        let mut calls: Vec<Call> = calls.filter(is_io).collect();
        calls.sort_by_key(|call| call.start);
        // The library's functions call each other.
        let mut until = Timestamp(0);
        calls.retain(|call| {
            let is_outermost = call.start >= until;
            until = until.max(call.known_until());
            is_outermost
        });
        let values = set.value_reader().of(&calls).unwrap();
        let found = calls.iter().zip(&values).map(|(call, values)| {
            let of = |name: &str| match values.as_ref().unwrap().iter().find(|(column, _)| column.name == name) {
                Some((_, Some(Value::Integer(value)))) => *value,
                _ => -1,
            };
            (event_of(call).unwrap(), [of("count") * of("size"), of("done")])
        });
        assert_eq!(found.collect::<Vec<_>>(), log.files, "rank {place}");
    }
}

fn matched(messages: &Messages<'_>) -> (Vec<MatchedMessage>, MessageGaps) {
    let mut found = Vec::new();
    let gaps = messages.matched(|message| found.push(message)).unwrap();
    (found, gaps)
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
            assert!(message.received.end().unwrap() >= message.sent.start);
        }
    }
}

const SCENARIOS: [&str; 13] = [
    "blocking",
    "nonblocking",
    "wildcards",
    "derived",
    "communicators",
    "persistent",
    "probes",
    "collectives",
    "accesses",
    "intercommunicator",
    "files",
    "unusual",
    "further_operations",
];

/// Of a call that waits for all of up to 60 requests, 16 are on record: the others are those that are left. Of one that
/// waits for any of them, the one that has ended is.
fn check_many(launcher: &str, program: &[&str]) {
    let job = run_completely(launcher, program, &["many"]);
    let set = TraceSet::open(&job.traces).unwrap();
    let messages = set.messages().unwrap();
    let (matched, gaps) = matched(&messages);
    assert!(gaps.is_empty(), "{launcher}: {gaps:?}");
    assert!(matched.iter().all(|message| message.received.end().is_some() && message.sent.end().is_some()));
    check_pairs(&job, &messages, &matched);
    let logged: Vec<_> = job.logs.iter().flat_map(|log| log.sent.values()).collect();
    assert_eq!(matched.len(), logged.len(), "{launcher}");
    let bytes = logged.iter().map(|of| of.bytes.exact().unwrap()).sum::<u64>();
    assert_eq!(matched.iter().map(|of| of.bytes.unwrap()).sum::<u64>(), bytes, "{launcher}");
}

#[test]
fn messages_of_open_mpi_are_those_that_its_ranks_log() {
    let Some(_turn) = Turn::take() else { return };
    if !installed(&["mpicc.openmpi", "mpirun.openmpi"]) {
        return;
    }
    let program = mpi_messages("mpicc.openmpi");
    let job = run_completely("mpirun.openmpi", &[program.to_str().unwrap()], &SCENARIOS);
    let messages = compare(&job);
    assert!(messages > 2_000, "{messages}");
    check_archive(&job);
    check_many("mpirun.openmpi", &[program.to_str().unwrap()]);
}

/// MPICH does not say how large a derived type is: such a message has its size from its receiver.
#[test]
fn messages_of_mpich_are_those_that_its_ranks_log() {
    let Some(_turn) = Turn::take() else { return };
    if !installed(&["mpicc.mpich", "mpiexec.mpich"]) {
        return;
    }
    let program = mpi_messages("mpicc.mpich");
    let scenarios = SCENARIOS.into_iter().filter(|scenario| *scenario != "derived").chain(["large"]);
    let scenarios: Vec<&str> = scenarios.collect();
    let job = run_completely("mpiexec.mpich", &[program.to_str().unwrap()], &scenarios);
    let messages = compare(&job);
    assert!(messages > 2_000, "{messages}");
    check_archive(&job);
    check_many("mpiexec.mpich", &[program.to_str().unwrap()]);
    let job = run_completely("mpiexec.mpich", &[program.to_str().unwrap()], &["derived"]);
    let set = TraceSet::open(&job.traces).unwrap();
    let messages = set.messages().unwrap();
    for (place, log) in job.logs.iter().enumerate() {
        let (events, _) = messages.events_of(place).unwrap();
        let sizes: Vec<Size> = ends(&events, true).iter().map(|sent| sent.size).collect();
        assert_eq!(sizes, vec![Size::Unknown; log.sent.len()], "rank {place}");
    }
    let (matched, gaps) = matched(&messages);
    assert!(gaps.is_empty(), "{gaps:?}");
    check_pairs(&job, &messages, &matched);
    let mut told: Vec<_> = matched.iter().map(|of| (of.source, of.target, of.tag, of.bytes)).collect();
    let logged = job.logs.iter().zip(0..).flat_map(|(log, source)| log.sent.values().map(move |of| (of, source)));
    let mut logged: Vec<_> = logged.map(|(of, source)| (source, of.peer, of.tag, of.bytes.exact())).collect();
    told.sort_unstable();
    logged.sort_unstable();
    assert_eq!(told, logged);
}

/// The header, the module and that of Fortran 2008. MPICH does not say how large a derived type is.
#[test]
fn messages_of_fortran_are_those_that_its_ranks_log() {
    let Some(_turn) = Turn::take() else { return };
    let open_mpi = ("mpifort.openmpi", "mpirun.openmpi", &["derived"][..]);
    for (compiler, launcher, scenarios) in [open_mpi, ("mpifort.mpich", "mpiexec.mpich", &[])] {
        if !installed(&[compiler, launcher]) {
            continue;
        }
        for way in ["MPIF", "MODULE", "F08"] {
            let program = mpi_fortran(compiler, way);
            let job = run_completely(launcher, &[program.to_str().unwrap()], scenarios);
            let messages = compare(&job);
            assert!(messages > 300, "{compiler} {way}: {messages}");
            check_archive(&job);
        }
    }
}

#[test]
fn messages_of_python_are_those_that_its_ranks_log() {
    let Some(_turn) = Turn::take() else { return };
    let script = sources().join("mpi_python.py");
    let check = |launcher: &str, python: &Path, environment: &[&str]| {
        let mpi4py = Command::new(python).args(["-c", "import mpi4py"]).output();
        if !mpi4py.is_ok_and(|output| output.status.success()) {
            return skip("mpi4py is not installed; `cargo xtask test` installs it");
        }
        if !installed(&[launcher]) {
            return;
        }
        let program = [python, &script].map(|path| path.to_str().unwrap());
        let job = run_completely(launcher, &[&["env"], environment, &program].concat(), &[]);
        let messages = compare(&job);
        assert!(messages > 300, "{launcher}: {messages}");
        check_archive(&job);
    };
    check("mpirun.openmpi", Path::new("/usr/bin/python3"), &[]);
    // The package of the index takes any MPI with the interface of MPICH, by the name that MPICH itself gives to its library.
    let Some(python) = python::interpreter() else { return };
    let folder = TempDir::new().unwrap();
    let library = Command::new("gcc").arg("-print-file-name=libmpich.so.12").output().unwrap();
    let library = String::from_utf8(library.stdout).unwrap();
    std::os::unix::fs::symlink(library.trim(), folder.path().join("libmpi.so.12")).unwrap();
    let path = format!("LD_LIBRARY_PATH={}", folder.path().display());
    check("mpiexec.mpich", &python, &["MPI4PY_MPIABI=mpich", &path]);
}

/// Of messages that threads send at the same time, with one tag, only those are matched whose order is known.
#[test]
fn messages_of_threads_are_those_that_their_ranks_log() {
    let Some(_turn) = Turn::take() else { return };
    for (compiler, launcher) in [("mpicc.openmpi", "mpirun.openmpi"), ("mpicc.mpich", "mpiexec.mpich")] {
        if !installed(&[compiler, launcher]) {
            continue;
        }
        let program = mpi_messages(compiler);
        let job = run_completely(launcher, &[program.to_str().unwrap()], &["threads"]);
        let set = TraceSet::open(&job.traces).unwrap();
        let messages = set.messages().unwrap();
        let mut sizes: HashMap<(LocationId, u64, bool), Size> = HashMap::new();
        for (place, log) in job.logs.iter().enumerate() {
            let (events, gaps) = messages.events_of(place).unwrap();
            assert!(gaps.is_empty(), "rank {place}: {gaps:?}");
            for (logged, is_sent) in [(&log.sent, true), (&log.received, false)] {
                let told = ends(&events, is_sent);
                let mut told: Vec<_> = told.iter().map(|of| (of.peer, of.tag, of.size.exact())).collect();
                let mut logged: Vec<_> = logged.values().map(|of| (of.peer, of.tag, of.bytes.exact())).collect();
                told.sort_unstable();
                logged.sort_unstable();
                assert_eq!(told, logged, "rank {place}, sent: {is_sent}");
            }
            for event in &events {
                let (key, transfer) = match event.kind {
                    MessageKind::Send(transfer) | MessageKind::Isend { transfer, .. } => ((event.at, true), transfer),
                    MessageKind::Recv(transfer) => ((event.at, false), transfer),
                    MessageKind::Irecv { transfer, posted, .. } => ((posted, false), transfer),
                    _ => continue,
                };
                sizes.insert((key.0.location, key.0.call, key.1), transfer.size);
            }
        }
        let (matched, gaps) = matched(&messages);
        let sent: usize = job.logs.iter().map(|log| log.sent.len()).sum();
        assert_eq!((matched.len() as u64 + gaps.unordered, gaps.total()), (sent as u64, gaps.unordered), "{launcher}");
        let (shared, own): (Vec<&MatchedMessage>, Vec<&MatchedMessage>) =
            matched.iter().partition(|message| message.tag == 3000);
        assert_eq!(own.len(), 2 * 4 * 40 * RANKS as usize, "{launcher}");
        assert!(gaps.unordered > 0, "{launcher}: no two threads met in {} messages", shared.len());
        for MatchedMessage { sent, received, .. } in &matched {
            let of = |end: &MessageEnd, is_sent| sizes[&(end.location, end.call, is_sent)];
            assert_eq!(of(sent, true), of(received, false), "{launcher}: {sent:?} {received:?}");
        }
        check_archive(&job);
    }
}

/// 100,000 puts and gets have the size, the source and the target that the program logs, and the names that it calls.
#[test]
fn accesses_of_openshmem_are_those_that_its_processing_elements_log() {
    let Some(_turn) = Turn::take() else { return };
    if !installed(&["oshcc", "oshrun"]) {
        return;
    }
    const ELEMENTS: usize = 2;
    let folder = TempDir::new().unwrap();
    let traces = folder.path().join("traces");
    let mut oshrun = Command::new("oshrun");
    oshrun.args(["--allow-run-as-root", "--oversubscribe", "-n", "2"]).arg(rtrace::command().get_program());
    oshrun.args(["run", "--no-tui", "--lib", "liboshmem*", "--func", "shmem_*", "--args", "-o"]);
    oshrun.arg(&traces).arg("--").arg(shmem_accesses()).arg(folder.path()).arg("50000");
    // `shmem_finalize` crashes in some surroundings, traced or not: what the program logs is complete before.
    let output = oshrun.output().unwrap();
    println!("{}", String::from_utf8_lossy(&output.stderr));
    let set = TraceSet::open(&traces).unwrap();
    let messages = set.messages().unwrap();
    let logs: Vec<_> =
        (0..ELEMENTS).map(|element| read_log(&folder.path().join(format!("log.{element}"))).accesses).collect();
    for (element, log) in logs.iter().enumerate() {
        assert_eq!(log.len(), 50_000);
        let (events, gaps) = messages.events_of(element).unwrap();
        assert!(gaps.is_empty(), "{gaps:?}");
        let told = events.iter().filter_map(|event| match event.kind {
            MessageKind::Access { event: kind, target, size, .. } => {
                assert_eq!(messages.rank_of(event.at.location), Some(element as u32));
                Some([kind.name().to_owned(), target.to_string(), bytes(size)])
            }
            _ => None,
        });
        // Before, each function is called eight times.
        assert!(told.skip(80).eq(log.iter().cloned()), "accesses of {element}");
    }
    // The matrix goes from where the bytes were to where they went.
    let mut expected: BTreeMap<[u64; 2], [u64; 2]> = BTreeMap::new();
    for element in 0..ELEMENTS {
        for event in messages.events_of(element).unwrap().0 {
            let MessageKind::Access { event: kind, target, size, .. } = event.kind else { continue };
            let own = element as u64;
            let pair = if kind.name().ends_with("get") { [target.into(), own] } else { [own, target.into()] };
            let sum = expected.entry(pair).or_default();
            *sum = [sum[0] + 1, sum[1] + size.exact().unwrap()];
        }
    }
    let report = rtrace::command().args(["report", "--by", "peer", "--format", "json"]).arg(&traces).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    let number = |row: &serde_json::Value, key: &str| row[key].as_u64().unwrap();
    let rows = report["rows"].as_array().unwrap().iter().map(|row| {
        (["source", "target"].map(|key| number(row, key)), ["messages", "bytes"].map(|key| number(row, key)))
    });
    assert_eq!(rows.collect::<BTreeMap<_, _>>(), expected);
    assert_eq!(expected.values().map(|sum| sum[0]).sum::<u64>(), 2 * 50_080);
    let names: Vec<_> = set.regions().iter().map(|region| region.symbol().into_owned()).collect();
    assert!(names.iter().all(|name| !name.starts_with("pshmem_")), "{names:?}");
    let Some(found) = archived(&traces) else { return };
    for (element, log) in logs.iter().enumerate() {
        // In eight rounds before, each of ten functions is called.
        let count = |kinds: &[&str], before: u64| {
            log.iter().filter(|[kind, ..]| kinds.contains(&kind.as_str())).count() as u64 + 8 * before
        };
        for (kind, expected) in [
            ("RmaPut", count(&["rma_put", "rma_iput"], 5)),
            ("RmaGet", count(&["rma_get", "rma_iget"], 4)),
            ("RmaAtomic", count(&["rma_atomic"], 1)),
            ("RmaOpCompleteBlocking", count(&["rma_put", "rma_get", "rma_atomic"], 8)),
        ] {
            assert_eq!(found.get(&format!("other {element} {kind}")), Some(&expected), "{kind} of {element}");
        }
        // Accesses that end together have one record of that.
        let ended = found[&format!("other {element} RmaOpCompleteRemote")];
        assert!(ended < count(&["rma_put", "rma_iput", "rma_iget"], 6), "{ended}");
    }
}

/// What OTF2's own reader finds in an archive: the messages and bytes from each rank to each other, as sent and as
/// received, and the accesses and collective operations.
const MATRIX: &str = r#"
import sys, collections, otf2
sent, received, others, made, read_written = (collections.Counter() for _ in range(5))
open_requests, open_accesses, accesses, open_operations = set(), set(), set(), set()
with otf2.reader.open(sys.argv[1]) as trace:
    ranks = {}
    for group in trace.definitions.groups:
        if group.group_type == otf2.GroupType.COMM_LOCATIONS:
            ranks = {location: rank for rank, location in enumerate(group.members)}
    groups = {location.group: rank for location, rank in ranks.items()}
    for location, event in trace.events:
        if location.group not in groups:
            continue
        own, kind = groups[location.group], type(event).__name__
        if kind in ("MpiSend", "MpiIsend"):
            sent[own, ranks[event.communicator.location(event.receiver)], event.msg_tag, event.msg_length] += 1
        elif kind in ("MpiRecv", "MpiIrecv"):
            received[ranks[event.communicator.location(event.sender)], own, event.msg_tag, event.msg_length] += 1
        elif kind == "MpiCollectiveEnd" and event.collective_op.value in (17, 18):
            made[own, "made" if event.collective_op.value == 17 else "freed"] += 1
        elif kind == "IoOperationBegin":
            open_operations.add((own, event.matching_id))
            is_write = event.mode == otf2.IoOperationMode.WRITE
            read_written[own, "io_write" if is_write else "io_read", event.bytes_request] += 1
        elif kind == "IoOperationComplete":
            open_operations.remove((own, event.matching_id))
        elif kind == "IoCreateHandle":
            assert event.handle.file.name.endswith("data") and event.handle.io_paradigm.name == "MPI I/O"
            open_operations.add((own, event.handle))
        elif kind == "IoDestroyHandle":
            open_operations.remove((own, event.handle))
        elif kind.startswith("Rma") or kind in ("MpiCollectiveEnd", "NonBlockingCollectiveComplete"):
            others[own, kind.replace("NonBlockingCollectiveComplete", "MpiCollectiveEnd")] += 1
        if kind in ("MpiIsend", "MpiIrecvRequest", "NonBlockingCollectiveRequest"):
            open_requests.add((own, event.request_id))
        elif kind in ("MpiIsendComplete", "MpiIrecv", "MpiRequestCancelled", "NonBlockingCollectiveComplete"):
            open_requests.remove((own, event.request_id))
        if kind in ("RmaPut", "RmaGet", "RmaAtomic"):
            open_accesses.add((own, event.matching_id))
            accesses.add((own, event.matching_id))
        elif kind == "RmaOpCompleteRemote":
            accesses.remove((own, event.matching_id))
        elif kind in ("RmaOpCompleteBlocking", "RmaOpCompleteNonBlocking"):
            open_accesses.remove((own, event.matching_id))
assert not open_requests and not open_accesses and not open_operations, (open_requests, open_accesses, open_operations)
for name, counter in (("sent", sent), ("received", received), ("other", others), ("handles", made), ("file", read_written)):
    for key, count in sorted(counter.items()):
        print(name, *key, count)
"#;

/// What OTF2's reader finds in the archive of a job, with how often. OTF2's tools have nothing to complain about.
fn archived(traces: &Path) -> Option<BTreeMap<String, u64>> {
    let python = Command::new("/usr/bin/python3").args(["-c", "import otf2"]).output();
    if !installed(&["otf2-print"]) || !python.is_ok_and(|output| output.status.success()) {
        return None;
    }
    let archive = traces.with_file_name("archive");
    let export = rtrace::command().arg("export").arg(traces).args(["--format", "otf2", "-o"]).arg(&archive).output();
    assert!(export.as_ref().unwrap().status.success(), "{export:?}");
    let anchor = archive.join("traces.otf2");
    let print = Command::new("otf2-print").arg(&anchor).output().unwrap();
    assert!(print.status.success() && print.stderr.is_empty(), "{}", String::from_utf8_lossy(&print.stderr));
    let matrix = Command::new("/usr/bin/python3").args(["-c", MATRIX]).arg(&anchor).output().unwrap();
    assert!(matrix.status.success(), "{}", String::from_utf8_lossy(&matrix.stderr));
    let text = String::from_utf8(matrix.stdout).unwrap();
    let found = text.lines().map(|line| {
        let (key, count) = line.rsplit_once(' ').unwrap();
        (key.to_owned(), count.parse().unwrap())
    });
    Some(found.collect())
}

/// The archive has the same messages as the log.
fn check_archive(job: &Job) {
    let Some(mut found) = archived(&job.traces) else { return };
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for (own, log) in job.logs.iter().enumerate() {
        // What a receiver does not say, its sender does.
        let size = |of: &Logged| match (of.bytes, of.id) {
            (Size::Posted(_), Some((source, number @ 0..))) => job.logs[source as usize].sent[&(number as u64)].bytes,
            (bytes, _) => bytes,
        };
        let size = |of: &Logged| match size(of) {
            Size::Exact(bytes) | Size::Posted(bytes) => bytes,
            Size::Unknown => panic!("the log knows all sizes"),
        };
        // All that the log has, and what makes no communicator of this rank; that of all ranks is made and freed, too.
        let made = found.remove(&format!("handles {own} made")).unwrap_or(0);
        assert!(made >= log.communicators.len() as u64, "{made} of {:?}", log.communicators);
        assert!(found.remove(&format!("handles {own} freed")).is_some());
        for (event, [asked, _]) in &log.files {
            *expected.entry(format!("file {own} {} {asked}", event.name())).or_default() += 1;
        }
        for message @ Logged { peer, tag, .. } in log.sent.values() {
            *expected.entry(format!("sent {own} {peer} {tag} {}", size(message))).or_default() += 1;
        }
        for message @ Logged { peer, tag, .. } in log.received.values() {
            *expected.entry(format!("received {peer} {own} {tag} {}", size(message))).or_default() += 1;
        }
        // OTF2 has no number for those between neighbours.
        for _ in log.collectives.iter().filter(|[event, ..]| event != "collective") {
            *expected.entry(format!("other {own} MpiCollectiveEnd")).or_default() += 1;
        }
        for [event, ..] in &log.accesses {
            let kind = match event.as_str() {
                "rma_iput" => "RmaPut",
                "rma_iget" => "RmaGet",
                _ => "RmaAtomic",
            };
            *expected.entry(format!("other {own} {kind}")).or_default() += 1;
        }
        let mut of = |kind: &str| found.remove(&format!("other {own} {kind}"));
        assert_eq!(of("RmaRequestLock"), of("RmaReleaseLock"));
        assert_eq!(of("RmaWinCreate"), of("RmaWinDestroy"));
        // The reader looks itself that each access has ended.
        assert_eq!(of("RmaOpCompleteNonBlocking").is_some(), !log.accesses.is_empty());
        assert_eq!(of("RmaOpCompleteRemote").is_some(), !log.accesses.is_empty());
        assert_eq!(of("RmaCollectiveBegin"), of("RmaCollectiveEnd"));
    }
    assert_eq!(found, expected);
}

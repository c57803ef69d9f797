#![allow(clippy::unwrap_used, reason = "tests")]

use rtrace_exporters::{Trace, TraceSet};
use rtrace_model::{
    ClockAnchor, Ending, Event, EventKind, Item, Library, LibraryId, Location, Loss, LossReason, Region, RegionId,
};
use tempfile::TempDir;

use super::*;

const MS: u64 = 1_000_000;
/// When the recording begins.
const BEGIN: u64 = 1_000 * MS;

fn region(id: u32, name: &str) -> Definition {
    Definition::Region(Region { id: RegionId(id), name: name.to_owned(), ..Region::default() })
}

fn location(id: u32, end: Option<u64>) -> Definition {
    let (pid, tid, start, name) = (7, id, Timestamp(0), format!("t{id}"));
    let end = end.map(|ms| Timestamp(BEGIN + ms * MS));
    Definition::Location(Location { id: LocationId(id), pid, tid, start, end, name, calls_entered: end.map(|_| 99) })
}

/// A call of region 0 on location 1, from and to these milliseconds of the recording.
fn call(id: u64, from: u64, to: u64) -> Call {
    let start = Timestamp(BEGIN + from * MS);
    Call { location: LocationId(1), id, start, duration: Some((to - from) * MS), ..Call::default() }
}

fn running(id: u64, from: u64, now: u64) -> Call {
    Call { ending: Ending::Open, ..call(id, from, now) }
}

/// The ids of calls, and how they ended.
type Endings = Vec<(u64, Ending)>;

struct Recorder {
    flight: Flight,
    folder: TempDir,
}

impl Recorder {
    /// Keeps 100 ms before and 20 ms after calls of region 0, `work`, that meet the trigger.
    fn start(triggers: &[&str], change: impl FnOnce(&mut Settings)) -> Recorder {
        let folder = TempDir::new().unwrap();
        let time = |text: &str| text.strip_suffix("ms").ok_or("ms").map(|ms| ms.parse::<u64>().unwrap() * MS);
        let time = |text: &str| time(text).map_err(str::to_owned);
        let mut settings = Settings {
            directory: folder.path().join("out"),
            prefix: String::new(),
            owner: None,
            before: Duration::from_millis(100),
            after: Duration::from_millis(20),
            most_bytes: 1 << 20,
            most_windows: 10,
            triggers: triggers.iter().map(|text| Trigger::parse(text, time).unwrap()).collect(),
            asked: Arc::default(),
            stop: Arc::default(),
        };
        change(&mut settings);
        let mut recorder = Recorder { flight: Flight::new(settings).unwrap(), folder };
        let begin = ClockAnchor { monotonic: Timestamp(BEGIN), realtime_ns: 5_000 * MS };
        recorder.tell(Item::Begin(Header { begin, ..Header::default() }));
        let path = "/usr/lib/libone.so".to_owned();
        let library = Library { id: LibraryId(0), path, apart: None, build_id: None, device: 0, inode: 0 };
        let definitions = vec![Definition::Library(library), region(0, "work"), region(1, "rest"), location(1, None)];
        recorder.tell(Item::Define(definitions));
        recorder
    }

    fn tell(&mut self, item: Item) {
        self.flight.take(&item).unwrap();
    }

    fn calls(&mut self, calls: &[Call]) {
        self.tell(Item::Calls(calls.to_vec().into()));
    }

    fn running(&mut self, ms: u64, calls: &[Call]) {
        self.tell(Item::Running(Timestamp(BEGIN + ms * MS), calls.to_vec()));
        while !self.flight.can_write() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn loss(&mut self, ms: u64, count: u64) {
        let kind = EventKind::Loss(Loss { reason: LossReason::RingFull, region: None, count });
        self.tell(Item::Event(Event { time: Timestamp(BEGIN + ms * MS), pid: None, tid: None, kind }));
    }

    /// The ids of the calls of each window with their endings, and the windows.
    fn finish(mut self, ms: u64) -> (Vec<Endings>, Vec<Trace>, TempDir) {
        let end = ClockAnchor { monotonic: Timestamp(BEGIN + ms * MS), realtime_ns: 0 };
        self.tell(Item::Finish(Summary { end, ..Summary::default() }));
        let traces: Vec<Trace> = self.flight.log().windows().iter().map(|path| Trace::open(path).unwrap()).collect();
        (traces.iter().map(calls_of).collect(), traces, self.folder)
    }
}

fn calls_of(trace: &Trace) -> Endings {
    let calls = trace.calls().flat_map(|batch| batch.unwrap().iter().copied().collect::<Vec<_>>());
    let mut calls: Endings = calls.map(|call| (call.id, call.ending)).collect();
    calls.sort_unstable_by_key(|&(id, _)| id);
    calls
}

fn times(trace: &Trace) -> (u64, u64) {
    let ms = |time: Timestamp| time.0.saturating_sub(BEGIN) / MS;
    (ms(trace.header().begin.monotonic), ms(trace.summary().unwrap().end.monotonic))
}

const RETURNED: Ending = Ending::Returned;

#[test]
fn a_window_has_what_was_before_and_after_its_trigger_and_what_ran() {
    let mut recorder = Recorder::start(&["work > 5ms"], |_| {});
    recorder.loss(20, 1_000);
    recorder.calls(&[call(2, 40, 41), call(3, 99, 101)]);
    recorder.loss(150, 2);
    recorder.calls(&[call(4, 190, 200)]);
    recorder.running(210, &[running(1, 0, 210)]);
    recorder.calls(&[call(5, 214, 215)]);
    // What runs is known here, and the window ends. A call that has ended in it may come later.
    recorder.running(230, &[running(1, 0, 230), running(7, 225, 230)]);
    recorder.calls(&[call(6, 228, 229), call(7, 225, 233), call(8, 231, 232)]);
    recorder.running(480, &[running(1, 0, 480)]);
    let (calls, traces, folder) = recorder.finish(900);
    let open = Ending::Open;
    assert_eq!(calls, [[(1, open), (3, RETURNED), (4, RETURNED), (5, RETURNED), (6, RETURNED), (7, open)]]);
    assert_eq!(times(&traces[0]), (100, 230));
    let summary = traces[0].summary().unwrap();
    assert_eq!((summary.calls, summary.open, summary.lost(), summary.regions, summary.locations), (6, 2, 2, 2, 1));
    assert_eq!(traces[0].header().begin.realtime_ns, 5_100 * MS);
    let window = traces[0].header().window.as_ref().unwrap();
    assert_eq!((window.number, window.trigger.as_str(), window.is_cut), (1, "work > 5ms", false));
    assert_eq!(
        (window.time, window.location, window.call),
        (Timestamp(BEGIN + 200 * MS), Some(LocationId(1)), Some(4))
    );
    assert_eq!(traces[0].locations()[0].calls_entered, None, "ids that were not kept are not lost");
    assert!(traces[0].warnings().is_empty());
    // The next window was made ready, and is gone.
    assert_eq!(std::fs::read_dir(folder.path().join("out")).unwrap().count(), 1);
}

#[test]
fn no_call_is_in_two_windows() {
    let mut recorder = Recorder::start(&["work > 5ms"], |_| {});
    for step in 0..40 {
        let now = 10 * step + 10;
        recorder.calls(&[call(step + 1, now - 9, if step % 5 == 0 { now } else { now - 8 })]);
        recorder.running(now, &[]);
    }
    let log = recorder.flight.log();
    let (calls, traces, folder) = recorder.finish(410);
    assert_eq!(traces.len(), 8, "{calls:?}");
    let mut all: Vec<u64> = calls.iter().flatten().map(|&(id, _)| id).collect();
    let count = all.len();
    all.dedup();
    assert_eq!(all.len(), count, "{calls:?}");
    assert!(traces.windows(2).all(|pair| times(&pair[0]).1 <= times(&pair[1]).0));
    assert_eq!(log.met(), 8);
    let set = TraceSet::open(&folder.path().join("out")).unwrap();
    assert_eq!(set.summary().unwrap().calls, count as u64);
}

#[test]
fn triggers_while_a_window_is_open_are_in_it() {
    let mut recorder = Recorder::start(&["work"], |_| {});
    recorder.calls(&(1..=9).map(|id| call(id, 50 + id, 50 + id)).collect::<Vec<_>>());
    let log = recorder.flight.log();
    let (calls, _, _folder) = recorder.finish(60);
    assert_eq!((calls.len(), calls[0].len(), log.met()), (1, 9, 9));
}

#[test]
fn a_call_that_hangs_is_met_once_and_before_it_ends() {
    let mut recorder = Recorder::start(&["work > 200ms"], |_| {});
    for now in [100, 200, 300, 330, 360] {
        recorder.running(now, &[running(1, 50, now)]);
    }
    assert_eq!(recorder.flight.number, 2, "it is written while the call runs");
    recorder.calls(&[call(1, 50, 400)]);
    let log = recorder.flight.log();
    let (calls, _, _folder) = recorder.finish(500);
    assert_eq!((calls, log.met()), (vec![vec![(1, Ending::Open)]], 1));
}

#[test]
fn what_does_not_fit_is_dropped_and_said() {
    let mut recorder = Recorder::start(&[], |settings| settings.most_bytes = 100_000);
    let asked = Arc::clone(&recorder.flight.settings.asked);
    for id in 1..=5_000 {
        recorder.calls(&[Call { region: RegionId(1), ..call(id, id, id) }]);
    }
    asked.store(true, Ordering::Relaxed);
    recorder.flight.settings.before = Duration::from_secs(60);
    recorder.running(5_000, &[]);
    let (calls, traces, _folder) = recorder.finish(5_001);
    let window = traces[0].header().window.as_ref().unwrap();
    assert!(window.is_cut && window.trigger == "SIGUSR1" && window.call.is_none(), "{window:?}");
    let (first, count) = (calls[0][0].0, calls[0].len());
    let most = 100_000 / size_of::<Call>();
    assert!(count <= most && count + 200 > most, "{count}");
    assert!(times(&traces[0]).0 < first && first <= times(&traces[0]).0 + 2, "the trace begins where its calls do");
}

#[test]
fn threads_that_ended_before_are_forgotten() {
    let mut recorder = Recorder::start(&["work > 5ms"], |_| {});
    for id in 2..1_000 {
        recorder.tell(Item::Define(vec![location(id, Some(u64::from(id)))]));
        recorder.running(u64::from(id), &[]);
    }
    let definitions = recorder.flight.kept.definitions.0.values();
    assert!(definitions.filter(|of| matches!(of, Definition::Location(_))).count() < 110);
    recorder.calls(&[call(1, 1_100, 1_110)]);
    let (_, traces, _folder) = recorder.finish(1_200);
    assert_eq!(traces[0].locations().len(), 1);
}

#[test]
fn the_recording_ends_after_the_last_window() {
    let mut recorder = Recorder::start(&["work"], |settings| settings.most_windows = 1);
    let stop = Arc::clone(&recorder.flight.settings.stop);
    recorder.calls(&[call(1, 10, 11)]);
    recorder.running(40, &[]);
    assert!(!stop.load(Ordering::Relaxed));
    recorder.running(70, &[]);
    assert!(stop.load(Ordering::Relaxed));
    recorder.calls(&[call(2, 80, 81)]);
    let log = recorder.flight.log();
    let (calls, _, _folder) = recorder.finish(90);
    assert_eq!((calls, log.met()), (vec![vec![(1, RETURNED)]], 2));
}

#[test]
fn nothing_is_left_where_nothing_happened() {
    let recorder = Recorder::start(&["work > 5ms", "nowhere"], |_| {});
    let mut recorder = recorder;
    recorder.calls(&[call(1, 10, 11)]);
    recorder.tell(Item::Tick);
    let log = recorder.flight.log();
    assert_eq!(log.take_news(), ["no traced function matches the trigger `nowhere` so far"]);
    let directory = recorder.flight.settings.directory.clone();
    assert!(directory.exists(), "that it can be written is known from the begin");
    let (calls, _, folder) = recorder.finish(20);
    assert!(calls.is_empty() && !directory.exists() && folder.path().exists());
}

#[test]
fn calls_with_counters_are_whole_or_left_out() {
    use rtrace_model::{Base, Metric, MetricId, Reading, Scope, Span};
    let mut recorder = Recorder::start(&["work > 5ms"], |_| {});
    let (id, name, unit) = (MetricId(0), "page-faults".to_owned(), "#".to_owned());
    let metric =
        Metric { id, name, unit, base: Base::Decimal, exponent: 0, scope: Scope::Call, span: Span::SinceStart };
    recorder.tell(Item::Define(vec![Definition::Metric(metric)]));
    let measured = |calls: &[Call]| {
        let readings = calls.iter().map(|call| Reading { inclusive: 10 * call.id, child: 0 }).collect();
        Item::Calls(Batch::measured(calls.to_vec(), 1, readings))
    };
    recorder.tell(measured(&[call(2, 10, 20)]));
    recorder.running(50, &[running(1, 0, 50), running(3, 45, 50)]);
    recorder.tell(measured(&[call(3, 45, 55)]));
    recorder.running(300, &[running(1, 0, 300)]);
    let (calls, traces, _folder) = recorder.finish(310);
    assert_eq!(calls, [[(2, RETURNED)]]);
    let readings: Vec<u64> = traces[0].calls().map(|batch| batch.unwrap().readings(0)[0].inclusive).collect();
    assert_eq!(readings, [20]);
}

#[test]
fn call_sites_get_their_names_at_the_end() {
    use rtrace_model::CallSiteId;
    let mut recorder = Recorder::start(&["work > 5ms"], |_| {});
    let site = |id, function: Option<&str>| CallSite {
        id: CallSiteId(id),
        function: function.map(str::to_owned),
        ..CallSite::default()
    };
    recorder.tell(Item::Define(vec![Definition::CallSite(site(0, None)), Definition::CallSite(site(1, None))]));
    recorder.calls(&[Call { call_site: Some(CallSiteId(1)), ..call(1, 0, 10) }]);
    recorder.running(50, &[]);
    recorder.running(80, &[]);
    let named = [site(0, Some("other")), site(1, Some("main"))].map(Definition::CallSite);
    recorder.tell(Item::Define(named.into()));
    let (_, traces, _folder) = recorder.finish(100);
    let names: Vec<_> = traces[0].call_sites().iter().map(|site| site.function.as_deref()).collect();
    assert_eq!(names, [Some("main")]);
    assert!(traces[0].folded().is_some_and(|paths| paths.len() == 1), "naming changes nothing else");
}

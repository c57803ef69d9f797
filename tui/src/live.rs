//! The sink that adds up calls as they come, and the handle that looks at the sums.
//!
//! Both share one lock. The sink takes it once per batch and adds a few numbers per call; the view
//! holds it for one copy of the sums ten times a second. Names are shared, not copied.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rtrace_model::{
    Batch, Call, Definition, Event, EventKind, Library, LibraryId, LocationId, LossReason, Region, RegionId, Sink,
    SinkError, Summary,
};

use crate::snapshot::{Function, Snapshot, Totals};

/// Makes the two ends of a live view of `target`, which is a description for people.
pub fn live(target: impl Into<String>) -> (LiveSink, Handle) {
    let shared = Arc::new(Mutex::new(Sums::default()));
    let handle = Handle { target: target.into(), started: Instant::now(), shared: Arc::clone(&shared) };
    (LiveSink { shared }, handle)
}

/// The end that the recording feeds.
#[derive(Debug)]
pub struct LiveSink {
    shared: Arc<Mutex<Sums>>,
}

/// The end that the view looks through.
#[derive(Debug)]
pub struct Handle {
    target: String,
    started: Instant,
    shared: Arc<Mutex<Sums>>,
}

impl Handle {
    /// What is traced, for people; not escaped.
    pub(crate) fn target(&self) -> &str {
        &self.target
    }

    /// Time since the view was made.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// A copy of the sums as they are now.
    pub(crate) fn snapshot(&self) -> Snapshot {
        lock(&self.shared).snapshot()
    }
}

#[derive(Debug, Default)]
struct Sums {
    calls: u64,
    /// Indexed by region.
    totals: Vec<Totals>,
    /// Indexed by region.
    names: Vec<Name>,
    libraries: BTreeMap<LibraryId, Arc<str>>,
    threads: HashSet<LocationId>,
    losses: BTreeMap<LossReason, u64>,
}

#[derive(Clone, Debug)]
struct Name {
    name: Arc<str>,
    library: LibraryId,
}

impl Sums {
    fn define_region(&mut self, region: &Region) {
        let index = region.id.index();
        if self.totals.len() <= index {
            self.totals.resize(index + 1, Totals::default());
            self.names.resize(index + 1, Name { name: Arc::from(""), library: LibraryId::default() });
        }
        self.names[index] = Name { name: Arc::from(region.name.as_str()), library: region.library };
    }

    fn define_library(&mut self, library: &Library) {
        self.libraries.insert(library.id, Arc::from(library.name()));
    }

    fn add(&mut self, batch: &[Call]) {
        self.calls += batch.len() as u64;
        for call in batch {
            if let Some(totals) = self.totals.get_mut(call.region.index()) {
                totals.add(call);
            }
        }
    }

    fn snapshot(&self) -> Snapshot {
        let nameless: Arc<str> = Arc::from("");
        let functions = std::iter::zip(&self.totals, &self.names)
            .zip(0..)
            .filter(|((totals, _), _)| totals.calls > 0)
            .map(|((totals, name), id)| Function {
                region: RegionId(id),
                name: Arc::clone(&name.name),
                library: Arc::clone(self.libraries.get(&name.library).unwrap_or(&nameless)),
                totals: *totals,
            })
            .collect();
        Snapshot {
            calls: self.calls,
            threads: self.threads.len(),
            losses: self.losses.iter().map(|(&reason, &count)| (reason, count)).collect(),
            functions,
        }
    }
}

/// The sums are whole after every step, so a panic elsewhere does not spoil them.
fn lock(shared: &Mutex<Sums>) -> MutexGuard<'_, Sums> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sink for LiveSink {
    fn define(&mut self, definition: &Definition) -> Result<(), SinkError> {
        let mut sums = lock(&self.shared);
        match definition {
            Definition::Region(region) => sums.define_region(region),
            Definition::Library(library) => sums.define_library(library),
            Definition::Location(location) => {
                sums.threads.insert(location.id);
            }
            Definition::Process(_) | Definition::Metric(_) => {}
        }
        Ok(())
    }

    fn calls(&mut self, batch: &Batch) -> Result<(), SinkError> {
        lock(&self.shared).add(batch);
        Ok(())
    }

    fn event(&mut self, event: &Event) -> Result<(), SinkError> {
        if let EventKind::Loss(loss) = &event.kind {
            *lock(&self.shared).losses.entry(loss.reason).or_default() += loss.count;
        }
        Ok(())
    }

    /// The summary knows all losses, also those that came too late for an event.
    fn finish(&mut self, summary: &Summary) -> Result<(), SinkError> {
        lock(&self.shared).losses = summary.lost_by_reason().into_iter().collect();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use rtrace_model::{Ending, ExitPolicy, Location, Loss, Timestamp};

    use super::*;

    fn region(id: u32, name: &str) -> Definition {
        Definition::Region(Region {
            id: RegionId(id),
            library: LibraryId(0),
            name: name.to_owned(),
            symbols: Vec::new(),
            file_offset: 0,
            size: 0,
            exit: ExitPolicy::Uretprobe,
            single_stepped: false,
        })
    }

    fn library(path: &str) -> Definition {
        Definition::Library(Library { id: LibraryId(0), path: path.to_owned(), build_id: None, device: 0, inode: 0 })
    }

    fn location(id: u32) -> Definition {
        Definition::Location(Location {
            id: LocationId(id),
            pid: 1,
            tid: id,
            start: Timestamp(0),
            end: None,
            name: String::new(),
            calls_entered: None,
        })
    }

    fn call(region: u32, duration: u64, child: u64, ending: Ending) -> Call {
        Call {
            location: LocationId(1),
            region: RegionId(region),
            id: 1,
            parent: 0,
            depth: 0,
            start: Timestamp(0),
            duration,
            child,
            ending,
        }
    }

    fn loss(count: u64) -> Event {
        let kind = EventKind::Loss(Loss { reason: LossReason::RingFull, region: None, count });
        Event { time: Timestamp(0), pid: None, tid: None, kind }
    }

    #[test]
    fn calls_add_up_per_region() {
        let (mut sink, handle) = live("t");
        sink.define(&library("/usr/lib/libz.so.1")).unwrap();
        sink.define(&region(0, "idle")).unwrap();
        sink.define(&region(1, "deflate")).unwrap();
        sink.calls(&vec![call(1, 100, 30, Ending::Returned), call(1, 50, 0, Ending::Unwound)].into()).unwrap();
        sink.calls(&vec![call(1, 0, 0, Ending::Unseen)].into()).unwrap();

        let snapshot = handle.snapshot();
        assert_eq!(snapshot.calls, 3);
        let [deflate] = &snapshot.functions[..] else { panic!("regions without calls are left out") };
        assert_eq!((&*deflate.name, &*deflate.library), ("deflate", "libz.so.1"));
        assert_eq!(deflate.totals, Totals { calls: 3, timed: 2, inclusive: 150, exclusive: 120, max: 100 });
        assert_eq!(deflate.totals.mean(), Some(75));
    }

    #[test]
    fn a_newer_definition_keeps_the_calls_and_counts_the_thread_once() {
        let (mut sink, handle) = live("t");
        for definition in [region(0, "old"), location(1), location(2)] {
            sink.define(&definition).unwrap();
        }
        sink.calls(&vec![call(0, 10, 0, Ending::Returned)].into()).unwrap();
        for definition in [region(0, "new"), location(2)] {
            sink.define(&definition).unwrap();
        }
        let snapshot = handle.snapshot();
        assert_eq!(&*snapshot.functions[0].name, "new");
        assert_eq!(snapshot.functions[0].totals.calls, 1);
        assert_eq!(snapshot.threads, 2);
    }

    #[test]
    fn losses_add_up_until_the_summary_says_them_all() {
        let (mut sink, handle) = live("t");
        sink.event(&loss(3)).unwrap();
        sink.event(&loss(4)).unwrap();
        assert_eq!(handle.snapshot().losses, [(LossReason::RingFull, 7)]);
        let losses = vec![Loss { reason: LossReason::TooDeep, region: None, count: 9 }];
        sink.finish(&Summary { losses, ..Summary::default() }).unwrap();
        assert_eq!(handle.snapshot().losses, [(LossReason::TooDeep, 9)]);
    }

    #[test]
    fn calls_of_an_unknown_region_count_in_the_total_only() {
        let (mut sink, handle) = live("t");
        sink.calls(&vec![call(u32::MAX, 10, 0, Ending::Returned)].into()).unwrap();
        assert_eq!(handle.snapshot().calls, 1);
        assert!(handle.snapshot().functions.is_empty());
    }
}

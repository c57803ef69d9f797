//! What the calls of a trace refer to, and what is known of all of them together.

use std::path::Path;

use rtrace_model::{
    CallSite, CallSiteId, Context, ContextId, CpuSamples, Estimate, Library, LibraryId, Location, LocationId, Metric,
    PathProfile, Process, Region, RegionId, ValueColumn,
};

use crate::file::Decoder;
use crate::schema::Row;
use crate::{Error, values};

/// The files of a trace, or of several as one, that are read at once.
#[derive(Debug, Default)]
pub struct Definitions {
    pub(crate) libraries: Vec<Library>,
    pub(crate) regions: Vec<Region>,
    pub(crate) processes: Vec<Process>,
    pub(crate) locations: Vec<Location>,
    pub(crate) metrics: Vec<Metric>,
    pub(crate) call_sites: Vec<CallSite>,
    pub(crate) contexts: Vec<Context>,
    pub(crate) value_columns: Vec<ValueColumn>,
    pub(crate) profile: Vec<PathProfile>,
    pub(crate) estimates: Vec<Estimate>,
    pub(crate) cpu_samples: Vec<CpuSamples>,
}

impl Definitions {
    pub(crate) fn read(path: &Path) -> Result<Definitions, Error> {
        let mut read = Definitions {
            libraries: read_table(path)?,
            regions: read_table(path)?,
            processes: read_table(path)?,
            locations: read_table(path)?,
            metrics: read_table(path)?,
            call_sites: read_optional_table(path)?,
            contexts: read_optional_table(path)?,
            value_columns: read_optional_table(path)?,
            profile: read_optional_table(path)?,
            estimates: read_optional_table(path)?,
            cpu_samples: read_optional_table(path)?,
        };
        read.libraries.sort_by_key(|library| library.id);
        read.regions.sort_by_key(|region| region.id);
        read.locations.sort_by_key(|location| location.id);
        read.metrics.sort_by_key(|metric| metric.id);
        read.call_sites.sort_by_key(|site| site.id);
        read.contexts.sort_by_key(|context| context.id);
        read.profile.sort_by_key(|path| (path.location, path.path));
        read.sort();
        Ok(read)
    }

    /// Sorts what has no ids of its own.
    pub(crate) fn sort(&mut self) {
        self.processes.sort_by_key(|process| (process.pid, process.start));
        self.value_columns.sort_by_key(|column| (column.region, column.position));
    }

    /// All libraries, by id.
    pub fn libraries(&self) -> &[Library] {
        &self.libraries
    }

    /// All regions, by id. Of several traces, how exits were seen is that of the first trace that has the region.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// All processes, by pid and start. Machines may use the same process id.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// All locations, by id.
    pub fn locations(&self) -> &[Location] {
        &self.locations
    }

    /// All metrics, by id; those whose scope is the call are in the order of readings. Of several traces, where all have
    /// the same; else none, and calls have no readings.
    pub fn metrics(&self) -> &[Metric] {
        &self.metrics
    }

    /// The call sites, by id.
    pub fn call_sites(&self) -> &[CallSite] {
        &self.call_sites
    }

    /// The contexts, by id. Empty where calls have none.
    pub fn contexts(&self) -> &[Context] {
        &self.contexts
    }

    /// The values that calls have, by region and position. Empty where none were asked for. Where several traces have the
    /// function, the columns of all, by name; of columns of one name the first decides.
    pub fn value_columns(&self) -> &[ValueColumn] {
        &self.value_columns
    }

    /// The calls folded by call path, by location and path. Empty where every call of a trace has a record of its own; else
    /// all its calls are here.
    pub fn profile(&self) -> &[PathProfile] {
        &self.profile
    }

    /// The calls without a record, trace after trace, by location and region. Empty without a budget.
    pub fn estimates(&self) -> &[Estimate] {
        &self.estimates
    }

    /// Where CPU time was spent, trace after trace, by process and place. Empty where it was not sampled.
    pub fn cpu_samples(&self) -> &[CpuSamples] {
        &self.cpu_samples
    }

    /// The library of that id.
    pub fn library(&self, id: LibraryId) -> Option<&Library> {
        find(&self.libraries, id, |library| library.id)
    }

    /// The region of that id.
    pub fn region(&self, id: RegionId) -> Option<&Region> {
        find(&self.regions, id, |region| region.id)
    }

    /// The location of that id.
    pub fn location(&self, id: LocationId) -> Option<&Location> {
        find(&self.locations, id, |location| location.id)
    }

    /// The call site of that id.
    pub fn call_site(&self, id: CallSiteId) -> Option<&CallSite> {
        find(&self.call_sites, id, |site| site.id)
    }

    /// The context of that id.
    pub fn context(&self, id: ContextId) -> Option<&Context> {
        find(&self.contexts, id, |context| context.id)
    }

    /// The values that calls of a region have.
    pub fn value_columns_of(&self, region: RegionId) -> &[ValueColumn] {
        values::columns_of(&self.value_columns, region)
    }
}

/// The row of that key in rows sorted by it.
pub(crate) fn find<T, K: Ord>(rows: &[T], key: K, key_of: impl Fn(&T) -> K) -> Option<&T> {
    rows.binary_search_by_key(&key, key_of).ok().map(|place| &rows[place])
}

fn read_table<T: Row>(directory: &Path) -> Result<Vec<T>, Error> {
    Decoder::open(&directory.join(T::PLACE))?.read_all()
}

/// The rows of a file that only some recordings have.
fn read_optional_table<T: Row>(directory: &Path) -> Result<Vec<T>, Error> {
    if directory.join(T::PLACE).exists() { read_table(directory) } else { Ok(Vec::new()) }
}

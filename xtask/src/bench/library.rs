//! Libraries in programs that use them: what rtrace adds to the calls of their functions, beside what
//! bpftrace adds, and beside what the kernel itself takes for the same probes.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use super::figures::{Goal, Ratios};
use super::subject::{WORKS, Worker};
use super::tracer::{self, BenchSelection, RecordedCalls};
use super::{Bench, BenchLine, mkl};
use crate::files;

/// bpftrace takes and leaves each function's probes one by one, so of each library both tracers
/// probe only the functions that the program calls most.
pub const FUNCTIONS: usize = 20;

/// A library in a program that uses it.
struct BenchLibrary {
    name: &'static str,
    program: OtherPrograms,
    /// How much of what bpftrace adds rtrace may add.
    goal: f64,
    /// Whether the size of the trace has a goal.
    sized: bool,
    /// Whether it is traced by stubs too; its program is one of ours.
    stubs: bool,
}

impl BenchLibrary {
    fn time_added(&self, ratios: Ratios, remark: String) -> BenchLine {
        let what = format!("time added to calls of {}", self.name);
        BenchLine { what, unit: "× bpftrace", ratios, goal: Some(Goal(self.goal)), remark }
    }
}

/// The programs beside our own.
#[derive(Clone, Copy)]
pub(super) enum OtherPrograms {
    Python,
    /// Python, which reads the machine's certificates.
    Certificates,
    Sqlite,
    /// Ours, with this work.
    Own(&'static str),
    /// Ours, with functions of MKL.
    Mkl,
}

const LIBRARIES: &[BenchLibrary] = &[
    BenchLibrary { name: "libz.so.1", program: OtherPrograms::Python, goal: 0.5, sized: true, stubs: false },
    BenchLibrary {
        name: "libfftw3.so.3",
        program: OtherPrograms::Own("fftw 1 100\n"),
        goal: 0.5,
        sized: true,
        stubs: false,
    },
    BenchLibrary { name: "libsqlite3.so.0", program: OtherPrograms::Sqlite, goal: 0.5, sized: false, stubs: false },
    BenchLibrary {
        name: "libgomp.so.1",
        program: OtherPrograms::Own("gomp 1 20000\n"),
        goal: 0.2,
        sized: false,
        stubs: true,
    },
    BenchLibrary { name: "libmkl_rt.so.3", program: OtherPrograms::Mkl, goal: 0.2, sized: false, stubs: false },
    BenchLibrary { name: "libmkl_intel_lp64.so.3", program: OtherPrograms::Mkl, goal: 0.2, sized: false, stubs: false },
];

const PYTHON: &str = "import sys, zlib
text = b'some text that is packed ' * 40
for line in sys.stdin:
    for i in range(2000):
        packed = zlib.compress(text, 6)
        zlib.crc32(packed)
        zlib.adler32(zlib.decompress(packed))
    print('done', flush=True)";

const CERTIFICATES: &str = "import ssl, sys
bundle = open('/etc/ssl/certs/ca-certificates.crt').read()
end = '-----END CERTIFICATE-----'
few = end.join(bundle.split(end)[:5]) + end
for line in sys.stdin:
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=few)
    print('done', flush=True)";

impl Bench {
    /// All libraries.
    pub(super) fn libraries(&self) -> Result<Vec<BenchLine>> {
        let mut lines = Vec::new();
        for library in LIBRARIES {
            let missing = match library.program {
                OtherPrograms::Mkl => mkl::prepare(&self.folder).err(),
                _ => None,
            };
            match missing {
                Some(error) => lines.push(library.time_added(Ratios(Vec::new()), format!("{error:#}"))),
                None => lines.extend(self.library(library)?),
            }
        }
        Ok(lines)
    }

    /// The functions of a library in a program that uses it.
    fn library(&self, library: &BenchLibrary) -> Result<Vec<BenchLine>> {
        let mut subject = self.start(library.program)?;
        let pid = subject.pid();
        let selection = self.most_called(&mut subject, library.name)?;
        let sites = self.tools.sites(pid, &selection)?;
        let (mut ratios, mut costs, mut sizes, mut by_stubs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut floors = Vec::new();
        let mut recorded = RecordedCalls::default();
        for _ in 0..self.rounds {
            let untraced = subject.quickest()?;
            let bpftrace = self.tools.bpftrace(pid, &selection)?;
            let by_peer = subject.quickest()? - untraced;
            tracer::end(bpftrace)?;
            let nothing = self.tools.nothing(pid, &selection.file, &sites)?;
            let least = subject.quickest()? - untraced;
            drop(nothing);
            let rtrace = self.tools.rtrace(pid, &selection)?;
            let ours = subject.quickest()? - untraced;
            recorded = self.tools.recorded(rtrace)?;
            ratios.push(ours / by_peer);
            floors.push(least / by_peer);
            costs.push(ours * f64::from(WORKS) / recorded.calls as f64);
            sizes.push(recorded.bytes as f64 / recorded.calls as f64);
            if let (true, OtherPrograms::Own(work)) = (library.stubs, library.program) {
                let mut subject = self.tools.stubs(&selection, &self.program, work)?;
                by_stubs.push((subject.quickest()? - untraced) / by_peer);
                subject.end()?;
                self.tools.stored()?;
            }
        }
        let remark = format!(
            "floor {:.2}; {} calls of {} functions, {} ns each, {} lost",
            Ratios(floors).median(),
            recorded.calls,
            selection.functions.len(),
            Ratios(costs).median().round(),
            recorded.lost
        );
        let mut lines = vec![library.time_added(Ratios(ratios), remark)];
        if library.sized {
            lines.push(BenchLine {
                what: format!("bytes on disk per call of {}", library.name),
                unit: "bytes",
                ratios: Ratios(sizes),
                goal: Some(Goal(8.0)),
                remark: String::new(),
            });
        }
        if !by_stubs.is_empty() {
            lines.push(BenchLine {
                what: format!("time added to calls of {} by `run --stubs`", library.name),
                unit: "× bpftrace",
                ratios: Ratios(by_stubs),
                goal: Some(Goal(library.goal)),
                remark: String::new(),
            });
        }
        Ok(lines)
    }

    pub(super) fn start(&self, program: OtherPrograms) -> Result<Worker> {
        let python = |code| Worker::start(Command::new("/usr/bin/python3").args(["-u", "-c", code]), "go\n");
        match program {
            OtherPrograms::Python => python(PYTHON),
            OtherPrograms::Certificates => python(CERTIFICATES),
            OtherPrograms::Sqlite => {
                let work = format!(".read '{}'\n", statements(&self.folder)?.display());
                Worker::start(Command::new("/usr/bin/sqlite3").args(["-batch", ":memory:"]), &work)
            }
            OtherPrograms::Own(work) => Worker::start(&mut Command::new(&self.program), work),
            OtherPrograms::Mkl => mkl::start(&self.program, &self.folder),
        }
    }

    /// The functions of a library that the program calls most.
    pub(super) fn most_called(&self, subject: &mut Worker, library: &str) -> Result<BenchSelection> {
        let all = BenchSelection { libraries: vec![library.to_owned()], ..BenchSelection::default() };
        let attached = self.tools.rtrace(subject.pid(), &all)?;
        subject.work()?;
        self.tools.recorded(attached)?;
        let report = self.tools.report(&["--sort", "calls"])?;
        let functions: Vec<String> = report.iter().take(FUNCTIONS).map(|row| row["function"].clone()).collect();
        if functions.is_empty() {
            bail!("failed to see a call of `{library}`");
        }
        Ok(BenchSelection { file: self.tools.file(subject.pid(), &all)?, functions, ..all })
    }
}

/// A file of SQL that fills a table and asks about it.
fn statements(folder: &Path) -> Result<PathBuf> {
    let path = folder.join("statements.sql");
    let mut text = "create table if not exists t(a integer primary key, b text, c real);\ndelete from t;\n".to_owned();
    for number in 0..500 {
        writeln!(text, "insert into t values({number}, 'text {}', {}.5);", number * 7 % 101, number % 13)
            .expect("a string takes everything");
    }
    text.push_str("select count(*), sum(c) from t where b like '%7%';\n.print done\n");
    files::write(&path, text)?;
    Ok(path)
}

//! Real programs whose calls into a library are the same in every run.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::skip;
use super::target;

const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";

/// A command, and the library whose calls are counted.
pub struct Workload {
    pub library: PathBuf,
    pub command: Command,
    // Holds the input; removed with the workload.
    _folder: TempDir,
}

impl Workload {
    /// `None`, with the reason printed, where the program is not installed.
    fn new(program: &str, library: &str, configure: impl FnOnce(&mut Command, &Path)) -> Option<Workload> {
        if !skip::installed(&[program]) {
            return None;
        }
        let library = fs::canonicalize(Path::new(LIBRARIES).join(library)).unwrap();
        let folder = TempDir::new().unwrap();
        let mut command = Command::new(program);
        // No settings of the user, and no order that depends on a seed.
        command.env("HOME", folder.path()).env("PYTHONHASHSEED", "0");
        configure(&mut command, folder.path());
        Some(Workload { library, command, _folder: folder })
    }

    /// sqlite3's shell: `inserts` statements and a query.
    pub fn sqlite(inserts: u32) -> Option<Workload> {
        let mut script = String::from("create table t(a integer primary key, b text); begin;\n");
        for row in 0..inserts {
            writeln!(script, "insert into t values({row}, 'row {}');", row * 7919 % 10_007).unwrap();
        }
        script += "commit; select count(*), sum(length(b)) from t;\n";
        Workload::new("/usr/bin/sqlite3", "libsqlite3.so.0", |command, folder| {
            let file = folder.join("script.sql");
            fs::write(&file, script).unwrap();
            command.args(["-batch", ":memory:"]).arg(format!(".read {}", file.display()));
        })
    }

    /// Python's interpreter: packs and unpacks data with zlib.
    pub fn python_zlib() -> Option<Workload> {
        Workload::new("/usr/bin/python3", "libz.so.1", |command, _| {
            command.args(["-I", "-S"]).arg(target::sources().join("pack.py"));
        })
    }

    /// xmllint: parses a document and prints it again.
    pub fn xmllint() -> Option<Workload> {
        let mut document = String::from("<?xml version=\"1.0\"?>\n<list>");
        for item in 0..500 {
            write!(document, "<item id=\"{item}\"><name>n{}</name><!-- c --><v>{item} &amp; x</v></item>", item % 17)
                .unwrap();
        }
        document += "</list>\n";
        Workload::new("/usr/bin/xmllint", "libxml2.so.2", |command, folder| {
            let file = folder.join("document.xml");
            fs::write(&file, document).unwrap();
            command.arg("--format").arg(file);
        })
    }

    /// xz: packs a text of 2 MB on one thread.
    pub fn xz() -> Option<Workload> {
        let text: String = (0_u32..150_000).map(|line| format!("{line} {:x}\n", line * 7919 % 100_003)).collect();
        Workload::new("/usr/bin/xz", "liblzma.so.5", |command, folder| {
            let file = folder.join("text");
            fs::write(&file, text).unwrap();
            command.args(["-T1", "-1", "-k", "-c"]).arg(file);
        })
    }
}

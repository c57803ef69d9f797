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

    /// git: the changes of 40 commits.
    pub fn git_log() -> Option<Workload> {
        Workload::new("/usr/bin/git", "libz.so.1", |command, folder| {
            let script =
                "git init -q && for i in $(seq 40); do seq $i 900 > f && git add f && git commit -q -m $i; done";
            let names = ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"];
            let mut shell = Command::new("sh");
            shell.args(["-ec", script]).current_dir(folder).env("HOME", folder).env("GIT_CONFIG_NOSYSTEM", "1");
            assert!(shell.envs(names.map(|name| (name, "a@b"))).status().unwrap().success(), "{shell:?}");
            command.arg("-C").arg(folder).args(["--no-pager", "log", "-p"]).env("GIT_CONFIG_NOSYSTEM", "1");
        })
    }

    /// openssl: a new certificate, read and printed.
    pub fn openssl_x509() -> Option<Workload> {
        Workload::new("/usr/bin/openssl", "libcrypto.so.3", |command, folder| {
            let (key, certificate) = (folder.join("key"), folder.join("certificate"));
            let mut request = Command::new("/usr/bin/openssl");
            request.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=a", "-keyout"]).arg(key);
            assert!(request.arg("-out").arg(&certificate).output().unwrap().status.success(), "{request:?}");
            command.args(["x509", "-noout", "-text", "-in"]).arg(certificate);
        })
    }

    /// qpdf: repairs a document without a table of its objects, by exceptions; ends with 3.
    pub fn qpdf_broken() -> Option<Workload> {
        let mut document = String::from("%PDF-1.4\n1 0 obj\n<< /Type /Catalog /Pages 2 0 R >>\nendobj\n");
        document += "2 0 obj\n<< /Type /Pages /Count 0 /Kids [] >>\nendobj\n";
        for object in 3..400 {
            writeln!(document, "{object} 0 obj\n<< /Length 99 /A [1 (x) /B] >>\nstream\nabc\nendstream\nendobj")
                .unwrap();
        }
        document += "trailer << /Root 1 0 R /Size 400 >>\nstartxref\n7\n%%EOF\n";
        Workload::new("/usr/bin/qpdf", "libqpdf.so.29", |command, folder| {
            let file = folder.join("broken.pdf");
            fs::write(&file, document).unwrap();
            command.args(["--check", "--show-xref"]).arg(file);
        })
    }

    /// exiv2: what a picture says of itself that is cut off in the middle; ends with 1.
    pub fn exiv2_broken() -> Option<Workload> {
        Workload::new("/usr/bin/exiv2", "libexiv2.so.27", |command, folder| {
            let file = folder.join("broken.jpg");
            let picture = [&[0xff, 0xd8, 0xff, 0xe1, 0x40, 0x00], &b"Exif\0\0II*\0\x08\0\0\0\x20\0"[..]].concat();
            fs::write(&file, picture).unwrap();
            command.arg("-pa").arg(file);
        })
    }
}

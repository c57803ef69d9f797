//! Whether what was built does what it is for: packages are installed and removed in clean trees, the binary records where
//! there is nothing else, and a second build is the same.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::Release;
use crate::archive::Archive;
use crate::files::emptied;
use crate::{packages, process, vm};

const PACKAGES: &[&str] =
    &["bash", "debian-archive-keyring", "debootstrap", "libcap2-bin", "podman", "python3", "rpm", "runc", "util-linux"];
/// Debian 12 and 13, Ubuntu 22.04 and 24.04.
const SUITES: [&str; 4] = ["bookworm", "trixie", "jammy", "noble"];
/// Files that package managers keep for themselves.
const KEPT: [&str; 7] =
    ["/var/lib/dpkg/", "/var/lib/rpm", "/var/log/", "/etc/group-", "/etc/gshadow-", "/etc/.pwd.lock", "/var/cache/"];
/// The emulated kernel in which the binary must record with nothing but busybox.
const KERNEL: &str = "6.12";
/// Records, and compares with what the program is known to do.
const SCRIPT: &str = "packaging/record";

/// Checks all that was built.
///
/// # Errors
/// Something is not as it should be.
pub fn run(release: &Release) -> Result<()> {
    packages::require_root("install packages in trees")?;
    packages::require(PACKAGES)?;
    for suite in SUITES {
        let tree = tree(release, suite)?;
        deb(release, &tree).with_context(|| format!("failed with the .deb in {suite}"))?;
        rpm(release, &tree).with_context(|| format!("failed with the .rpm in {suite}"))?;
        tarball(release, &tree).with_context(|| format!("failed with the tarball in {suite}"))?;
    }
    let recipe = release.file("spack/rtrace/package.py");
    process::run(
        Command::new("python3").args(["-c", "import ast, sys; ast.parse(open(sys.argv[1]).read())"]).arg(recipe),
    )?;
    bare(release)?;
    image(release)?;
    guest(release)?;
    println!("\nall packages install, record and leave nothing");
    Ok(())
}

/// Builds once more from a clone in another folder, and compares what users fetch.
///
/// # Errors
/// A file is another, or there are changes that are not committed.
pub fn compare(release: &Release) -> Result<()> {
    let again = emptied(release.file("again"))?;
    let source = again.join("source-of-another-name");
    process::run(Command::new("git").args(["clone", "--quiet", "--no-hardlinks"]).arg(crate::root()).arg(&source))?;
    let second = Release::new(emptied(again.join("made"))?)?;
    super::build(&second, &source, &again.join("target"))?;
    for name in release.fetched() {
        let same = fs::read(release.file(&name))? == fs::read(second.file(&name))?;
        ensure!(same, "failed to build `{name}` twice: the bytes are not the same, see `{}`", second.folder.display());
        println!("`{name}` is the same");
    }
    Ok(())
}

impl Release {
    /// What users fetch.
    fn fetched(&self) -> [String; 4] {
        let version = &self.version;
        let (deb, rpm) = (format!("rtrace_{version}_amd64.deb"), format!("rtrace-{version}-1.x86_64.rpm"));
        [self.tarball(), deb, rpm, self.image()]
    }
}

/// A clean tree of a release, made once and copied.
fn tree(release: &Release, suite: &str) -> Result<PathBuf> {
    let clean = release.file("trees").join(suite);
    if !clean.join("etc/passwd").exists() {
        emptied(clean.clone())?;
        let archive = Archive::of(suite);
        let mut debootstrap = Command::new("debootstrap");
        debootstrap.arg("--variant=minbase").arg(format!("--keyring={}", archive.keys()?.display())).arg(suite);
        process::run(debootstrap.arg(&clean).args([archive.address(), archive.script()]))?;
    }
    let copy = release.file("checked");
    if copy.exists() {
        process::run(Command::new("rm").args(["-rf", "--one-file-system"]).arg(&copy))?;
    }
    process::run(Command::new("cp").arg("-a").arg(&clean).arg(&copy))?;
    Ok(copy)
}

fn deb(release: &Release, tree: &Path) -> Result<()> {
    let before = files(tree)?;
    let [_, deb, ..] = release.fetched();
    fs::copy(release.file(&deb), tree.join("tmp/rtrace.deb"))?;
    inside(tree, "dpkg --install /tmp/rtrace.deb")?;
    installed(tree)?;
    inside(tree, "dpkg --remove rtrace; dpkg --purge rtrace; rm /tmp/rtrace.deb; ! getent group rtrace")?;
    nothing_left(&before, tree)
}

fn rpm(release: &Release, tree: &Path) -> Result<()> {
    let before = files(tree)?;
    let [_, _, rpm, _] = release.fetched();
    let command = || {
        let mut command = Command::new("rpm");
        command.args(["--dbpath", "/var/lib/rpm", "--root"]).arg(tree);
        command
    };
    // The tree's other packages are dpkg's.
    process::run(command().args(["--install", "--nodeps"]).arg(release.file(&rpm)))?;
    installed(tree)?;
    process::run(command().args(["--erase", "rtrace"]))?;
    inside(tree, "! getent group rtrace")?;
    nothing_left(&before, tree)
}

fn tarball(release: &Release, tree: &Path) -> Result<()> {
    let before = files(tree)?;
    process::run(
        Command::new("tar").arg("-xzf").arg(release.file(&release.tarball())).arg("-C").arg(tree.join("opt")),
    )?;
    let folder = release.tarball().trim_end_matches(".tar.gz").to_owned();
    record(tree, &format!("/opt/{folder}/bin"))?;
    fs::remove_dir_all(tree.join("opt").join(folder))?;
    nothing_left(&before, tree)
}

/// The program is there for its group, has no capabilities, and records.
fn installed(tree: &Path) -> Result<()> {
    inside(tree, r#"[ "$(stat -c '%a %U %G' /usr/bin/rtrace)" = "750 root rtrace" ]"#)?;
    inside(tree, "[ -s /usr/share/man/man1/rtrace-attach.1 ] && [ -s /usr/share/doc/rtrace/copyright ]")?;
    let capabilities = process::output(Command::new("getcap").arg(tree.join("usr/bin/rtrace")))?;
    ensure!(capabilities.is_empty(), "failed to install without capabilities: {capabilities}");
    record(tree, "/usr/bin")
}

fn record(tree: &Path, folder: &str) -> Result<()> {
    fs::copy(crate::root().join(SCRIPT), tree.join("tmp/record"))?;
    inside(tree, &format!("PATH={folder}:$PATH; sh /tmp/record; rm -r /tmp/record /tmp/write.rtrace"))
}

/// Runs a script in a tree, with the kernel's file systems there as long as it runs.
fn inside(tree: &Path, script: &str) -> Result<()> {
    process::run(chroot(tree).args(["sh", "-ec", script]))
}

fn chroot(tree: &Path) -> Command {
    let mounts = r#"for name in proc sys dev; do mkdir -p "$0/$name"; mount --rbind "/$name" "$0/$name"; done; exec chroot "$0" "$@""#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation=private", "sh", "-ec", mounts]).arg(tree);
    command.env("LC_ALL", "C").env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command
}

/// All files of a tree but those that package managers keep, with what they are and where links lead.
fn files(tree: &Path) -> Result<BTreeSet<String>> {
    let mut find = Command::new("find");
    // Of folders, sizes depend on what was in them.
    find.arg(tree).args(["-xdev", "-type", "d", "-printf", "/%P %M %U %G\n", "-o", "-printf", "/%P %M %U %G %s %l\n"]);
    let listed = process::output(&mut find)?;
    let is_kept = |line: &&str| KEPT.iter().any(|kept| line.starts_with(kept));
    Ok(listed.lines().filter(|line| !is_kept(line)).map(str::to_owned).collect())
}

fn nothing_left(before: &BTreeSet<String>, tree: &Path) -> Result<()> {
    let after = files(tree)?;
    let differ: Vec<&String> = before.symmetric_difference(&after).collect();
    ensure!(differ.is_empty(), "failed to leave nothing: {differ:?}");
    Ok(())
}

/// In a tree that holds nothing but the binary, it records a program outside of it.
fn bare(release: &Release) -> Result<()> {
    let root = emptied(release.file("bare"))?;
    fs::copy(release.file("tree/usr/bin/rtrace"), root.join("rtrace"))?;
    let script = "read line; for ((i = 0; i < 500; i++)); do echo; done >/dev/null";
    let mut shell =
        Command::new("bash").args(["-c", script]).stdin(Stdio::piped()).spawn().context("failed to start bash")?;
    let mut rtrace = chroot(&root);
    let options = "/rtrace attach --strict --lib libc.so.6 --func write --budget none --no-tui -o /bash.rtrace -p";
    rtrace.args(options.split(' ')).arg(shell.id().to_string()).stderr(Stdio::piped());
    println!("$ {}", process::shown(&rtrace));
    let mut rtrace = rtrace.spawn().context("failed to start rtrace")?;
    for line in BufReader::new(rtrace.stderr.take().context("it has no stderr")?).lines() {
        let line = line?;
        println!("{line}");
        if line.contains("recording 1 function") {
            shell.stdin.take().context("bash reads already")?.write_all(b"\n")?;
        }
    }
    drop(shell.stdin.take());
    shell.wait()?;
    ensure!(rtrace.wait()?.success(), "failed to record completely from a tree that has nothing but rtrace");
    let report = "/rtrace report /bash.rtrace --format csv --columns calls";
    let csv = process::output(chroot(&root).args(report.split(' ')))?;
    let calls = csv.lines().last().unwrap_or_default();
    ensure!(calls.starts_with("500,") && calls.ends_with(",write"), "failed to record 500 calls: {csv}");
    process::run(Command::new("rm").arg("-r").arg(&root))
}

/// The container image is loaded, runs, and is removed.
fn image(release: &Release) -> Result<()> {
    let podman = || Command::new("podman");
    let name = format!("localhost/rtrace:{}", release.version);
    process::run(podman().args(["load", "--input"]).arg(release.file(&release.image())))?;
    // Its defaults take more rights than root of a container has.
    let limits = ["--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"];
    let mut run = podman();
    run.args(["--runtime=runc", "run", "--rm", "--network=none"]).args(limits).args([&name, "--version"]);
    let said = process::output(&mut run)?;
    ensure!(said.contains(&release.version), "failed to run the image: {said}");
    process::run(podman().args(["rmi", &name]))
}

/// In a guest that has busybox, it records a shell.
fn guest(release: &Release) -> Result<()> {
    let root = emptied(release.file("guest"))?;
    let usr = root.join("usr/bin");
    fs::create_dir_all(&usr)?;
    fs::copy(release.file("tree/usr/bin/rtrace"), usr.join("rtrace"))?;
    fs::copy(crate::root().join(SCRIPT), root.join("record"))?;
    let init = crate::root().join("packaging/guest-init");
    let image = release.file("guest.cpio");
    vm::pack(&root, &[PathBuf::from("/usr/bin/bash")], &init, &image)?;
    vm::boot(KERNEL, &image)
}

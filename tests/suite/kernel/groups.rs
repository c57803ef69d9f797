//! Control groups: who is in one, and who joins it while it is recorded.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rtrace_model::EventKind;

use crate::common::rtrace::{Attached, Waiting, command, refuses};
use crate::common::skip::{Turn, skip};
use crate::common::target::{Flavour, Target};
use crate::common::truth;

/// A control group of version 2 with a container's; both go with this.
struct Group(PathBuf);

impl Group {
    fn new() -> Option<Group> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
        let root = roots.into_iter().find(|root| root.join("cgroup.controllers").exists());
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let group = root.map(|root| Group(root.join(format!("rtrace-test-{}-{number}", std::process::id()))));
        let made = group.filter(|group| fs::create_dir_all(group.container()).is_ok());
        if made.is_none() {
            skip("no control group can be made");
        }
        made
    }

    /// The ID of the container.
    fn id(&self) -> String {
        format!("{:016x}", std::process::id()) + &"5".repeat(48)
    }

    fn container(&self) -> PathBuf {
        self.0.join(format!("docker-{}.scope", self.id()))
    }

    fn add(&self, pid: u32) {
        fs::write(self.container().join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(self.container());
        let _ = fs::remove_dir(&self.0);
    }
}

/// Its library is another one than that of the processes which were there before.
#[test]
fn who_joins_a_group_is_recorded_until_the_group_is_gone() {
    let Some(_turn) = Turn::take() else { return };
    let Some(group) = Group::new() else { return };
    let [target, other] = [Flavour::Cet, Flavour::Plain].map(|flavour| Target::build("processes", flavour));
    let mut first = Waiting::start(&mut target.command("after_exec"));
    group.add(first.pid());
    let libraries = ["--lib", "libtruth.so", "--cgroup", group.0.to_str().unwrap()].map(str::to_owned);
    let attached = Attached::start(first.pid(), &libraries);
    first.go();
    let mut told = truth::trees(&first.finish().stdout);
    let processes = [&target, &other].map(|target| {
        let waiting = Waiting::start(&mut target.command("after_exec"));
        group.add(waiting.pid());
        waiting
    });
    for target in [&target, &other] {
        let path = target.library.as_deref().unwrap();
        attached
            .wait_for(|event| matches!(event, EventKind::BlindWindow { library, .. } if Path::new(library) == path));
    }
    for mut process in processes {
        let pid = process.pid();
        process.go();
        let output = process.finish();
        assert!(output.status.success());
        let of_process = truth::trees(&output.stdout);
        assert!(of_process.keys().all(|&(of, _)| of == pid) && !of_process.is_empty());
        told.extend(of_process);
    }
    drop(group);
    let (output, recording) = attached.finish();
    let said = String::from_utf8_lossy(&output.stderr);
    // The first calls from a place may return before its site is there.
    assert_eq!(recording.trees_as(&told), told, "{said}");
    assert_eq!(recording.processes().len(), 3);
    assert!(recording.processes().iter().all(|process| process.executable.contains("processes")), "{said}");
    assert!(recording.summary().blind_windows >= 2, "{said}");
}

#[test]
fn a_container_is_named_by_the_first_digits_of_its_id() {
    let Some(_turn) = Turn::take() else { return };
    let Some(group) = Group::new() else { return };
    let id = group.id();
    let refusal = refuses(&["libs", "--container", &id[..20]]);
    assert!(refusal.contains("failed to find a process in container"), "{refusal}");
    let target = Target::build("processes", Flavour::Cet);
    let mut waiting = Waiting::start(&mut target.command("after_exec"));
    group.add(waiting.pid());
    let output = command().args(["libs", "--json", "--container", &id[..20]]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("libtruth.so") && said.contains(&waiting.pid().to_string()), "{said}");
    waiting.go();
    assert!(waiting.finish().status.success());
}

#[test]
fn a_group_that_there_is_not_is_refused() {
    for (option, message) in [
        ("--cgroup", "failed to find control group `no/such`"),
        ("--container", "failed to find container `no/such`"),
        ("--unit", "failed to find unit `no/such`"),
    ] {
        let refusal = refuses(&["libs", option, "no/such"]);
        assert!(refusal.contains(message), "{refusal}");
    }
}

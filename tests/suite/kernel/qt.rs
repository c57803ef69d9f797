//! The 13,000 functions of Qt at once: attaching, detaching, and the program in between.

use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::common::rtrace::Attached;
use crate::common::skip::{Turn, skip};
use crate::common::target;

#[test]
fn all_exported_functions_of_a_qt_program() {
    let Some(program) = target::qt_app() else {
        return skip("Qt's headers are not installed; `cargo xtask test` installs them");
    };
    let Some(_turn) = Turn::take() else { return };
    let run = |seconds: &str| {
        let mut command = Command::new(&program);
        command.arg(seconds).env("QT_QPA_PLATFORM", "offscreen").stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let untraced = run("1").wait_with_output().unwrap();
    let traced = run("20");
    sleep(Duration::from_millis(500));
    let options = ["--lib", "libQt5Core.so", "--lib", "libQt5Gui.so", "--lib", "libQt5Widgets.so", "--duration", "2s"];
    let options = options.map(str::to_owned).into_iter().chain(["--buffer".into(), "64M".into()]).collect::<Vec<_>>();
    let (output, recording) = Attached::start(traced.id(), &options).finish();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let traced = traced.wait_with_output().unwrap();
    assert!(traced.status.success(), "{}", String::from_utf8_lossy(&traced.stderr));
    assert_eq!(String::from_utf8_lossy(&traced.stdout), String::from_utf8_lossy(&untraced.stdout));

    assert!(recording.regions().len() > 12_000, "{}", recording.regions().len());
    for library in ["Core", "Gui", "Widgets"] {
        let called = recording.calls_by_region();
        let regions = recording.regions_of(&format!("libQt5{library}.so"));
        let calls: u64 = regions.iter().filter_map(|region| called.get(&region.id)).sum();
        assert!(calls > 0, "no calls of Qt's {library}");
    }
}

//! Programs in Go, whose stacks move and whose functions begin anew.

use rtrace_model::Ending;

use crate::common::skip::{Turn, installed};
use crate::common::target;
use crate::common::{launch, rtrace};

#[test]
fn goroutines_are_counted_and_c_is_timed() {
    if !installed(&["go"]) {
        return;
    }
    let Some(_turn) = Turn::take() else { return };
    let command = std::process::Command::new(target::goroutines());
    let untraced = launch::alone(&command);
    let options = ["--lib", "exe", "--func", "main.*", "--func", "twice"].map(str::to_owned);
    let (traced, recording) = rtrace::run(&options, &command);
    let messages = String::from_utf8_lossy(&traced.stderr);
    assert!(traced.status.success() && messages.contains("counted, not timed"), "{messages}");
    assert_eq!(traced.stdout, untraced.stdout);

    let ends = |name: &str| -> Vec<Ending> {
        recording.counted(name).values().flatten().map(|(call, _)| call.ending).collect()
    };
    let functions =
        [("deep", 20_200), ("wide", 200), ("leaf", 200), ("load", 400), ("recovers", 400), ("work", 200), ("main", 1)];
    for (name, count) in functions {
        assert_eq!(ends(&format!("main.{name}")), vec![Ending::Unseen; count], "{name}");
    }
    assert_eq!(ends("twice"), vec![Ending::Returned; 2_000]);
}

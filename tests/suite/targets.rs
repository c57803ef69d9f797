//! The targets themselves, untraced: whichever way they are built, they do and tell the same.

use crate::common::target::{Flavour, Target};
use crate::common::truth;

#[test]
fn every_flavour_tells_the_same() {
    for (program, scenario) in [("shapes", "nested"), ("shapes", "branches"), ("threads", "parallel")] {
        let run = |flavour| truth::behaviour(&Target::build(program, flavour).command(scenario).output().unwrap());
        let expected = run(Flavour::Cet);
        assert!(expected.1.iter().any(|line| line.starts_with("truth ")), "{expected:?}");
        let others = [Flavour::Plain, Flavour::Stripped, Flavour::Sectionless, Flavour::Static, Flavour::Exporting];
        for flavour in others {
            assert_eq!(run(flavour), expected, "{program} {scenario}, {flavour:?}");
        }
    }
}

#[test]
fn unknown_scenarios_are_refused() {
    let output = Target::build("shapes", Flavour::Cet).command("nonsense").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

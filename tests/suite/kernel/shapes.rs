//! Shapes of call trees on one thread.

use crate::common::scenario::Scenario;
use crate::common::target::Flavour;

#[test]
fn nested() {
    Scenario::new("shapes", "nested").run();
}

#[test]
fn nested_without_endbr64() {
    Scenario::new("shapes", "nested").flavour(Flavour::Plain).run();
}

#[test]
fn several_returns_behind_a_jump_table() {
    Scenario::new("shapes", "branches").run();
}

#[test]
fn several_returns_behind_a_jump_table_without_endbr64() {
    Scenario::new("shapes", "branches").flavour(Flavour::Plain).run();
}

#[test]
fn mutual_recursion() {
    Scenario::new("shapes", "mutual").run();
}

#[test]
fn recursion_deeper_than_the_kernel_follows_returns() {
    Scenario::new("shapes", "recursion").run();
}
